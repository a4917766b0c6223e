"""Outages that all clients of a group saw: whole intervals without an answer."""

from __future__ import annotations

from typing import Any

import pytest

from netdyno.core.wire import SeriesPoint, TrialResult
from netdyno.stats.silence import Silence, longest


def trial(rates: str, phase: str = "measure", due: int = 10, dt: float = 1.0) -> TrialResult:
    """A point for each letter: what was answered in it, `r`: all rejected, `x`: the group has none."""
    made: list[Any] = []
    for at, one in enumerate(rates, start=1):
        counts: dict[str, Any] = {
            "messages_intended": due,
            "messages_delivered": int(one) if one.isdigit() else 0,
        }
        if one == "r":
            counts["failures"] = {"rejected": due}
        groups = {} if one == "x" else {"a": {"counts": counts}}
        made.append(SeriesPoint.model_validate({"t": at * dt, "dt": dt, "phase": phase, "groups": groups}))
    return TrialResult.model_construct(series=made)


@pytest.mark.parametrize(
    ("rates", "found"),
    [
        ("99900099", Silence(3, 6, 30)),
        ("9090009", Silence(3, 6, 30)),
        ("900", Silence(1, 3, 20)),
        ("9999", None),
        # it never answered, which is told otherwise
        ("000", None),
        ("0009", None),
        ("9x0x9", Silence(2, 3, 10)),
        # a server that rejects everything answers
        ("9rrr9", None),
        ("90r009", Silence(3, 5, 20)),
    ],
)
def test_the_longest_is_found(rates: str, found: Silence | None) -> None:
    assert longest(trial(rates), "a") == found


def test_what_is_short_asked_little_or_not_measured_is_none() -> None:
    assert longest(trial("90009", dt=0.2), "a") is None
    assert longest(trial("909", due=4), "a") is None
    assert longest(trial("909", due=0), "a") is None
    assert longest(trial("909", phase="drain"), "a") is None
    assert longest(trial("909"), "b") is None
    found = longest(trial("9000000009", dt=0.2), "a")
    assert found and found.seconds == pytest.approx(1.6)
