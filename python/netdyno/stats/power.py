"""The least change that so many pairs find, and how many pairs find a change; planned for heavy-tailed noise.

A standard deviation says little of noise with outliers: with t noise of two degrees of freedom there is none,
and an estimate from a few trials is far too small or far too large. So the noise is a robust scale, the
median difference of two trials (Shamos, 1976; Bickel and Lehmann, 1979), and the power is that of the exact
signed-rank test under such noise, drawn with a fixed seed. Under normal noise the power is larger.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Sequence
from statistics import median
from typing import Any

from netdyno.stats.ranks import rejected

POWER = 0.8
ASSUMED = "power 80 %, noise with tails like t with 2 degrees of freedom, scale from median differences"
"""What a minimum detectable effect rests on, in words."""
TAILS = 2
"""Degrees of freedom of the assumed noise."""
DRAWS = 2000
DRAWN = 40
"""Pairs up to which the test is drawn; beyond, what is detectable falls with the root of their number."""
NORMAL = 0.6745
"""Median size of a standard normal value: scales are told as the standard deviation of normal noise."""


def trial_scale(values: Sequence[float]) -> float:
    """How much trials of the same vary, as a standard deviation; outliers do not decide it."""
    apart = [abs(x - y) for x, y in itertools.combinations(values, 2)]
    return median(apart) / (NORMAL * math.sqrt(2)) if apart else 0.0


def pair_scale(a: Sequence[float], b: Sequence[float]) -> float:
    """How much the log ratios of pairs vary, as a standard deviation; outliers do not decide it."""
    return trial_scale([math.log(y / x) for x, y in zip(a, b, strict=True) if x > 0 and y > 0])


def detectable(
    scale: float, known_from: int, pairs: int, level: float = 0.05, power: float = POWER, tests: int = 1
) -> float:
    """The least change (0.1: 10 %) that so many pairs find with this power, where pairs vary by `scale`.

    The scale is known from few itself: the upper bound of its 80 % interval is taken.
    """
    if known_from < 2 or not (ranks := rejected(min(pairs, DRAWN), level, tests)):
        return math.inf
    apart = _needed(min(pairs, DRAWN), ranks, power) * math.sqrt(min(1.0, DRAWN / pairs))
    upper = NORMAL * scale / _low(min(known_from, DRAWN))
    return math.expm1(min(apart * upper, 700.0))


def pairs_for(
    change: float, scale: float, known_from: int, most: int, level: float = 0.05, tests: int = 1
) -> int:
    """The least number of pairs that finds such a change (0.1: 10 %), but at most so many."""
    least = 2
    while not rejected(least, level, tests):
        least += 1
    for pairs in range(least, most):
        if detectable(scale, known_from, pairs, level, tests=tests) <= change:
            return pairs
    return max(most, least)


def _drawn(count: int) -> Any:
    """Noise of so many trials, often."""
    # loaded when needed: commands that judge nothing start faster
    import numpy as np

    return np.random.default_rng(1).standard_t(TAILS, (DRAWS, count))


@functools.cache
def _unit() -> float:
    """The median difference of two trials of the assumed noise."""
    import numpy as np

    drawn = np.random.default_rng(2).standard_t(TAILS, (2, 200_000))
    return float(np.median(np.abs(drawn[0] - drawn[1])))


@functools.lru_cache(maxsize=512)
def _needed(pairs: int, ranks: int, power: float) -> float:
    """By how many median differences pairs must be apart for the test to see it with this power.

    It rejects where the average of two differences that has this rank is above nothing.
    """
    import numpy as np

    noise = _drawn(2 * pairs)
    apart = noise[:, :pairs] - noise[:, pairs:]
    low, high = np.triu_indices(pairs)
    ends = np.partition((apart[:, low] + apart[:, high]) / 2, ranks - 1, axis=1)[:, ranks - 1]
    return float(np.quantile(-ends, power)) / _unit()


@functools.cache
def _low(count: int) -> float:
    """What one of five scales from so many trials is below, where the true one is 1."""
    import numpy as np

    noise = _drawn(count)
    low, high = np.triu_indices(count, 1)
    found = np.median(np.abs(noise[:, low] - noise[:, high]), axis=1)
    return float(np.quantile(found, 0.2)) / _unit()
