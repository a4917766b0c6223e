"""`--abort-on-fail`: whether a threshold has failed for good while a trial still runs. Pure.

For good means: whatever comes until the end, it fails. What was under way when the measure phase began may
have been meant for the warm-up and is not held against the threshold, and what may still come is taken to be
good, at the highest rate seen so far.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from netdyno.core.wire import SeriesPoint
from netdyno.stats.metric import GroupMetric
from netdyno.stats.percentile import percent
from netdyno.units import bound


@dataclass
class _GroupProgress:
    """Counts of a group in the measure phase so far."""

    under_way: int = 0
    """Messages that were under way when it began."""
    failed: int = 0
    sent: int = 0
    most_sent: float = 0.0
    """The highest rate of messages sent, per second."""
    failures: dict[str, int] = field(default_factory=dict)
    above: dict[int, int] = field(default_factory=dict)
    """By threshold, values surely above its bound."""
    measured: dict[int, int] = field(default_factory=dict)
    most: dict[int, float] = field(default_factory=dict)
    """By threshold, values measured, and their highest rate per second."""


class EarlyFailure:
    """Watches the points of one trial."""

    def __init__(
        self,
        thresholds: Sequence[Mapping[str, Any]],
        measure: float,
        repetitions: int = 1,
        connecting: Collection[str] = (),
    ) -> None:
        """`connecting`: groups whose devices have connections. A failure there may be a connection's, before
        a message was sent or with one that is sent again, and so no loss."""
        self._limits = [
            (GroupMetric.parse(str(one["metric"])), bound(one["max"]), bool(one.get("strict")))
            for one in thresholds
            if one.get("max") is not None
        ]
        self._measure, self._repetitions, self._connecting = measure, repetitions, connecting
        self._seen: dict[str, _GroupProgress] = {}
        self._elapsed = 0.0

    def sample(self, point: Mapping[str, Any]) -> str:
        """The metric that has failed for good by now; empty where none has."""
        sample = SeriesPoint.model_validate(point)
        if sample.phase == "warmup":
            for name, group in sample.groups.items():
                seen, c = self._seen.setdefault(name, _GroupProgress()), group.counts
                seen.under_way += c.messages_sent - c.messages_delivered - sum(c.failures.values())
            return ""
        if sample.phase == "measure":
            self._elapsed += sample.dt
        for name, group in sample.groups.items():
            self._add(name, sample.dt, group)
        failed = (m for i, (m, limit, strict) in enumerate(self._limits) if self._failed(i, m, limit, strict))
        return str(next(failed, ""))

    def _add(self, name: str, dt: float, group: Any) -> None:
        seen, c = self._seen.setdefault(name, _GroupProgress()), group.counts
        failed = sum(c.failures.values())
        seen.failed += failed
        seen.sent += c.messages_sent
        seen.most_sent = max(seen.most_sent, c.messages_sent / dt if dt else 0.0)
        for kind, count in c.failures.items():
            seen.failures[kind] = seen.failures.get(kind, 0) + count
        for place, (metric, limit, _) in enumerate(self._limits):
            found = group.delays.get(metric.name) if metric.kind == "delay" else None
            if metric.group != name or found is None or not found.count:
                continue
            # a bucket begins where the one before ends: only the whole of it is surely above
            below = sum(count for upper, count in found.buckets if upper <= limit or _holds(upper, limit))
            surely = max(0, found.count - below)
            seen.above[place] = seen.above.get(place, 0) + max(surely, int(found.max > limit))
            seen.measured[place] = seen.measured.get(place, 0) + found.count
            seen.most[place] = max(seen.most.get(place, 0.0), found.count / dt if dt else 0.0)

    def _failed(self, place: int, metric: GroupMetric, limit: float, strict: bool) -> bool:
        seen = self._seen.get(metric.group)
        if seen is None:
            return False
        under_way, left = max(0, seen.under_way), max(0.0, self._measure - self._elapsed)

        def beyond(value: float, most: float) -> bool:
            return value > most or (strict and value == most)

        if metric.kind == "errors":
            count = seen.failures.get(metric.name, 0) if metric.name else seen.failed
            # the mean over all repetitions is judged
            return beyond(count - under_way, limit * self._repetitions)
        if metric.kind == "loss" and self._repetitions == 1 and metric.group not in self._connecting:
            whole = seen.sent + seen.most_sent * left
            return seen.failed - under_way > 0 and beyond(seen.failed - under_way, limit * whole)
        if metric.kind != "delay":
            return False
        above = seen.above.get(place, 0) - under_way
        if metric.stat == "max":
            return above > 0
        share = percent(metric.stat)
        if share is None or self._repetitions > 1:
            return False
        whole = seen.measured.get(place, 0) + seen.most.get(place, 0.0) * left
        return above > 0 and above * 100 > (100 - share) * whole


def _holds(upper: int, limit: float) -> bool:
    """Whether a bucket with this upper bound may hold values within the limit."""
    # bounds are 1, 2.5 and 5 in each decade
    return upper / (2.5 if str(upper).startswith("2") else 2) < limit
