"""Capacity and tear-down rate of tables of sessions, on NATs whose truth is known."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest

from netdyno import units
from netdyno.core.result import DutReport, Repetition, Result
from netdyno.core.wire import Validity
from netdyno.errors import Error
from netdyno.experiment import spec
from netdyno.experiment.spec import LegSpec
from netdyno.lab.dut import DRIVERS
from netdyno.lab.dut.base import DutSite
from netdyno.lab.dut.graph import L2FWD
from netdyno.nat import phases, study
from netdyno.nat.dut.kernel_nat import IDLE
from netdyno.nat.dut.sessions import SECONDS, SESSIONS, KeepsSessions, keeper, tear_down
from netdyno.nat.lab import Flows
from netdyno.nat.search import study as nat_study
from netdyno.nat.search.capacity import GOAL, slowest
from netdyno.nat.study import Machine
from netdyno.search.bench import legs_to_search
from netdyno.search.exponential import slowing
from netdyno.search.kind import KINDS
from netdyno.search.load import Axis, axis
from netdyno.search.request import PartSearch, SearchRequest
from netdyno.search.trial import LoadTrial, Space, Strategy, TrialRequest, run

from .shared import machine


@dataclass
class Table:
    """A NAT that keeps so many sessions, and opens them no faster than so."""

    room: float
    fastest: Callable[[float], float] = lambda sessions: 1e9
    evicts: bool = False
    noise: float = 0.0
    trials: int = 0

    def __call__(self, ask: TrialRequest) -> LoadTrial:
        self.trials += 1
        sessions, rate = round(ask.load), ask.load / ask.seconds
        room = self.room * random.Random(self.trials).gauss(1, self.noise)
        lost = max(0.0, sessions - room)
        # what it does not open in time is not there, nor is what it opened too much for
        lost += sessions * 0.01 if rate > self.fastest(sessions) else 0
        # both phases are counted: what was refused is missed twice, what was given up once
        lost = round(lost) * (1 if self.evicts else 2)
        return LoadTrial(ask.load, ask.seconds, 2 * sessions, lost, number=self.trials)


def part(name: str, leg: str, repeat: int = 4) -> tuple[PartSearch, SearchRequest]:
    """One leg of a study, as the search has it."""
    asked = nat_study.StudyOptions(repeat=repeat, legs=(leg,))
    made = nat_study.prepare(study.read(name), study.nat(None), asked, Machine(machine(1, 2)))
    (one,) = made.search.parts
    return one, made.search.request


def searched_on(dut: Table) -> tuple[PartSearch, Any]:
    one, wanted = part("rfc9693-capacity", "kernel")
    trials, one.stop = run(one.strategy, dut)
    one.trials = list(trials)
    (found,), _ = KINDS["capacity"].judge(one, wanted)
    return one, found


@pytest.mark.parametrize("room", [1500, 10_000, 65_536, 262_144, 390_000])
@pytest.mark.parametrize("evicts", [False, True])
def test_a_capacity_is_found_to_the_resolution(room: int, evicts: bool) -> None:
    one, found = searched_on(Table(room, evicts=evicts))
    assert found.goal == "capacity" and found.limit == "dut"
    low, high = found.interval
    assert found.load <= room and low <= room <= high
    assert found.load == pytest.approx(room, rel=0.01)
    assert (one.unit, len(one.trials) < 60) == ("sessions", True)


def test_too_fast_is_not_too_many() -> None:
    # with more sessions it opens them more slowly
    one, found = searched_on(Table(50_000, fastest=lambda sessions: 40e3 if sessions < 20_000 else 20e3))
    assert found.load == pytest.approx(50_000, rel=0.01) and found.limit == "dut"
    # both times it was asked again at half the rate, and what failed before says nothing
    again = {one.number for one in one.trials} - {one.number for one in slowest(one.trials)}
    assert again and found.trials == len(one.trials) - len(again)


def test_what_our_generator_did_not_offer_is_no_evidence_and_takes_that_of_the_faster_trial() -> None:
    def busy(ask: TrialRequest) -> LoadTrial:
        """Beyond 30,000 sessions it is too slow for 50k/s, and our side is short at less."""
        seen = dut(ask)
        return replace(seen, short=ask.load > 30_000 and ask.load / ask.seconds < 50e3)

    dut = Table(5e6, fastest=lambda sessions: 1e9 if sessions <= 30_000 else 30e3)
    one, wanted = part("rfc9693-capacity", "kernel")
    trials, one.stop = run(one.strategy, busy)
    one.trials = list(trials)
    # the search doubles no further from there
    assert {32_768} < {seen.load for seen in trials if seen.short} and 65_536 not in {
        seen.load for seen in trials
    }
    assert all(seen.short for seen in slowest(trials) if GOAL.met(seen) is False)
    (found,), _ = KINDS["capacity"].judge(one, wanted)
    assert found.limit == "generator" and found.load is not None and 20_000 <= found.load <= 30_000


def test_a_load_is_not_offered_for_longer_than_sessions_last() -> None:
    def once() -> Strategy:
        yield TrialRequest(1000.0, 1.0)
        return "trials"

    for longest, seconds in ((20.0, [10.0, 20.0]), (19.9, [10.0])):
        tried, _ = run(slowing(GOAL, once(), 100.0, longest), Table(500))
        assert [one.seconds for one in tried] == seconds
    assert min(IDLE, units.seconds(phases.IDLE)) >= 2 * phases.LONGEST


def test_nothing_is_found_beyond_what_was_tried() -> None:
    one, found = searched_on(Table(5e6))
    assert (found.limit, found.load) == ("offered", one.space.most)
    # and of a table that is too small for the least
    one, found = searched_on(Table(500))
    assert (found.limit, found.load) == ("lowest", None)


def test_a_table_with_moods_has_an_interval() -> None:
    _, found = searched_on(Table(100_000, noise=0.01))
    low, high = found.interval
    assert low < 100_000 < high and (high - low) / high < 0.2


def axis_of(name: str, leg: str) -> Axis:
    made, _ = study.experiment(study.read(name), study.nat(None), Machine(machine(1, 2)))
    legs = legs_to_search(spec.load(made, name), study.names()[name].parent, several=True)
    return axis(next(one for one in legs if one.name == leg))


def groups(leg: LegSpec) -> dict[str, Any]:
    assert isinstance(leg.profile, dict)
    return {group["name"]: group for group in leg.profile["groups"]}


def ms(text: str) -> float:
    return float(text.removesuffix("ms")) / 1000


@pytest.mark.parametrize("leg", ["run-to-completion", "kernel"])
def test_each_session_is_opened_once_and_asked_for_once_after_all_are_open(leg: str) -> None:
    one = axis_of("rfc9693-capacity", leg)
    offered = KINDS["capacity"].leg(one, TrialRequest(60_000, 2.0), SearchRequest(goals=()))
    there = groups(offered)
    opened, found = there["open"], there["check"]
    for group in (opened, found):
        assert group["model"]["stream"] == {"echo": False, "count": 60_000, "rate": "30000.000000/s"}
    assert ms(found["frame"]["after"]) > ms(opened["frame"]["after"]) + 2.0
    assert isinstance(offered.profile, dict)
    phased = offered.profile["phases"]
    end = ms(phased["warmup"]) + ms(phased["measure"])
    assert offered.trial.measure == phased["measure"] and end > ms(found["frame"]["after"]) + 2.0
    # the same endpoints in the same order, from the other side
    who, port, to = (change["change"] for change in opened["frame"]["vary"])
    (back_port, back_to) = (change["change"] for change in found["frame"]["vary"])
    assert (port, to) == (back_port, back_to)
    assert [change["field"] for change in found["frame"]["vary"]] == [
        "udp.destination_port",
        "udp.source_port",
    ]
    subscribers, remotes = who["increment"]["count"], len(to["list"])
    assert port["increment"]["count"] == subscribers and remotes == len({*to["list"]})
    seen = {(i % subscribers, to["list"][i % remotes]) for i in range(60_000)}
    assert len(seen) == 60_000 and subscribers * remotes >= 400_000
    # what tells everybody the other's address is measured by nobody
    assert all(not group["frame"]["measured"] for name, group in there.items() if name.startswith("prime"))


def test_the_nat_has_the_room_that_is_looked_for_and_a_forward_for_each_subscriber() -> None:
    conntrack = (
        axis_of("rfc9693-capacity", "run-to-completion")
        .leg.duts["nat"]
        .options["graph"]["elements"]["conntrack"]
    )
    assert conntrack["sessions"] == 200_000 and len(conntrack["forwards"]) == 392
    # also of more subscribers than those of other studies have a flow each
    many = phases.room(study.nat(None), Flows(2_000_000), 2_000_000)
    assert len(many.conntrack["forwards"]) == 1959 and (many.most_subscribers or 0) >= 1959


@pytest.mark.parametrize("name", ["rfc9693-capacity", "rfc9693-teardown", "figure-7"])
def test_no_session_that_is_counted_ends_by_age(name: str) -> None:
    made, _ = study.experiment(study.read(name), study.nat(None), Machine(machine(1, 2)))
    graphs = [leg["duts"]["nat"]["options"].get("graph") for leg in made["legs"] if "duts" in leg]
    for graph in filter(None, graphs):
        said = graph["elements"]["conntrack"].get("timeouts", {}).get("udp")
        assert said == (None if name == "figure-7" else phases.IDLE)


# ---- tear-down


def cleared(part: PartSearch, *seen: tuple[float, float]) -> None:
    """Trials in which so many sessions were cleared in so many seconds."""
    for number, (sessions, seconds) in enumerate(seen, 1):
        part.trials.append(LoadTrial(part.space.most, 1.0, 10_000, 0, number=number))
        after = {SESSIONS: sessions, SECONDS: seconds}
        part.repetitions[number] = Repetition.model_construct(
            dut={"nat": DutReport(driver="graph", counters_after=after)}, validity=Validity()
        )


def test_a_tear_down_rate_is_sessions_over_time() -> None:
    one, wanted = part("rfc9693-teardown", "kernel-10k")
    asked, stop = run(one.strategy, lambda ask: LoadTrial(ask.load, ask.seconds, 1, 0))
    assert {trial.load for trial in asked} == {one.space.most} and len(asked) == wanted.repeat
    assert stop == "trials"
    # what was not opened is tried again, but not for ever
    lossy = [0.5, 0.0, 0.5, 0.0, 0.0, 0.0]
    again, _ = run(
        part("rfc9693-teardown", "kernel-10k")[0].strategy,
        lambda ask: LoadTrial(ask.load, ask.seconds, 10, round(10 * lossy.pop(0))),
    )
    assert (len(again), lossy) == (6, [])
    never, _ = run(
        part("rfc9693-teardown", "kernel-10k")[0].strategy,
        lambda ask: LoadTrial(ask.load, ask.seconds, 10, 5),
    )
    assert len(never) == 3 * wanted.repeat
    whole = one.space.most
    cleared(one, (whole, 0.01), (whole, 0.02), (whole / 2, 0.001), (whole, 0.01))
    (found,), figures = KINDS["teardown"].judge(one, wanted)
    assert found.load == pytest.approx(whole / 0.01 / 2 ** (1 / 3), rel=1e-6)
    assert found.interval[0] < found.load < found.interval[1] and found.trials == 3
    assert "1 trial left out" in found.notes[0]
    assert figures["teardown_time.max"] == 0.02
    none = replace(one, trials=[], repetitions={})
    assert KINDS["teardown"].judge(none, wanted) == ([], {})
    assert KINDS["teardown"].missing(one, wanted) == []


@pytest.mark.parametrize("there", [1.0, 0.5])
def test_a_tear_down_of_sessions_that_were_not_there_is_not_valid(there: float) -> None:
    asked = nat_study.StudyOptions(legs=("kernel-10k",))
    name = "rfc9693-teardown"
    search = nat_study.prepare(study.read(name), study.nat(None), asked, Machine(machine(1, 2))).search
    (one,) = search.parts
    cleared(one, *[(there * one.space.most, 0.01)] * 3)
    one.stop = "trials"
    one.legs = {trial.number: "x" for trial in one.trials}
    result = Result.model_construct(interrupted=False)
    search.conclude(result)
    assert result.search is not None and result.search.valid == (there == 1.0)
    said = f"{one.name}: in none of 3 trials that count were all sessions there to be cleared"
    assert (said in result.search.notes) == (there < 1.0)


def test_sessions_are_cleared_when_all_are_open() -> None:
    one = axis_of("rfc9693-teardown", "kernel-10k")
    kind = KINDS["teardown"]
    space, _ = kind.space(one, SearchRequest(goals=()))
    assert isinstance(space, Space)
    ask = TrialRequest(space.most, space.seconds)
    (action,) = kind.actions(one, ask)
    there, leg = (
        groups(kind.leg(one, ask, SearchRequest(goals=()))),
        kind.leg(one, ask, SearchRequest(goals=())),
    )
    assert "check" not in there
    opened = there["open"]
    length = opened["model"]["stream"]["count"] / 20_000
    assert action.dut == "nat" and action.after > ms(opened["frame"]["after"]) + length
    assert isinstance(leg.profile, dict)
    # while the trial still runs
    end = sum(ms(leg.profile["phases"][name]) for name in ("warmup", "measure", "drain"))
    assert action.after < end
    assert phases.most(leg.profile) == (round(space.most), 20_000)


def test_what_keeps_no_sessions_cannot_be_torn_down() -> None:
    assert {name for name, driver in DRIVERS.items() if issubclass(driver, KeepsSessions)} == {"kernel-nat"}
    place = DutSite("x", "127.0.0.1")
    nat = L2FWD | {"elements": L2FWD["elements"] | {"sessions": {"kind": "nat44"}}}
    assert keeper(DRIVERS["graph"](place, {"graph": nat})) is not None
    assert keeper(DRIVERS["graph"](place)) is None
    with pytest.raises(Error, match="no sessions"):
        tear_down(DRIVERS["reflector"](place))


def test_a_study_of_sessions_is_of_nats_behind_ports_of_the_kernel() -> None:
    good = study.read("rfc9693-capacity").model_dump(by_alias=True, exclude_none=True)
    legs = good["legs"]
    for change in (
        {"direction": "down"},
        {"sizes": "64"},
        {"legs": [{"name": "x", "dut": "l2fwd", "ports": "af_packet"}]},
        {"legs": [{"name": "x", "dut": "pipeline"}]},
        {"measures": "throughput"},
        {"measures": "teardown"},
        {"legs": [legs[0] | {"rate": "200/s"}]},
        {"legs": [legs[1] | {"sessions": 200_000}]},
    ):
        with pytest.raises(ValueError):
            study.Study.model_validate(good | change)
