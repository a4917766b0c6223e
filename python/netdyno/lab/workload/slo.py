"""A service level objective: a bound that a metric of a load must keep."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Slo:
    """A bound on a metric. Times are in milliseconds, as the metrics are."""

    metric: str
    upper: bool
    """Whether the bound is the most that the metric may be, and not the least."""
    bound: float
    text: str
    """As it was written."""

    def excess(self, value: float) -> float:
        """How far a value is beyond the bound, in the metric's unit; at most 0: the bound is kept."""
        return value - self.bound if self.upper else self.bound - value
