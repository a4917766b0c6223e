"""Compare two runs, metric by metric, and say what is known and what is noise."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from netdyno.stats.estimate import mean, sd


@dataclass(frozen=True)
class Difference:
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
    interval: tuple[float, float] | None = None
    """Of b - a, at the confidence that Holm's correction leaves it: it excludes 0 if and only if a difference
    is claimed."""
    unit: str = ""
    """Of a and b."""
    detectable: float | None = None
    """The smallest difference that so many repetitions show four times out of five, at that level."""


def compare(metric: str, a: Sequence[float], b: Sequence[float]) -> Difference:
    """One metric in two runs; not corrected for others."""
    ma, mb = mean(a), mean(b)
    change = (mb - ma) / ma if ma else None
    n = (len(a), len(b))
    if min(n) < 2:
        return Difference(metric, ma, mb, change, n=n)
    # loaded when needed: it takes longer than most commands
    from scipy import stats

    p = _welch(a, b)
    rank = 1.0 if set(a) == set(b) and len(set(a)) == 1 else float(stats.mannwhitneyu(a, b).pvalue)
    return Difference(metric, ma, mb, change, p, rank, effect=hedges(a, b), n=n)


def _welch(a: Sequence[float], b: Sequence[float]) -> float:
    if sd(a) == 0 and sd(b) == 0:
        # no scale to tell by: of all ways to share out the values, two are as far apart
        return 1.0 if mean(a) == mean(b) else min(1.0, 2 / math.comb(len(a) + len(b), len(a)))
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


def difference(a: Sequence[float], b: Sequence[float], level: float) -> tuple[tuple[float, float], float]:
    """Welch's interval of b - a at `level`, and the minimum detectable effect with a power of 0.8."""
    from scipy import special

    va, vb = sd(a) ** 2 / len(a), sd(b) ** 2 / len(b)
    apart = mean(b) - mean(a)
    if va + vb == 0:
        return (apart, apart), 0.0
    degrees = (va + vb) ** 2 / (va**2 / (len(a) - 1) + vb**2 / (len(b) - 1))
    quantile = float(special.stdtrit(degrees, 1 - level / 2))
    error = math.sqrt(va + vb)
    return (apart - quantile * error, apart + quantile * error), (
        quantile + float(special.stdtrit(degrees, 0.8))
    ) * error


def steps(p: Sequence[float], level: float) -> list[float]:
    """The level that Holm's method tests each of these at; from the first not rejected on it stays."""
    order = sorted(range(len(p)), key=lambda i: p[i])
    found, kept = [0.0] * len(p), 0.0
    for place, i in enumerate(order):
        found[i] = kept or level / (len(p) - place)
        if p[i] > found[i]:
            kept = found[i]
    return found


def compare_all(
    a: Mapping[str, Sequence[float]],
    b: Mapping[str, Sequence[float]],
    smaller_is_better: Mapping[str, bool | None],
    level: float = 0.05,
    units: Mapping[str, str] | None = None,
) -> list[Difference]:
    """Every metric that both runs have; a difference is claimed only if it survives the correction."""
    found = [compare(name, a[name], b[name]) for name in a if a[name] and b.get(name)]
    tested = [c for c in found if c.p is not None]
    corrected = dict(zip((c.metric for c in tested), holm([c.p or 0.0 for c in tested]), strict=True))
    levels = dict(zip((c.metric for c in tested), steps([c.p or 0.0 for c in tested], level), strict=True))
    results: list[Difference] = []
    for c in found:
        p = corrected.get(c.metric)
        significant = p is not None and p <= level
        smaller = smaller_is_better.get(c.metric)
        better = None if not significant or smaller is None else (c.b < c.a) == smaller
        # one that neither varies in has no interval, unless its difference is claimed
        has_none = c.effect is None and c.a != c.b and not significant
        interval, detectable = (
            difference(a[c.metric], b[c.metric], levels[c.metric])
            if p is not None and not has_none
            else (None, None)
        )
        results.append(
            replace(
                c,
                p_holm=p,
                significant=significant,
                better=better,
                interval=interval,
                detectable=detectable,
                unit=(units or {}).get(c.metric, ""),
            )
        )
    return results
