"""Advice from a short run: cycles from counters, kept and read again, and the proposal beside core sets."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from netdyno.core.result import Leg, Repetition, Result
from netdyno.core.search import SearchFinding, SearchPart, SearchReport
from netdyno.core.wire import PhaseLengths
from netdyno.errors import Error
from netdyno.nat import advice, study
from netdyno.nat.advice import Cycles, Placement
from netdyno.nat.cores import STAGES
from netdyno.nat.search import advice as nat_advice
from netdyno.nat.study import Machine

from .shared import machine

NAMES = {
    "rx": "inside.rx",
    "validity": "in-validity",
    "nat": "nat",
    "conntrack": "conntrack",
    "tx": "outside.tx",
}
COSTS = {"rx": 40.0, "validity": 20.0, "nat": 30.0, "conntrack": 90.0, "tx": 20.0}


def element(name: str, cycles: float, packets: int, batch: float = 100.0) -> dict[str, Any]:
    return {
        "name": name, "cycles_per_packet": cycles, "packets_in": packets, "packets_out": packets,
        "packets_per_batch": batch, "drops": {}, "worker": 0,
    }  # fmt: skip


def trial(more: float = 0.0, packets: int = 1000, batch: float = 100.0) -> Repetition:
    elements = [element(NAMES[stage], COSTS[stage] + more, packets, batch) for stage in STAGES]
    # what few packets cost is no part of a packet's way, nor what the ends do
    elements += [
        element("in-host", 9000.0, 1),
        element("generator", 55.0, packets),
        element("access.tx", 5.0, packets),
    ]
    phases = PhaseLengths(warmup=0.5, measure=0.5, drain=0.0)
    return Repetition(run="r", groups=[], phases=phases, steal=0.0, profile={}, elements=elements)


def result(**legs: list[Repetition]) -> Result:
    listed = [
        Leg(name=name.replace("_", "-"), transport="dpdk", repetitions=made) for name, made in legs.items()
    ]
    return Result(id="r", name="n", started="2026-01-01T00:00:00Z", legs=listed)


def test_cycles_are_those_of_the_least_disturbed_trial() -> None:
    legs = result(run_to_completion=[trial(50.0), trial(), trial(9.0)], pipeline=[trial(70.0), trial(8.0)])
    cycles, notes = nat_advice.cycles_of_run(legs, 2, "here")
    assert cycles.stages == pytest.approx(COSTS | {"tx": 20.0 + 9.0})
    assert cycles.hand_off == pytest.approx(8.0 * 5 / 2)
    assert cycles.ends == pytest.approx(60.0)
    # 209 cycles for each of 1000 packets in a second
    assert cycles.budget == pytest.approx(209_000)
    assert notes == []


def test_a_nat_that_had_time_left_does_not_tell_what_a_core_has(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nat_advice, "clock", lambda: 3e9)
    cycles, notes = nat_advice.cycles_of_run(result(run_to_completion=[trial(batch=2.0)]), 0, "here")
    assert (cycles.budget, cycles.hand_off) == (3e9, 0.0)
    assert "less to do" in notes[0]


def test_a_run_in_which_nothing_passed_is_none() -> None:
    for made in (result(), result(run_to_completion=[trial(packets=0)])):
        with pytest.raises(Error) as nothing:
            nat_advice.cycles_of_run(made, 0, "here")
        assert nothing.value.code == "ND-91-25"


def test_cycles_are_kept_and_read_again(tmp_path: Path) -> None:
    made = Cycles(COSTS, 12.5, 2e9, 60.0)
    file = tmp_path / "cycles.json"
    nat_advice.save_cycles(made, file)
    assert nat_advice.load_cycles(file) == made
    good = json.loads(file.read_text())
    for change in (
        {"format": "other/1"}, {"stages": {"rx": 1}}, {"hand_off": -1}, {"budget": 0}, {"ends": "many"},
        {"stages": dict.fromkeys(STAGES, 0)}, {"hand_off": float("nan")}, None,
    ):  # fmt: skip
        file.write_text(json.dumps(good | change) if change else "x")
        with pytest.raises(Error) as wrong:
            nat_advice.load_cycles(file)
        assert wrong.value.exit_code == 104


def test_the_proposal_is_measured_beside_every_core_set_once() -> None:
    cycles = Cycles(COSTS, 20.0, 2e9, 60.0)
    for there in (machine(1, 2), machine(2, 8, 2)):
        best = advice.ranked(cycles, len(there.in_order()), spread=False)[0].placement
        made, planned = nat_advice.plan(best, cycles, study.nat(None), Machine(there))
        assert planned[0].leg.name == nat_advice.PROPOSED
        names = [one.leg.name.replace("-", "+") for one in planned] + [
            n.replace("-", "+") for one in planned for n in one.folded
        ]
        wanted = {name.replace("-", "+") for name in (nat_advice.PROPOSED, *study.cores.named())}
        assert sorted(names) == sorted(wanted), "each once"
        plain, _ = study.experiment(made, study.nat(None), Machine(there))
        assert [leg["name"] for leg in plain["legs"]] == [one.leg.name for one in planned]


def test_the_ends_count_where_they_share_a_core() -> None:
    cycles = Cycles(COSTS, 20.0, 2e9, 60.0)
    best = advice.ranked(cycles, 2, spread=False)[0].placement
    _, shared = nat_advice.plan(best, cycles, study.nat(None), Machine(machine(1, 2)))
    assert sum(shared[0].predicted.load.values()) == pytest.approx(200 + 2 * 10 + 60)
    _, apart = nat_advice.plan(best, cycles, study.nat(None), Machine(machine(1, 4)))
    assert sum(apart[0].predicted.load.values()) == pytest.approx(200 + 2 * 10)


@pytest.mark.parametrize(
    ("cores", "lanes", "more"),
    [(2, 2, {"first": 0.0, "others": 60.0}), (4, 3, {"first": 0.0, "others": 0.0})],
)
def test_of_several_workers_the_one_beside_the_ends_bears_them(
    cores: int, lanes: int, more: dict[str, float]
) -> None:
    cycles = Cycles(COSTS, 20.0, 2e9, 60.0)
    best = Placement((STAGES,), lanes=lanes, to_completion=True, spread=True)
    _, planned = nat_advice.plan(best, cycles, study.nat(None), Machine(machine(1, cores)))
    proposed = planned[0].predicted
    assert not proposed.placement.spread, "the lab's ports have one queue"
    plain = advice.predict(proposed.placement, cycles)
    assert {name: proposed.load[name] - plain.load[name] for name in plain.load} == more


def test_a_run_that_ended_early_says_why() -> None:
    made = result()
    nat_advice.refuse(made)
    made.interrupted = True
    with pytest.raises(Error) as cut:
        nat_advice.refuse(made)
    assert cut.value.exit_code == 105
    made.error = {"code": "ND-92-26", "what": "no route"}
    with pytest.raises(Error) as failed:
        nat_advice.refuse(made)
    assert failed.value.code == "ND-92-26"


@pytest.mark.parametrize(
    ("limit", "stop", "load", "error"),
    [
        ("dut", "resolution", 0.5, 1.0),
        ("dut", "trials", 0.5, 1.0),
        ("generator", "resolution", 0.5, None),
        ("offered", "resolution", 0.5, None),
        ("lowest", "resolution", None, None),
        ("dut", "disturbed", 0.5, None),
    ],
)
def test_an_error_is_a_share_of_what_the_nat_was_found_to_carry(
    limit: Any, stop: str, load: float | None, error: float | None
) -> None:
    cycles = Cycles(COSTS, 20.0, 2e9, 60.0)
    best = advice.ranked(cycles, 4, spread=False)[0].placement
    _, planned = nat_advice.plan(best, cycles, study.nat(None), Machine(machine(1, 4)))
    rate = load and planned[0].predicted.rate * load
    found = SearchFinding(goal="ndr", load=rate, limit=limit, stop=stop, trials=3)
    part = SearchPart(name="proposed,64B", leg="proposed", size="64B", most=1e9, findings=[found])
    made = result()
    made.search = SearchReport(
        kind="throughput", strategy="binary", unit="frames/s", resolution=0.1, confidence=0.9, seconds=1.0,
        planned=1, valid=True, parts=[part],
    )  # fmt: skip
    first, *others = nat_advice.check_predictions(made, planned)
    assert first.load == (None if stop == "disturbed" else rate)
    assert first.error == (pytest.approx(error) if error else None)
    assert all(row.load is row.limit is row.error is None for row in others)


@pytest.mark.parametrize(
    ("rate", "line"), [(1e6, "10Gbit/s"), (11.9e6, "10Gbit/s"), (12e6, "25Gbit/s"), (1e12, "400Gbit/s")]
)
def test_a_link_leaves_room_above_the_prediction(rate: float, line: str) -> None:
    assert nat_advice.slowest_link(rate) == line
