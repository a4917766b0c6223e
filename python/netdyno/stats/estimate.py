"""Means and their intervals over repetitions."""

from __future__ import annotations

import math
from collections.abc import Sequence

from netdyno.result import Estimate


def mean(values: Sequence[float]) -> float:
    """Arithmetic mean, summed without loss."""
    return math.fsum(values) / len(values)


def sd(values: Sequence[float]) -> float:
    """Sample standard deviation (n - 1)."""
    if len(values) < 2:
        return 0.0
    m = mean(values)
    return math.sqrt(math.fsum((v - m) ** 2 for v in values) / (len(values) - 1))


def t_interval(values: Sequence[float], confidence: float = 0.95) -> tuple[float, float] | None:
    """Student's interval of the mean; None when one value cannot say how far it is to be trusted."""
    if len(values) < 2:
        return None
    # loaded when needed: commands that judge nothing start faster
    from scipy import special

    m = mean(values)
    quantile = float(special.stdtrit(len(values) - 1, 0.5 + confidence / 2))
    half = quantile * sd(values) / math.sqrt(len(values))
    return (m - half, m + half)


def estimate(values: Sequence[float], confidence: float = 0.95) -> Estimate:
    """A mean with all that is known of its error."""
    if not values:
        return Estimate(n=0, mean=0.0)
    interval = t_interval(values, confidence)
    return Estimate(n=len(values), mean=mean(values), sd=sd(values) if interval else None, interval=interval)
