"""Thresholds while a trial runs: percentiles against the whole distribution, and counts that may still change."""

from __future__ import annotations

import random
from typing import Any

import pytest

from netdyno.core.wire import SeriesPoint
from netdyno.stats.so_far import ThresholdsSoFar

BOUNDS = [step * 10**decade for decade in range(3, 10) for step in (1, 2.5, 5)]


def told(values: list[int]) -> dict[str, Any]:
    """Delays of an interval as a point of a series has them."""
    ordered = sorted(values)

    def at(share: float) -> int:
        return ordered[min(len(ordered) - 1, int(share * len(ordered)))]

    edges = [0.0, *BOUNDS]
    counts = [(int(b), sum(a < x <= b for x in ordered)) for a, b in zip(edges, BOUNDS, strict=False)]
    return {
        "count": len(ordered), "min": ordered[0], "mean": sum(ordered) / len(ordered), "max": ordered[-1],
        "p50": at(0.5), "p90": at(0.9), "p95": at(0.95), "p99": at(0.99), "p999": at(0.999),
        "buckets": [one for one in counts if one[1]],
    }  # fmt: skip


def point(t: float, phase: str = "measure", delays: list[int] | None = None, **counts: Any) -> SeriesPoint:
    group: dict[str, Any] = {"counts": counts}
    if delays:
        group["delays"] = {"response": told(delays)}
    return SeriesPoint.model_validate({"t": t, "dt": 1.0, "phase": phase, "groups": {"web": group}})


def judged(threshold: dict[str, Any], *points: SeriesPoint) -> tuple[str, float | None]:
    so_far = ThresholdsSoFar([threshold], {"web": "http"})
    for one in points:
        so_far.sample(one)
    (found,) = so_far.judged()
    return found.outcome, found.value


@pytest.mark.parametrize("each", [8, 50, 2000])
@pytest.mark.parametrize("stat", ["p50", "p90", "p95", "p99", "p99.9", "min", "mean", "max"])
def test_statistics_are_those_of_all_intervals_together(stat: str, each: int) -> None:
    draw = random.Random(7)
    so_far = ThresholdsSoFar([{"metric": f"web.delay.response.{stat}", "max": "1s"}], {"web": "http"})
    every: list[int] = []
    for t in range(4000 // each if each < 2000 else 10):
        # a server that answers in about 1 ms, sometimes in 80 ms, and later in 3 ms
        usual = 1e6 if t % 3 else 3e6
        values = [
            int(draw.lognormvariate(0, 0.3) * (80e6 if draw.random() < 0.03 else usual)) for _ in range(each)
        ]
        every += values
        so_far.sample(point(t, delays=values))
    (found,) = so_far.judged()
    ordered = sorted(every)
    share = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99, "p99.9": 0.999}.get(stat)
    expected = {"min": ordered[0], "max": ordered[-1], "mean": sum(every) / len(every)}.get(stat)
    if share is None:
        assert found.value == pytest.approx(expected)
    else:
        assert found.value == pytest.approx(ordered[int(share * len(ordered))], rel=0.25)


def test_warm_up_and_what_was_not_measured_are_not_judged() -> None:
    limit = {"metric": "web.delay.response.p99", "max": "50ms"}
    assert judged(limit, point(1, "warmup", [90_000_000])) == ("not judged", None)
    assert judged(limit, point(1, "warmup", [90_000_000]), point(2, delays=[1_000_000]))[0] == "pass"
    assert judged(limit, point(1, delays=[90_000_000]))[0] == "FAIL"
    # answers that come while it drains belong to the measure phase
    assert judged(limit, point(1, delays=[1_000_000]), point(2, "drain", [90_000_000] * 9))[0] == "FAIL"
    for at_the_end in ("web.reordering.ratio", "web.ipdv.response.p99", "web.stalls.share"):
        assert judged({"metric": at_the_end, "max": 0.5}, point(1, messages_sent=1)) == ("not judged", None)


@pytest.mark.parametrize(
    ("counts", "outcome"),
    [
        # all that is in flight may be lost, and even then it holds
        ({"messages_sent": 1000, "messages_delivered": 995}, "pass"),
        # ten times as much in flight: nobody knows yet
        ({"messages_sent": 1000, "messages_delivered": 950}, "not judged"),
        ({"messages_sent": 1000, "messages_delivered": 950, "failures": {"timeout": 5}}, "not judged"),
        ({"messages_sent": 1000, "messages_delivered": 950, "failures": {"timeout": 20}}, "FAIL"),
        # nothing is ever confirmed
        ({"messages_sent": 1000}, "not judged"),
        ({}, "not judged"),
    ],
)
def test_loss_is_judged_once_it_is_known(counts: dict[str, Any], outcome: str) -> None:
    assert judged({"metric": "web.loss", "max": 0.01}, point(1, **counts))[0] == outcome


@pytest.mark.parametrize(
    ("threshold", "outcome", "value"),
    [
        ({"metric": "web.errors", "max": 0}, "FAIL", 3),
        ({"metric": "web.errors.timeout", "max": 2}, "pass", 2),
        ({"metric": "web.errors.reset", "max": 1, "strict": True}, "FAIL", 1),
        ({"metric": "web.messages_delivered.rate", "min": 50}, "pass", 50),
        ({"metric": "web.messages_delivered.rate", "min": 51}, "FAIL", 50),
        ({"metric": "web.messages_delivered", "max": 99}, "FAIL", 100),
        # it may be reached yet
        ({"metric": "web.messages_delivered", "min": 101}, "not judged", None),
        ({"metric": "web.messages_delivered", "min": 100}, "pass", 100),
    ],
)
def test_counts_and_rates_of_the_measure_phase(
    threshold: dict[str, Any], outcome: str, value: float | None
) -> None:
    points = [
        point(1, "warmup", messages_delivered=900, failures={"timeout": 9}),
        point(2, messages_delivered=40, failures={"timeout": 2}),
        point(3, messages_delivered=60, failures={"reset": 1}),
    ]
    assert judged(threshold, *points) == (outcome, value)


def test_a_share_that_grows_until_the_end_fails_no_run_before() -> None:
    """Calls that are under way are not completed yet."""
    limit, calls = {"metric": "calls.index.scr", "min": 0.99}, {"session_requests": 100}
    so_far = ThresholdsSoFar([limit], {"calls": "sip"})
    outcomes = []
    for completed in (10, 190):
        counts = calls | {"sessions_completed": completed}
        shown = {"t": 1, "dt": 1.0, "phase": "measure", "groups": {"calls": {"counts": counts}}}
        so_far.sample(SeriesPoint.model_validate(shown))
        outcomes += [one.outcome for one in so_far.judged()]
    assert outcomes == ["not judged", "pass"]
