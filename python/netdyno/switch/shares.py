"""Metrics of a workload as switches are judged by them: a slow one must not look better for sending less."""

from __future__ import annotations

from collections.abc import Mapping

from netdyno.lab.workload.base import RETRANSMITTED, SEGMENTS, Workload, WorkloadResult
from netdyno.stats.observation import RATIO, Metric

COUNT = "retransmits"
"""The metric that is a count, which grows with what is sent."""
SHARE = Metric("retransmitted", RATIO, "lower", zero_is_best=True)
"""In its place: segments that were sent again, of all that were sent."""


def judged(kind: Workload) -> dict[str, Metric]:
    """Metrics of a workload, with shares in place of counts."""
    made = {name: SHARE if name == COUNT else one for name, one in kind.metrics.items()}
    return {one.name: one for one in made.values()}


def measured(seen: WorkloadResult) -> dict[str, float]:
    """What a trial measured of them."""
    found: dict[str, float] = {name: value for name, value in seen.metrics.items() if name != COUNT}
    if (share := retransmitted(seen.counters)) is not None:
        found[SHARE.name] = share
    return found


def retransmitted(counters: Mapping[str, float]) -> float | None:
    """The share of segments that were sent again; None: the workload tells no segments."""
    segments = counters.get(SEGMENTS)
    return counters.get(RETRANSMITTED, 0.0) / segments if segments else None
