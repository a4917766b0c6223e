"""Thresholds while a trial runs: what its measure phase comes to so far, from the points of its series. Pure.

A point has counts, quantiles and coarse buckets of its interval. Percentiles of all intervals together are
therefore estimates; extremes, means and counts are not. Messages belong to the interval in which they are
answered; the result files them by their intended send times. What no point tells, such as reordering, is
judged at the end only.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from netdyno.core import models, totals
from netdyno.core.result import ThresholdResult
from netdyno.core.wire import BucketedQuantiles, Counts, Quantiles, SeriesPoint
from netdyno.stats import percentile
from netdyno.stats.metric import GroupMetric
from netdyno.stats.threshold import against

BINS = 200
"""Bins of a decade in which delays are added up."""


class DelaySum:
    """Distributions of several intervals as one."""

    def __init__(self) -> None:
        self._count = 0
        self._sum = 0.0
        self._least, self._most = math.inf, 0
        self._bins: Counter[int] = Counter()
        """In millionths of a value."""

    def add(self, q: Quantiles) -> None:
        """One interval more."""
        if not q.count:
            return
        self._count += q.count
        self._sum += q.count * q.mean
        self._least, self._most = min(self._least, q.min), max(self._most, q.max)
        for (share, value), (above, more) in itertools.pairwise(_knots(q)):
            first, last = _bin(value), _bin(more)
            each = round((above - share) * q.count * 1e6 / (last - first + 1))
            for one in range(first, last + 1):
                self._bins[one] += each

    def of(self, stat: str) -> float | None:
        """A statistic; None where there is none."""
        if not self._count:
            return None
        if stat in ("min", "mean", "max"):
            return {"min": self._least, "mean": self._sum / self._count, "max": float(self._most)}[stat]
        share = percentile.percent(stat)
        if share is None:
            return None
        left = sum(self._bins.values()) * share / 100
        for one, count in sorted(self._bins.items()):
            if left <= count:
                value = 10 ** ((one + (left / count if count else 0.5)) / BINS)
                return float(min(max(value, self._least), self._most))
            left -= count
        return float(self._most)


def _bin(value: float) -> int:
    return math.floor(math.log10(max(1.0, value)) * BINS)


def _knots(q: Quantiles) -> list[tuple[float, float]]:
    """Shares of an interval's values, and what they are not above; both grow."""
    known = [(0.5, q.p50), (0.9, q.p90), (0.95, q.p95), (0.99, q.p99), (0.999, q.p999)]
    found = [(0.0, float(q.min)), *((share, float(x)) for share, x in known if x is not None)]
    below = 0
    for upper, count in q.buckets if isinstance(q, BucketedQuantiles) else ():
        # bounds are 1, 2.5 and 5 in each decade
        lower = upper / (2.5 if str(upper).startswith("2") else 2)
        found.append((below / q.count, min(max(lower, q.min), q.max)))
        below += count
        found.append((min(1.0, below / q.count), min(float(upper), q.max)))
    found = [*sorted(found), (1.0, float(q.max))]
    highest = itertools.accumulate((value for _, value in found), max)
    return list(zip((share for share, _ in found), highest, strict=True))


class _GroupSum:
    """A group in the measure phase so far."""

    def __init__(self) -> None:
        self.counts = Counts()
        self.delays: dict[str, DelaySum] = {}
        self.lateness = DelaySum()


class ThresholdsSoFar:
    """Watches the points of one trial."""

    def __init__(self, thresholds: Sequence[Mapping[str, Any]], protocols: Mapping[str, str]) -> None:
        """`protocols`: by group its model."""
        self._thresholds = [(one, GroupMetric.parse(str(one["metric"]))) for one in thresholds]
        self._protocols = protocols
        self._groups: dict[str, _GroupSum] = {}
        self._elapsed = 0.0

    def sample(self, point: SeriesPoint) -> None:
        """A point of the series."""
        if not self._thresholds or point.phase not in ("measure", "drain"):
            return
        if point.phase == "measure":
            self._elapsed += point.dt
        for name, group in point.groups.items():
            so_far = self._groups.setdefault(name, _GroupSum())
            so_far.counts = totals.counts((so_far.counts, group.counts))
            for delay, q in group.delays.items():
                so_far.delays.setdefault(delay, DelaySum()).add(q)
            so_far.lateness.add(group.lateness)

    def judged(self) -> list[ThresholdResult]:
        """Each threshold; without a value where that is not known yet."""
        return [against("", one, self._value(one, metric), None, 1) for one, metric in self._thresholds]

    def _value(self, threshold: Mapping[str, Any], metric: GroupMetric) -> float | None:
        group = self._groups.get(metric.group)
        if group is None or not self._elapsed:
            return None
        counts, name = group.counts, metric.name
        match metric.kind:
            case "delay":
                return group.delays[name].of(metric.stat) if name in group.delays else None
            case "lateness":
                return group.lateness.of(metric.stat)
            case "errors":
                return float(counts.failures.get(name, 0) if name else sum(counts.failures.values()))
            case "loss":
                return _loss(counts, threshold)
            case "index":
                of = models.find(self._protocols.get(metric.group, "")).indices
                share = next((index.of(counts) for index in of if index.name == name), None)
                # what is under way may still be completed
                return share if share is None or not _waits(threshold, share) else None
            case "counter" | "counts":
                value = float(getattr(counts, name, 0))
                if metric.stat == "rate":
                    return value / self._elapsed
                return None if _waits(threshold, value) else value
        return None


def _waits(threshold: Mapping[str, Any], value: float) -> bool:
    """Whether it has to be reached, and is not yet: it has time until the end."""
    return threshold.get("max") is None and not against("", threshold, value, None, 1).passed


def _loss(counts: Counts, threshold: Mapping[str, Any]) -> float | None:
    """The share that is lost for sure, where that is too much; with all that is in flight, where even that is
    within the limit."""
    sent, delivered = counts.messages_sent, counts.messages_delivered
    if not sent or not (delivered or counts.failures):
        return None
    # a failure may be a connection's, and no message's
    least = min(sent - delivered, sum(counts.failures.values())) / sent
    most = max(least, (sent - delivered) / sent)
    if against("", threshold, most, None, 1).passed:
        return most
    return None if against("", threshold, least, None, 1).passed else least
