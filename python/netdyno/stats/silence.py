"""How long a server answered nothing while it was asked: an outage for everybody. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from netdyno.core.wire import Counts, TrialResult

SHORTEST = 1.0
"""Seconds; what is shorter is no outage."""
ANSWERS = ("rejected", "protocol")
"""Kinds of failures that are an answer of the server."""
FEWEST = 5
"""Messages that fell due meanwhile; after fewer the next answer may just not have been due."""


@dataclass(frozen=True)
class Silence:
    """Whole intervals of the series in which messages fell due and none was answered."""

    begins: float
    """Seconds since the start."""
    ends: float
    due: int
    """Messages that fell due in it."""

    @property
    def seconds(self) -> float:
        """Its length; the server may have been silent for up to two intervals more."""
        return self.ends - self.begins


def _answered(counts: Counts) -> bool:
    """Whether anything was answered: a rejection and a malformed response are answers too."""
    return bool(counts.messages_delivered or any(counts.failures.get(kind) for kind in ANSWERS))


def longest(trial: TrialResult, name: str) -> Silence | None:
    """The longest of a group in the measure phase, once the server had answered; None: there was none."""
    found: list[Silence] = []
    answered, present = False, None
    for point in trial.series:
        counts = point.groups[name].counts if name in point.groups else None
        if counts is None or _answered(counts):
            answered, present = answered or counts is not None, None
        elif point.phase != "measure" or not counts.messages_intended:
            present = None
        elif answered:
            begins, due = (present.begins, present.due) if present else (point.t - point.dt, 0)
            present = Silence(begins, point.t, due + counts.messages_intended)
            found.append(present)
    long = [one for one in found if one.seconds > SHORTEST * 0.99 and one.due >= FEWEST]
    return max(long, key=lambda one: one.seconds, default=None)
