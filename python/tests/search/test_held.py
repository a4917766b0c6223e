"""Latency at shares of what was found: which trials it takes, and what the result, terminal and page have of it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from netdyno import quantities
from netdyno.cli import summary
from netdyno.core.result import Result
from netdyno.core.wire import Counts, Distribution, GroupResult, Reason, Validity
from netdyno.experiment.measurer import Load, TrialOutcome
from netdyno.experiment.runner import ExperimentRun
from netdyno.experiment.spec import load
from netdyno.experiment.verdict import exit_code
from netdyno.experiment.view import NullView
from netdyno.report import latency_at_load as page
from netdyno.report.render import render
from netdyno.search.bench import prepare
from netdyno.search.kind import KINDS
from netdyno.search.latency_at_load import at_shares, shape
from netdyno.search.load import axis
from netdyno.search.observe import observed
from netdyno.search.request import PartSearch, SearchRequest
from netdyno.search.simulated import SimulatedDut
from netdyno.search.trial import LoadTrial, TrialRequest, loss_goal, run
from netdyno.system.interrupt import Interrupts

from .test_schedule import PROFILE, repetition

CAPACITY = {"fast": 80_000, "slow": 20_000}
SHARES = (0.5, 0.9)
WANTED = SearchRequest(goals=(loss_goal("ndr", 0.0),), seconds=1.0, repeat=2, resolution=0.01, shares=SHARES)


def test_shares_are_held_in_turns_after_the_search() -> None:
    experiment = load({"name": "one", "legs": [{"name": "x", "profile": PROFILE}]}, "one")
    one = axis(experiment.legs[0].model_copy(update={"profile": PROFILE}))
    kind = KINDS["latency"]
    space, _ = kind.space(one, WANTED)
    trials, why = run(kind.strategy(one, space, WANTED, {}), SimulatedDut(61_234))
    *search, a, b, c, d = trials
    assert why == "resolution"
    assert {one.shape for one in search} == {""} and {one.seconds for one in search} == {0.25}
    assert [one.shape for one in (a, b, c, d)] == [shape(0.5), shape(0.9)] * 2
    found = a.load / 0.5
    assert found == pytest.approx(61_234, rel=0.011) and found <= 61_234
    assert b.load == pytest.approx(0.9 * found) and {one.seconds for one in (a, b, c, d)} == {1.0}


def test_a_dut_that_carries_nothing_is_not_held() -> None:
    experiment = load({"name": "one", "legs": [{"name": "x", "profile": PROFILE}]}, "one")
    one = axis(experiment.legs[0].model_copy(update={"profile": PROFILE}))
    space, _ = KINDS["latency"].space(one, WANTED)
    trials, _ = run(KINDS["latency"].strategy(one, space, WANTED, {}), SimulatedDut(0.0))
    assert {one.shape for one in trials} == {""}


def test_what_does_not_count_is_in_no_mean() -> None:
    def at(p50: float, lost: int, **more: object) -> LoadTrial:
        figures = {"x.one_way.p50": p50, "x.one_way.max": 10 * p50}
        return LoadTrial(500.0, 1.0, 1000, lost, figures=figures, shape=shape(0.5), **more)  # type: ignore[arg-type]

    (one,) = at_shares(
        [at(10.0, 0), at(30.0, 10), at(900.0, 0, disturbed="steal"), at(900.0, 0, short=True)], SHARES
    )
    assert (one.share, one.load, one.trials, one.loss) == (0.5, 500.0, 2, 0.005)
    assert one.delays == {"x.one_way": {"p50": 20.0, "max": 200.0}}


def test_delays_that_are_mostly_our_own_lateness_are_told_from_the_dut_s() -> None:
    def at(late: float, *, timed: bool) -> LoadTrial:
        delay = Distribution(
            count=5000, min=1.0, mean=60.0, p50=50.0, p90=80.0, p99=100.0, p999=1000.0, max=2000.0
        )
        # late most of the time, or now and then
        own = Distribution(count=5000, mean=late, p50=late, p90=15.0, p99=20.0, p999=900.0, max=900.0)
        counts = Counts(messages_intended=5000, messages_sent=5000, messages_delivered=5000)
        group = GroupResult(
            name="x", protocol="stream", measured=counts, total=counts, loss=0.0, delays={"one_way": delay},
            lateness=own,
        )  # fmt: skip
        ask = TrialRequest(500.0, 1.0, shape(0.5))
        return observed(ask, repetition(5000, 0, profile=PROFILE, groups=[group]), PROFILE, 1, timed=timed)

    # a search asks what is lost; who asks for delays is told nothing by a generator that was late as a rule
    assert at(45.0, timed=False).disturbed == ""
    assert at(45.0, timed=True).disturbed == "generator lateness is 90% of the x.one_way median"
    somewhat, now_and_then = at(20.0, timed=True), at(1.0, timed=True)
    assert (somewhat.disturbed, now_and_then.disturbed) == ("", "")
    (one,) = at_shares([at(45.0, timed=True), somewhat, now_and_then], SHARES)
    assert (one.trials, one.late) == (2, {"x.one_way": {"p50": 0.4, "p999": 0.9}})


def test_a_share_of_which_no_trial_counted_is_told() -> None:
    experiment = load({"name": "one", "legs": [{"name": "x", "profile": PROFILE}]}, "one")
    one = axis(experiment.legs[0].model_copy(update={"profile": PROFILE}))
    kind = KINDS["latency"]
    space, unit = kind.space(one, WANTED)
    part = PartSearch("p", one, space, unit, kind.strategy(one, space, WANTED, {}), 1)

    def trial(share: float, **more: object) -> LoadTrial:
        return LoadTrial(500.0, 1.0, 1000, 0, shape=shape(share), **more)  # type: ignore[arg-type]

    # what was never begun is told by the search itself
    part.trials = [LoadTrial(500.0, 1.0, 1000, 0)]
    assert kind.missing(part, WANTED) == []
    part.trials += [trial(0.5), trial(0.9, disturbed="steal"), trial(0.9, short=True)]
    assert kind.missing(part, WANTED) == ["no trial at 0.9 of the load found counted"]
    part.trials += [trial(0.9)]
    assert kind.missing(part, WANTED) == []


class OfferedLess:
    """A generator that cannot offer any load."""

    def measure(self, asked: Load, seed: int) -> TrialOutcome:
        reason = Reason(code="ND-90-01", what="less was offered")
        validity = Validity(valid=False, reasons=[reason])
        return TrialOutcome(repetition(1000, 0, profile=asked.variant.profile, validity=validity))


@pytest.mark.parametrize("kind", ["latency", "recovery"])
def test_a_load_that_was_given_and_never_offered_is_no_result(kind: str, tmp_path: Path) -> None:
    experiment = load({"name": "one", "legs": [{"name": "x", "profile": PROFILE}]}, "one")
    wanted = SearchRequest(goals=(loss_goal("ndr", 0.0),), seconds=1.0, repeat=2, resolution=0.01, at=0.3)
    search, _ = prepare(replace(wanted, kind=kind, sizes="64"), experiment, tmp_path)
    result, _ = ExperimentRun(
        experiment=experiment, base=tmp_path, runs=tmp_path / "runs", live=NullView(), interrupts=Interrupts(),
        schedule=search, measurer=OfferedLess(),
    ).run()  # fmt: skip
    assert result.search is not None and not result.search.valid
    assert "64B: no trial at the load that is held counted" in result.search.notes
    assert exit_code(result) == 90
    assert {reason.code for reason in result.reasons} == {"ND-90-01"}


class WithDelays:
    """Each leg has a capacity, and delays that grow with the load."""

    def measure(self, asked: Load, seed: int) -> TrialOutcome:
        profile = asked.variant.profile
        sent = round(float(profile["groups"][0]["frame"]["rate"]["frames"].removesuffix("/s")))
        got = min(sent, CAPACITY[asked.variant.name.partition(",")[0]])
        counts = Counts(messages_intended=sent, messages_sent=sent, messages_delivered=got)
        delay = Distribution(
            count=got, min=1.0, mean=sent, p50=sent, p99=2.0 * sent, p999=3.0 * sent, max=4.0 * sent
        )
        group = GroupResult(
            name="x", protocol="stream", measured=counts, total=counts, loss=1 - got / sent, delays={"one_way": delay}
        )  # fmt: skip
        return TrialOutcome(repetition(sent, sent - got, profile=profile, groups=[group]))


@pytest.fixture
def searched(tmp_path: Path) -> tuple[Result, Path]:
    legs = [{"name": name, "profile": PROFILE} for name in CAPACITY]
    experiment = load({"name": "two", "legs": legs}, "two")
    search, _ = prepare(replace(WANTED, kind="latency", sizes="64"), experiment, tmp_path)
    return ExperimentRun(
        experiment=experiment, base=tmp_path, runs=tmp_path / "runs", live=NullView(), interrupts=Interrupts(),
        schedule=search, measurer=WithDelays(),
    ).run()  # fmt: skip


def test_each_leg_is_held_at_shares_of_its_own_load(searched: tuple[Result, Path]) -> None:
    result, _ = searched
    assert result.search is not None and result.search.kind == "latency" and result.search.valid
    for part in result.search.parts:
        found = part.findings[0].load
        assert found == pytest.approx(CAPACITY[part.leg], rel=0.02)
        assert [(one.share, one.trials, one.loss) for one in part.held] == [(0.5, 2, 0.0), (0.9, 2, 0.0)]
        for one in part.held:
            assert one.load == pytest.approx(one.share * found)
            assert one.delays["x.one_way"]["p50"] == pytest.approx(one.load, abs=1)
        assert part.figures == {}


def test_terminal_and_page_have_a_row_for_each(
    searched: tuple[Result, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    result, folder = searched
    assert result.search is not None
    summary.show(result, folder)
    shown = capsys.readouterr().out
    assert "latency at shares of what was found" in shown
    (line,) = [one for one in shown.splitlines() if one.startswith("slow,64B") and "50%" in one]
    median = result.search.parts[1].held[0].delays["x.one_way"]["p50"]
    assert "x.one_way" in line and quantities.delay(median) in line
    table = page.table(result.search, "/s")
    assert [(row[0].sort, row[1].sort) for row in table.rows] == [
        ("fast,64B", 0.5), ("fast,64B", 0.9), ("slow,64B", 0.5), ("slow,64B", 0.9),
    ]  # fmt: skip
    plot = page.plot(result.search)
    assert plot is not None
    (view,) = plot["views"]
    assert view["names"] == ["fast", "slow"] and len(view["lines"]) == 4
    assert "Latency at shares of what was found" in render(result)
