"""Means and their intervals over repetitions."""

from __future__ import annotations

import math
from collections.abc import Sequence

from netdyno.core.result import Estimate


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
    m, half = mean(values), t_half_width(len(values), confidence) * sd(values)
    return (m - half, m + half)


def t_half_width(count: int, confidence: float) -> float:
    """Half of Student's interval of the mean of so many values, in their standard deviations."""
    # loaded when needed: commands that judge nothing start faster
    from scipy import special

    return float(special.stdtrit(count - 1, 0.5 + confidence / 2)) / math.sqrt(count)


def positive_interval(
    values: Sequence[float], confidence: float = 0.95
) -> tuple[float, tuple[float, float] | None]:
    """Value and interval of something that is never negative, like a delay: both from the logarithms.

    The value is the geometric mean; where a zero has no logarithm, the mean, with its interval cut at 0.
    """
    if min(values) <= 0:
        interval = t_interval(values, confidence)
        return mean(values), interval and (max(0.0, interval[0]), interval[1])
    logs = [math.log(value) for value in values]
    middle, interval = math.exp(mean(logs)), t_interval(logs, confidence)
    if interval is None:
        return values[0], None
    # rounding must not put the value outside, nor may a wide interval overflow
    low, high = math.exp(interval[0]), math.exp(min(interval[1], 700.0))
    return middle, (min(low, middle), max(high, middle))


def estimate(values: Sequence[float], confidence: float = 0.95) -> Estimate:
    """A mean with all that is known of its error."""
    if not values:
        return Estimate(n=0, mean=0.0)
    interval = t_interval(values, confidence)
    return Estimate(n=len(values), mean=mean(values), sd=sd(values) if interval else None, interval=interval)
