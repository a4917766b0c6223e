"""Counts and failures of several groups or trials, added up."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from netdyno.core.wire import CauseCount, Counts, FailureCount

COUNTERS = tuple(name for name in Counts.model_fields if name != "failures")
"""The plain counters of a group, in the order of the core's meter."""


def counts(parts: Sequence[Counts]) -> Counts:
    """All of them added up."""
    names = dict.fromkeys((*COUNTERS, *(name for part in parts for name in part.own)))
    failures: Counter[str] = Counter()
    for part in parts:
        failures.update(part.failures)
    counted = {name: sum(int(getattr(part, name, 0)) for part in parts) for name in names}
    return Counts(**counted, failures=dict(failures))


def failures(parts: Sequence[FailureCount]) -> list[FailureCount]:
    """Those of several trials by kind and cause, counts added; the first example of each stays."""
    found: dict[str, FailureCount] = {}
    for part in parts:
        one = found.setdefault(part.kind, FailureCount(kind=part.kind, total=0))
        one.count += part.count
        one.total = (one.total or 0) + (part.count if part.total is None else part.total)
        one.example = one.example or part.example
        one.other += part.other
        known = {cause.cause: cause for cause in one.causes}
        for cause in part.causes:
            if cause.cause not in known:
                known[cause.cause] = CauseCount(cause=cause.cause, total=0)
                one.causes.append(known[cause.cause])
            same = known[cause.cause]
            same.count += cause.count
            same.total = (same.total or 0) + (cause.total or 0)
            same.example = same.example or cause.example
    for one in found.values():
        one.causes.sort(key=lambda cause: (-cause.count, -(cause.total or 0)))
    return list(found.values())
