"""Compare two runs, metric by metric, and say what is known and what is noise."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from netdyno.stats.estimate import mean, sd


@dataclass(frozen=True)
class Comparison:
    """Two samples of one metric."""

    metric: str
    a: float
    b: float
    change: float | None
    """(b - a) / a; None when a is 0."""
    p: float | None = None
    """Of Welch's t-test; None with fewer than two values on either side."""
    p_rank: float | None = None
    """Of Mann-Whitney's U test."""
    p_holm: float | None = None
    """Welch's, corrected for how many metrics were compared (Holm)."""
    effect: float | None = None
    """Hedges' g: the difference in standard deviations."""
    significant: bool = False
    better: bool | None = None
    n: tuple[int, int] = (0, 0)


def compare(metric: str, a: Sequence[float], b: Sequence[float]) -> Comparison:
    """One metric in two runs; not corrected for others."""
    ma, mb = mean(a), mean(b)
    change = (mb - ma) / ma if ma else None
    n = (len(a), len(b))
    if min(n) < 2:
        return Comparison(metric, ma, mb, change, n=n)
    # loaded when needed: it takes longer than most commands
    from scipy import stats

    p = _welch(a, b)
    rank = 1.0 if set(a) == set(b) and len(set(a)) == 1 else float(stats.mannwhitneyu(a, b).pvalue)
    return Comparison(metric, ma, mb, change, p, rank, effect=hedges(a, b), n=n)


def _welch(a: Sequence[float], b: Sequence[float]) -> float:
    if sd(a) == 0 and sd(b) == 0:
        return 1.0 if mean(a) == mean(b) else 0.0
    from scipy import stats

    return float(stats.ttest_ind(a, b, equal_var=False).pvalue)


def hedges(a: Sequence[float], b: Sequence[float]) -> float | None:
    """Hedges' g of b over a; None when neither varies."""
    na, nb = len(a), len(b)
    pooled = math.sqrt(((na - 1) * sd(a) ** 2 + (nb - 1) * sd(b) ** 2) / (na + nb - 2))
    if pooled == 0:
        return None
    return (mean(b) - mean(a)) / pooled * (1 - 3 / (4 * (na + nb) - 9))


def holm(p: Sequence[float]) -> list[float]:
    """Holm's correction: p values that keep the chance of any false claim at the level."""
    order = sorted(range(len(p)), key=lambda i: p[i])
    corrected = [0.0] * len(p)
    largest = 0.0
    for place, i in enumerate(order):
        largest = max(largest, min(1.0, (len(p) - place) * p[i]))
        corrected[i] = largest
    return corrected


def among(p: Sequence[float], level: float) -> list[int]:
    """Of how many tests Holm's method takes each for one: fewer after each that it rejects, down to the
    first that it does not. The interval of a metric at that number excludes no change where, and only where,
    its corrected p is within the level."""
    order = sorted(range(len(p)), key=lambda i: p[i])
    tests, left = [1] * len(p), len(p)
    for place, i in enumerate(order):
        tests[i] = left
        if left == len(p) - place and left * p[i] <= level:
            left -= 1
    return tests


def compare_all(
    a: Mapping[str, Sequence[float]],
    b: Mapping[str, Sequence[float]],
    smaller_is_better: Mapping[str, bool | None],
    level: float = 0.05,
) -> list[Comparison]:
    """Every metric that both runs have; a difference is claimed only if it survives the correction."""
    found = [compare(name, a[name], b[name]) for name in a if a[name] and b.get(name)]
    tested = [c for c in found if c.p is not None]
    corrected = dict(zip((c.metric for c in tested), holm([c.p or 0.0 for c in tested]), strict=True))
    results: list[Comparison] = []
    for c in found:
        p = corrected.get(c.metric)
        significant = p is not None and p <= level
        smaller = smaller_is_better.get(c.metric)
        better = None if not significant or smaller is None else (c.b < c.a) == smaller
        results.append(
            Comparison(c.metric, c.a, c.b, c.change, c.p, c.p_rank, p, c.effect, significant, better, c.n)
        )
    return results
