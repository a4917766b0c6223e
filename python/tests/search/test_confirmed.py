"""A rate that a search found is confirmed over many flows, and told apart from the tester's own limit."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from netdyno.core.search import SearchFinding
from netdyno.experiment.spec import LegSpec
from netdyno.search import load, trial
from netdyno.search.confirmed import confirmation, confirmed
from netdyno.search.kind.throughput import Rate
from netdyno.search.load import Axis
from netdyno.search.request import Baseline, PartSearch, SearchRequest
from netdyno.search.trial import Goal, LoadTrial, Space, Strategy, TrialRequest
from netdyno.sip import profile as sip
from netdyno.sip import uri

GOAL = Goal("thresholds", lambda seen: not seen.broken)
SPACE = Space(1000.0, 0.02, 10.0)


def found(load: float) -> Strategy:
    """A search of one trial that passes there and one that fails above."""
    yield TrialRequest(load, SPACE.seconds)
    yield TrialRequest(load * 1.1, SPACE.seconds)
    return "resolution"


def dut(bears: Callable[[TrialRequest], bool]) -> Callable[[TrialRequest], LoadTrial]:
    return lambda ask: LoadTrial(
        ask.load, ask.seconds, round(ask.load * ask.seconds), 0, () if bears(ask) else ("ser",)
    )


def test_the_last_trial_has_all_flows() -> None:
    seen, why = trial.run(confirmed(GOAL, SPACE, found(800.0), 50_000), dut(lambda ask: ask.load <= 800))
    (last,) = seen[2:]
    assert (last.load, why) == (800.0, "resolution")
    assert 50_000 < last.sent < 51_000, "arrivals are random, and none of the flows may be missing"
    assert confirmation(GOAL, seen, 800.0, 50_000) is seen[2]
    assert confirmation(GOAL, seen[:2], 800.0, 50_000) is None, "10 s are no 50,000 flows"


def test_a_rate_that_does_not_last_is_lowered_until_one_does() -> None:
    slow = dut(lambda ask: ask.load <= (800 if ask.seconds <= 10 else 700))
    seen, why = trial.run(confirmed(GOAL, SPACE, found(800.0), 50_000), slow)
    long = [one for one in seen if one.seconds > 10]
    assert why == "resolution" and [bool(one.broken) for one in long] == [True] * 4 + [False], long
    assert long[-1].load == pytest.approx(800 * 0.96**4, rel=0.01)
    assert confirmation(GOAL, seen, long[-1].load, 50_000) is long[-1]


def test_one_that_never_lasts_is_not_confirmed() -> None:
    seen, why = trial.run(confirmed(GOAL, SPACE, found(800.0), 50_000), dut(lambda ask: ask.seconds <= 10))
    assert why == "trials" and len(seen) == 2 + 8
    assert all(confirmation(GOAL, seen, one.load, 50_000) is None for one in seen)


def test_nothing_is_confirmed_where_nothing_was_found() -> None:
    seen, _ = trial.run(confirmed(GOAL, SPACE, found(800.0), 50_000), dut(lambda ask: False))
    assert len(seen) == 2


def test_the_rate_of_calls_is_their_callers() -> None:
    """Callees who register and wait are the same at any load."""
    server = uri.parse("sip:192.0.2.1")
    profile = sip.call(sip.Options(server=server, rate=40.0, hold=0.0))
    leg = LegSpec.model_validate({"name": "calls", "profile": profile})
    axis = load.axis(leg)
    assert (axis.unit, axis.most) == ("flows/s", 40.0)
    assert axis.at(10.0, 5.0).trial.load == 0.25


def judged(base: Baseline, load: float) -> tuple[str, str, float]:
    """Limit, notes and baseline of a rate that nothing above met, with its confirmation."""
    trials = [
        LoadTrial(load, 10.0, 100, 0),
        LoadTrial(load * 1.01, 10.0, 100, 0, ("ser",)),
        LoadTrial(load, max(10.0, 1000 / load), 1000, 0),
    ]
    one = finding(base, load, trials)
    return one.limit, "; ".join(one.notes), base.load


def finding(base: Baseline | None, load: float, trials: list[LoadTrial]) -> SearchFinding:
    """What is found of a rate by these trials, confirmed over 1,000 flows."""
    request = SearchRequest((GOAL,), "rate", confirm=1000.0, baseline=base)
    part = PartSearch(
        "calls",
        Axis(LegSpec.model_validate({"name": "calls", "profile": {}}), "flows/s", 1000.0),
        SPACE,
        "flows/s",
        found(load),
        3,
        stop="resolution",
    )
    part.trials = trials
    (one,), figures = Rate().judge(part, request)
    assert figures == ({"baseline_rate": base.load} if base else {})
    return one


def test_a_rate_at_the_baseline_is_the_testers() -> None:
    limit, notes, rate = judged(Baseline(500.0, open=False), 490.0)
    assert (limit, rate) == ("generator", 500.0) and "98% of it here; the tester is the limit" in notes, notes
    limit, notes, _ = judged(Baseline(500.0, open=False), 200.0)
    assert limit == "dut" and "40% of it here" in notes and "the tester" not in notes, notes
    limit, notes, _ = judged(Baseline(500.0, open=True), 490.0)
    assert limit == "dut" and "at least 500" in notes and "the tester" not in notes, notes


def test_a_result_says_that_it_was_confirmed() -> None:
    _, notes, _ = judged(Baseline(500.0, open=False), 50.0)
    assert "confirmed: 1,000 flows in 20.0 s, none of which failed" in notes, notes


def test_what_was_confirmed_is_what_is_told() -> None:
    # 490 passed a short trial, and 480 has all flows
    short, failed, held = LoadTrial(490.0, 1.0, 490, 0), LoadTrial(500.0, 2.5, 1000, 0, ("ser",)), 480.0
    one = finding(None, held, [short, failed, LoadTrial(held, 2.5, 1200, 0)])
    assert (one.load, one.limit) == (held, "dut"), one
    assert any("confirmed: 1,200 flows" in note for note in one.notes), one.notes
    # the tester could not offer so many of 500
    own = LoadTrial(500.0, 2.5, 700, 0, short=True)
    one = finding(None, held, [LoadTrial(500.0, 1.0, 500, 0), own, LoadTrial(held, 2.5, 1200, 0)])
    assert (one.load, one.limit) == (held, "generator"), one
