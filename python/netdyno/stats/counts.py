"""Counts of events: intervals of rates and of their difference by Poisson statistics, and of shares.

The limits of each rate are exact (Garwood, 1936); those of the difference are combined from them by squares
(MOVER, Zou and Donner, 2008). Events that come in clusters vary by more: take this with a test over trials.
"""

from __future__ import annotations

import math
from collections.abc import Sequence


def is_counts(*values: float) -> bool:
    """Whether all are whole numbers, 0 or more."""
    return all(value >= 0 and float(value).is_integer() for value in values)


def rate_interval(events: float, trials: int, level: float) -> tuple[float, float]:
    """Exact interval of a rate a trial, with so much of `level` outside on each side as half of it."""
    from scipy import special

    low = float(special.gammaincinv(events, level / 2)) if events else 0.0
    return low / trials, float(special.gammaincinv(events + 1, 1 - level / 2)) / trials


def share_interval(events: int, of: int, level: float) -> tuple[float, float] | None:
    """Exact interval of a share (Clopper and Pearson, 1934), with half of `level` outside on each side.

    None where there were no trials.
    """
    if not of:
        return None
    from scipy import special

    low = float(special.betaincinv(events, of - events + 1, level / 2)) if events else 0.0
    high = float(special.betaincinv(events + 1, of - events, 1 - level / 2)) if events < of else 1.0
    return low, high


def difference_interval(a: Sequence[float], b: Sequence[float], level: float) -> tuple[float, float]:
    """Interval of the difference of two rates, of B over A, in events a trial."""
    one, two = math.fsum(a) / len(a), math.fsum(b) / len(b)
    low_a, high_a = rate_interval(math.fsum(a), len(a), level)
    low_b, high_b = rate_interval(math.fsum(b), len(b), level)
    apart = two - one
    return apart - math.hypot(two - low_b, high_a - one), apart + math.hypot(high_b - two, one - low_a)


def difference_p(a: Sequence[float], b: Sequence[float]) -> float:
    """The level at which that interval touches no difference; 1 where it never excludes it."""
    low, high = 1e-12, 1.0
    if _excludes(a, b, low):
        return low
    if not _excludes(a, b, 1 - 1e-9):
        return 1.0
    for _ in range(50):
        middle = math.sqrt(low * high)
        low, high = (low, middle) if _excludes(a, b, middle) else (middle, high)
    return high


def _excludes(a: Sequence[float], b: Sequence[float], level: float) -> bool:
    ends = difference_interval(a, b, level)
    return not ends[0] <= 0 <= ends[1]
