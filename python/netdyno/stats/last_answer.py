"""When a server answered for the last time."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from netdyno.core.wire import TrialResult


def last_answer_s(trial: TrialResult, name: str) -> float | None:
    """When the last answer to a group came in any phase, in seconds from the start; None: none came."""
    points = (one for one in trial.series if name in one.groups)
    came = (one.t for one in points if one.groups[name].counts.messages_delivered)
    return max(came, default=None)


def last_answer_time(trials: Sequence[TrialResult], name: str) -> str:
    """The time of the last answer to a group of the last trial with any, UTC; empty: none ever came."""
    for trial in reversed(trials):
        if (since := last_answer_s(trial, name)) is not None and (at := clock(trial, since)):
            return at
    return ""


def clock(trial: TrialResult, seconds: float) -> str:
    """A time of a trial, UTC; empty where it is not known when it began."""
    try:
        began = datetime.fromisoformat(trial.started).astimezone(UTC)
    except ValueError:
        return ""
    return f"{began + timedelta(seconds=seconds):%H:%M:%S} UTC"
