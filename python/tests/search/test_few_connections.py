"""Delays of a trial whose connections were hardly ever free are no evidence against the DUT."""

from __future__ import annotations

from typing import Any

import pytest

from netdyno.core.result import Repetition
from netdyno.core.wire import Counts, Distribution, GroupResult, PhaseLengths, SlowdownResult, StallResult
from netdyno.search.observe import observed
from netdyno.search.trial import LoadTrial, TrialRequest

PACED = {"model": {"http": {"interval": "100ms"}}, "load": {"closed": {}}}


def seen(busy: float, failed: int = 0, slowdown: SlowdownResult | None = None, **changes: Any) -> LoadTrial:
    group = {"name": "web", "target": "http://192.0.2.1", "devices": 10} | PACED | changes
    thresholds = [{"metric": "web.delay.response.p99", "max": "150ms"}, {"metric": "web.errors", "max": 0}]
    profile = {"name": "p", "groups": [group], "thresholds": thresholds}
    counts = Counts(messages_intended=100, messages_sent=100, messages_delivered=100 - failed)
    counts.failures = {"timeout": failed} if failed else {}
    late = Distribution(count=100, mean=1e8, p50=1e8, p90=2e8, p99=3e8, p999=3e8, max=3e8)
    made = GroupResult(
        name="web", protocol="http", devices=10, measured=counts, total=counts, loss=failed / 100,
        confirmed=True, rates={"messages_intended": 100.0, "messages_delivered": 97.0},
        delays={"response": late}, stalls=StallResult(limit=2_000_000_000, busy=busy), slowdown=slowdown,
    )  # fmt: skip
    trial = Repetition(run="r", groups=[made], phases=PhaseLengths(measure=1.0), steal=0.0, profile=profile)
    return observed(TrialRequest(100.0, 1.0), trial, profile, 1, by_loss=False)


@pytest.mark.parametrize(
    "load", [PACED, {"model": {"http": {"requests": 1}}, "load": {"open": {"rate": "100/s"}}}]
)
def test_delays_of_messages_that_waited_for_a_connection_bound_the_configuration(
    load: dict[str, Any],
) -> None:
    one = seen(0.97, **load)
    assert (one.short, one.connections) == (True, "10 connections × 103 ms = 97/s")
    assert one.broken == ("web.delay.response.p99",)


def test_other_trials_that_break_a_threshold_bound_the_dut() -> None:
    slower = SlowdownResult(few=20_000_000, busy=90_000_000)
    closed = {"model": {"http": {}}, "load": {"closed": {}}}
    for one in (
        # connections were free
        seen(0.5),
        # the server slows down
        seen(0.97, slowdown=slower),
        # something else broke too
        seen(0.97, failed=1),
        # connections of a closed loop are never free
        seen(0.97, **closed),
    ):
        assert (one.short, one.connections) == (False, "")
        assert "web.delay.response.p99" in one.broken
