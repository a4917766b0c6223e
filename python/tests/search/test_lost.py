"""A DUT that breaks during a search is found out; one that collapses under overload and recovers is measured."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from netdyno.core.result import Repetition, Result
from netdyno.core.wire import (
    CauseCount,
    Counts,
    FailureCount,
    GroupPoint,
    GroupResult,
    PhaseLengths,
    SeriesPoint,
)
from netdyno.experiment.measurer import Load, TrialOutcome
from netdyno.experiment.resume import EarlierRun
from netdyno.experiment.runner import ExperimentRun
from netdyno.experiment.spec import load
from netdyno.experiment.verdict import exit_code
from netdyno.experiment.view import NullView
from netdyno.search.bench import prepare
from netdyno.search.lost_dut import CHECKS, Watch, silent
from netdyno.search.request import SearchRequest
from netdyno.search.trial import SilentGroup, loss_goal, threshold_goal
from netdyno.system.interrupt import Interrupts

FRAMES: dict[str, Any] = {
    "name": "f",
    "transport": {"dpdk": {"ports": [{"name": "p", "device": "pair:x"}]}},
    "groups": [
        {
            "name": "x",
            "target": "udp://10.0.0.2",
            "model": {"stream": {"echo": True}},
            "frame": {"size": {"fixed": "64B"}, "rate": {"frames": "1000/s"}},
        }
    ],
}
WEB: dict[str, Any] = {
    "name": "w",
    "groups": [
        {
            "name": "web",
            "target": "http://10.0.0.2",
            "devices": 10,
            "model": {"http": {}},
            "load": {"open": {"rate": "1000/s"}},
        }
    ],
    "thresholds": [{"metric": "web.loss", "max": "0%"}],
}


class Server:
    """In place of a daemon and a DUT: it serves up to a capacity, and `broken` says from when on it does not."""

    def __init__(self, capacity: float = 600, cause: str = "") -> None:
        self.capacity, self.cause = capacity, cause
        self.breaks_at = 10**9
        """The trial in whose middle it breaks."""
        self.collapses, self.down_for = float("inf"), 0
        """Above which load it delivers nothing more, and in how many trials after that."""
        self.dead_sizes: tuple[str, ...] = ()
        self.asked: list[tuple[str, float]] = []
        self._down = 0

    def measure(self, asked: Load, seed: int) -> TrialOutcome:
        name = asked.variant.name
        offered = float(asked.variant.levels["load"])
        self.asked.append((name, offered))
        number = len(self.asked)
        seconds = float(str(asked.variant.leg.trial.measure).removesuffix("us")) / 1e6
        sent = max(1, round(offered * seconds))
        share = 1.0 if number < self.breaks_at else (0.5 if number == self.breaks_at else 0.0)
        if offered > self.collapses:
            self._down = self.down_for + 1
        if self._down or any(name.startswith(size) for size in self.dead_sizes):
            self._down, share = max(0, self._down - 1), 0.0
        came = round(min(sent, self.capacity * seconds) * share)
        profile = asked.variant.profile
        return TrialOutcome(
            made(profile["groups"][0]["name"], profile, sent, came, seconds, share, self.cause)
        )


def made(
    name: str, profile: dict[str, Any], sent: int, came: int, seconds: float, share: float, cause: str
) -> Repetition:
    """What a daemon would say: in a trial of share 0.5 all came in its first half."""
    counts = Counts(messages_intended=sent, messages_sent=sent, messages_delivered=came)
    errors = []
    if cause and came < sent:
        counts.failures = {"rejected": sent - came}
        one = CauseCount(cause=cause, count=sent - came)
        errors = [FailureCount(kind="rejected", count=sent - came, causes=[one])]
    points = []
    for i in range(10):
        part = came / (10 * share) if share and i < 10 * share else 0
        there = Counts(messages_sent=sent // 10 or 1, messages_delivered=round(part))
        points.append(
            SeriesPoint(
                t=(i + 1) * seconds / 10,
                dt=seconds / 10,
                phase="measure",
                groups={name: GroupPoint(counts=there)},
            )
        )
    group = GroupResult(
        name=name, protocol="http", target="http://10.0.0.2", measured=counts, total=counts, confirmed=True,
        loss=1 - came / sent, errors=errors,
    )  # fmt: skip
    return Repetition(
        run="r", groups=[group], phases=PhaseLengths(measure=seconds), steal=0.0, profile=profile, series=points,
        started="2026-01-01T12:00:00Z",
    )  # fmt: skip


def searched(
    tmp_path: Path, server: Server, kind: str = "throughput", what: str | None = "64", earlier: Any = None
) -> Result:
    web = kind == "rate"
    experiment = load({"name": "s", "legs": [{"name": "leg", "profile": WEB if web else FRAMES}]}, "s")
    goals = (threshold_goal(),) if web else (loss_goal("ndr", 0.0),)
    size = None if web else what or None
    wanted = SearchRequest(goals=goals, kind=kind, sizes=size, seconds=10.0, repeat=3, resolution=0.05)
    search, _ = prepare(wanted, experiment, tmp_path)
    return ExperimentRun(
        experiment=experiment, base=tmp_path, runs=tmp_path / "runs", live=NullView(), interrupts=Interrupts(),
        schedule=search, measurer=server, earlier=earlier,
    ).run()[0]  # fmt: skip


KINDS = ("throughput", "loss", "back-to-back", "latency", "recovery", "rate")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("breaks_at", [2, 3, 5])
def test_a_dut_that_breaks_is_lost_whatever_is_searched(tmp_path: Path, kind: str, breaks_at: int) -> None:
    server = Server(cause="500")
    server.breaks_at = breaks_at
    if kind == "loss":
        server.capacity = 100
    result = searched(tmp_path, server, kind)
    assert result.error is not None and result.error["code"] == "ND-91-29", result.error
    assert exit_code(result) == 91
    said = result.error["what"]
    assert "rejected (500 × " in said and f"(trial {breaks_at}" in said
    # the trial in which it broke was half an answer: 5 of its 10 seconds
    # a search for what is then held has trials of a quarter of the length
    short = kind in ("latency", "recovery")
    assert ("12:00:01 UTC, 1.2 s" if short else "12:00:05 UTC, 5.0 s after the start") in said
    assert "the server failed" in str(result.error["fix"]).lower()
    assert len(server.asked) == breaks_at + CHECKS, "it is found out at once"
    assert all("check" in name for name, _ in server.asked[breaks_at:])
    assert result.search is not None and not result.search.valid
    (part,) = result.search.parts
    assert len(part.checks) == CHECKS and not part.trials[-1].counts
    assert all(one.limit == "lost" for one in part.findings)


def test_one_that_breaks_between_trials_has_no_time_but_before_the_next(tmp_path: Path) -> None:
    server = Server()
    result = searched(tmp_path, server)
    whole = len(server.asked)
    assert result.error is None and whole > 4
    server = Server()
    answer = server.measure

    def measure(asked: Load, seed: int) -> TrialOutcome:
        outcome = answer(asked, seed)
        if len(server.asked) < 4:
            return outcome
        assert outcome.repetition is not None
        sent = outcome.repetition.groups[0].measured.messages_sent
        return TrialOutcome(made("x", asked.variant.profile, sent, 0, 10.0, 0.0, ""))

    server.measure = measure  # type: ignore[method-assign]
    result = searched(tmp_path, server)
    assert result.error is not None and "before 12:00:00 UTC (trial 4" in result.error["what"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("down_for", [0, 1, 2])
def test_one_that_collapses_and_recovers_has_a_capacity(tmp_path: Path, kind: str, down_for: int) -> None:
    server = Server(capacity=10**6)
    server.collapses, server.down_for = 600, down_for
    result = searched(tmp_path, server, kind)
    assert result.error is None and exit_code(result) == 0, result.error
    assert result.search is not None and result.search.valid
    (part,) = result.search.parts
    assert part.checks, "its silence was looked into"
    if part.findings:
        assert part.findings[0].limit == "dut"
        assert part.findings[0].load == pytest.approx(600, rel=0.06)
        assert len(part.checks) < 3 * len(part.trials)


@pytest.mark.parametrize("kind", KINDS)
def test_one_that_never_served_is_told_with_the_cause(tmp_path: Path, kind: str) -> None:
    server = Server(cause="404")
    server.breaks_at = 0
    result = searched(tmp_path, server, kind)
    assert result.error is not None and result.error["code"] == "ND-91-30"
    assert "rejected (404 × " in result.error["what"] and exit_code(result) == 91
    assert "path" in str(result.error["fix"])
    assert len(server.asked) == 1 + CHECKS
    # the checks are light
    assert server.asked[-1][1] <= 0.06 * server.asked[0][1]


def test_a_frame_size_that_never_passes_is_no_lost_dut(tmp_path: Path) -> None:
    server = Server()
    server.dead_sizes = ("1518B",)
    result = searched(tmp_path, server, what="64,1518,128")
    assert result.error is None and result.search is not None
    found = {part.name: part.findings[0] for part in result.search.parts}
    assert found["1518B"].load is None and found["1518B"].limit == "lowest"
    assert found["64B"].load == found["128B"].load and found["64B"].limit == "dut"
    # but one that dies while it is looked at is lost
    server = Server()
    server.dead_sizes, server.breaks_at = ("1518B",), len(searched_trials(tmp_path)) + 1
    result = searched(tmp_path, server, what="64,1518,128")
    assert result.error is not None and result.error["code"] == "ND-91-29"


def searched_trials(tmp_path: Path) -> list[tuple[str, float]]:
    server = Server()
    searched(tmp_path, server)
    return server.asked


def test_a_resumed_search_measures_again_what_the_broken_dut_did(tmp_path: Path) -> None:
    server = Server()
    server.breaks_at = 4
    lost = searched(tmp_path, server)
    assert lost.error is not None
    again = Server()
    result = searched(tmp_path, again, earlier=EarlierRun(lost, lost.environment))
    assert result.error is None and exit_code(result) == 0
    assert sum(one.taken_over for leg in result.legs for one in leg.repetitions) == 3
    assert result.search is not None and result.search.parts[0].findings[0].load == pytest.approx(
        600, rel=0.06
    )


# ---- what is silence


def trial(delivered: list[int], sent: int = 100, **changes: Any) -> Repetition:
    """A second each."""
    points = [
        SeriesPoint(
            t=i + 1.0, dt=1.0, phase="measure",
            groups={"g": GroupPoint(counts=Counts(messages_sent=sent, messages_delivered=n), **changes)},
        )
        for i, n in enumerate(delivered)
    ]  # fmt: skip
    counts = Counts(messages_sent=sent * len(delivered) or 1, messages_delivered=sum(delivered))
    if not sent:
        counts.messages_sent = 5
    group = GroupResult(name="g", measured=counts, total=counts, confirmed=True)
    return Repetition(run="r", groups=[group], series=points)


@pytest.mark.parametrize(
    ("delivered", "since"),
    [
        ([100] * 8, None),
        ([0] * 6 + [1, 1], None),
        ([100] * 6 + [0, 0], 6.0),
        ([100] * 7 + [0], None),
        ([100, 0, 0, 0, 0, 0, 0, 0], 1.0),
        ([100] * 3 + [0], 3.0),
    ],
)
def test_a_dut_is_silent_where_nothing_came_in_the_last_quarter(
    delivered: list[int], since: float | None
) -> None:
    expected = (SilentGroup("g", since),) if since is not None else ()
    assert silent(trial(delivered), {"g"}) == expected
    assert silent(trial(delivered), {"g"}, tail=False) == ()
    assert silent(trial(delivered), set()) == ()


def test_it_is_not_where_nothing_was_asked_any_more() -> None:
    assert silent(trial([5, 0, 0, 0], sent=0), {"g"}) == ()
    # of which devices waited, though
    assert silent(trial([5, 0, 0, 0], sent=0, waiting=3), {"g"}) == (SilentGroup("g", 1.0),)
    assert silent(trial([0, 0, 0, 0]), {"g"}) == (SilentGroup("g"),)
    refused = Counts(failures={"refused": 7})
    group = GroupResult(name="g", measured=refused, total=refused, confirmed=True)
    assert silent(Repetition(run="r", groups=[group]), {"g"}) == (SilentGroup("g"),)
    # the generator itself had no memory for what it was to send: the device under test was not asked
    own = Counts(failures={"local": 7})
    group = GroupResult(name="g", measured=own, total=own, confirmed=False)
    assert silent(Repetition(run="r", groups=[group]), {"g"}) == ()
    nothing = GroupResult(name="g", measured=Counts(), total=Counts(), confirmed=True)
    assert silent(Repetition(run="r", groups=[nothing]), {"g"}) == ()


def test_a_check_that_asks_nothing_is_no_evidence() -> None:
    from netdyno.search.load import axis
    from netdyno.search.request import PartSearch
    from netdyno.search.trial import LoadTrial, Space, TrialRequest

    leg = load({"name": "s", "legs": [{"name": "leg", "profile": WEB}]}, "s").legs[0]
    part = PartSearch("p", axis(leg), Space(1000.0), "flows/s", iter(()), 1)  # type: ignore[arg-type]
    watch, dead = Watch(), LoadTrial(1000.0, 10.0, 100, 100, silent=(SilentGroup("web"),), answered=False)
    assert watch.see(part, TrialRequest(1000.0, 10.0), dead)
    empty = replace(dead, silent=(), sent=0, lost=0)
    verdicts = []
    while (due := watch.check()) is not None:
        verdicts.append(watch.checked(replace(empty, load=due[1].load)))
    assert verdicts == ["again"] * (CHECKS - 1) + ["answers"]


class Warm(Server):
    """It answers in the warm-up of each trial, and never after."""

    def measure(self, asked: Load, seed: int) -> TrialOutcome:
        outcome = super().measure(asked, seed)
        assert outcome.repetition is not None
        outcome.repetition.groups[0].total = Counts(messages_sent=900, messages_delivered=300)
        return outcome


@pytest.mark.parametrize(("server", "code"), [(Warm, "ND-91-29"), (Server, "ND-91-30")])
def test_an_answer_in_the_warm_up_is_one(tmp_path: Path, server: type[Server], code: str) -> None:
    broken = server()
    broken.breaks_at = 0
    result = searched(tmp_path, broken, "rate", None)
    assert result.error is not None
    assert result.error["code"] == code
