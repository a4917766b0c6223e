"""Why repetitions differ: dependence between neighbours, a change of level, outliers; pure."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from netdyno.stats.estimate import mean, sd
from netdyno.stats.paired import autocorrelation

PERMUTATIONS = 2_000
OUTLIER = 3.5
"""Modified z-score from which a value is an outlier (Iglewicz and Hoaglin 1993)."""
LEAST = 5
"""Values without which neither a change of level nor outliers are looked for."""
MEAN_DEVIATION = 1.253314
"""Standard deviation of a normal distribution over its mean absolute deviation, which stands in where over
half of all values are equal."""


@dataclass(frozen=True)
class ChangePoint:
    """The level before and after a repetition differs."""

    at: int
    """Index of the first value of the new level."""
    before: float
    after: float
    p: float
    """Share of random orders of the same values that have as large a step."""


@dataclass(frozen=True)
class Variation:
    """Spread of repetitions and what explains it."""

    mean: float
    sd: float
    coefficient: float
    """Standard deviation over mean."""
    autocorrelation: float
    """Lag-1 autocorrelation, -1 to 1."""
    dependent: bool
    """The autocorrelation is beyond what independent repetitions have in 95 of 100 cases."""
    change: ChangePoint | None
    outliers: tuple[int, ...]
    """Indices."""


def variation(values: Sequence[float], seed: int = 1, level: float = 0.05) -> Variation:
    """Of one value or more, in the order in which they were measured."""
    m, s = mean(values), sd(values)
    lag = autocorrelation(values)
    dependent = len(values) >= LEAST and abs(lag) > 1.96 / math.sqrt(len(values))
    change = change_point(values, seed)
    return Variation(
        m,
        s,
        s / m if m else 0.0,
        lag,
        dependent,
        change if change and change.p <= level else None,
        outliers(values),
    )


def change_point(values: Sequence[float], seed: int = 1) -> ChangePoint | None:
    """The likeliest change of level, with its p by permutation; None of too few values, or equal ones."""
    if len(values) < LEAST or min(values) == max(values):
        return None
    at, step = _step(values)
    source, shuffled, larger = random.Random(seed), list(values), 0
    for _ in range(PERMUTATIONS):
        source.shuffle(shuffled)
        larger += _step(shuffled)[1] >= step * (1 - 1e-12)
    return ChangePoint(at, mean(values[:at]), mean(values[at:]), (larger + 1) / (PERMUTATIONS + 1))


def _step(values: Sequence[float]) -> tuple[int, float]:
    """Where the two means differ most, weighted by how many values each is of."""
    count, whole, left = len(values), math.fsum(values), 0.0
    best, where = -1.0, 1
    for at in range(1, count):
        left += values[at - 1]
        step = abs(left / at - (whole - left) / (count - at)) * math.sqrt(at * (count - at) / count)
        if step > best:
            best, where = step, at
    return where, best


def outliers(values: Sequence[float]) -> tuple[int, ...]:
    """Indices of values far from the median, in median absolute deviations."""
    if len(values) < LEAST:
        return ()
    centre = median(values)
    deviations = [abs(one - centre) for one in values]
    unit = median(deviations) / 0.6745 or mean(deviations) * MEAN_DEVIATION
    return tuple(at for at, one in enumerate(deviations) if unit and one / unit > OUTLIER)
