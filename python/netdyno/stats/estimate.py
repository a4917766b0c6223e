"""Means and their intervals over repetitions."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence

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


def bootstrap_interval(
    values: Sequence[float],
    confidence: float = 0.95,
    statistic: Callable[[Sequence[float]], float] = mean,
    rounds: int = 2000,
    seed: int = 1,
) -> tuple[float, float] | None:
    """Percentile bootstrap of any statistic, the same for the same seed."""
    if len(values) < 2:
        return None
    draw = random.Random(seed)
    found = sorted(statistic(draw.choices(values, k=len(values))) for _ in range(rounds))
    cut = (1 - confidence) / 2
    return (found[int(cut * rounds)], found[min(rounds - 1, int((1 - cut) * rounds))])


def estimate(values: Sequence[float], confidence: float = 0.95) -> Estimate:
    """A mean with all that is known of its error."""
    if not values:
        return Estimate(n=0, mean=0.0)
    interval = t_interval(values, confidence)
    return Estimate(n=len(values), mean=mean(values), sd=sd(values) if interval else None, interval=interval)
