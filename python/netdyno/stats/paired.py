"""Two ways of doing a thing, measured in pairs: what is the difference, and is it one?

The order within each pair is drawn by a coin. If both ways are the same, a difference is then as likely to
have one sign as the other, whatever the noise is like, also where one trial resembles the one before. The
signed-rank test and its interval rest on that alone.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from netdyno.stats.estimate import mean, sd
from netdyno.stats.ranks import SignedRanks

Order = Literal["shuffled", "abba"]


def design(pairs: int, seed: int, order: Order = "shuffled") -> list[bool]:
    """For each pair, whether A comes first.

    shuffled: a coin for each pair. abba: each two pairs are AB BA or BA AB, by a coin, which takes out what
    drifts evenly; with half as many coins the test is less exact where trials resemble their neighbours.
    """
    draw = random.Random(f"design {seed}")
    if order == "shuffled":
        return [draw.random() < 0.5 for _ in range(pairs)]
    found: list[bool] = []
    while len(found) < pairs:
        first = draw.random() < 0.5
        found += [first, not first]
    return found[:pairs]


def blocks(arms: int, count: int, seed: int) -> list[list[int]]:
    """Blocks in which each of several arms comes once, in an order drawn for each block."""
    draw = random.Random(f"blocks {seed}")
    return [draw.sample(range(arms), arms) for _ in range(count)]


def signed_rank(differences: Sequence[float]) -> float:
    """Two-sided p value of Wilcoxon's signed-rank test, exact also with ties and zeros (Pratt's ranks).

    For what is counted and has no interval; an `effect` counts ties and zeros against both sides.
    """
    ranks = _doubled_ranks([abs(d) for d in differences])
    counted = [(rank, d > 0) for rank, d in zip(ranks, differences, strict=True) if d]
    if not counted:
        return 1.0
    total = sum(rank for rank, _ in counted)
    positive = sum(rank for rank, up in counted if up)
    # in how many of all 2^n ways to give signs comes which sum out
    ways = {0: 1}
    for rank, _ in counted:
        grown = dict(ways)
        for value, number in ways.items():
            grown[value + rank] = grown.get(value + rank, 0) + number
        ways = grown
    far = abs(2 * positive - total)
    extreme = sum(number for value, number in ways.items() if abs(2 * value - total) >= far)
    return float(extreme / 2 ** len(counted))


def _doubled_ranks(values: Sequence[float]) -> list[int]:
    """Twice the ranks, so that the middle ranks of ties are whole numbers."""
    order = sorted(range(len(values)), key=lambda i: values[i])
    ranks = [0] * len(values)
    start = 0
    while start < len(order):
        end = start
        while end + 1 < len(order) and math.isclose(
            values[order[end + 1]], values[order[start]], rel_tol=1e-12
        ):
            end += 1
        for place in range(start, end + 1):
            ranks[order[place]] = start + end + 2
        start = end + 1
    return ranks


def least_pairs(level: float, tests: int = 1) -> int:
    """With fewer pairs even a difference in every one of them proves nothing."""
    pairs = 2
    while max(1, tests) * 2.0 ** (1 - pairs) > level:
        pairs += 1
    return pairs


@dataclass(frozen=True)
class Effect:
    """How B differs from A."""

    n: int
    """Pairs."""
    a: float
    b: float
    """Means."""
    a_sd: float
    b_sd: float
    change: float
    """Of B over A, in the middle of the pairs: 0.1 is 10 % more. Where `absolute`, the difference itself."""
    interval: tuple[float, float] | None
    """Of the change, by the same test as `p`: it excludes no change where that rejects it at `level` as one
    of `tests`. None where so few pairs can reject nothing."""
    p: float
    absolute: bool = False
    """Where a value can be nothing, a ratio says nothing."""
    level: float = 0.05
    tests: int = 1

    @property
    def differs(self) -> bool:
        """Whether the interval excludes no change."""
        return self.interval is not None and not self.interval[0] <= 0 <= self.interval[1]

    @property
    def takes(self) -> int:
        """Pairs with fewer of which nothing could be shown."""
        return least_pairs(self.level, self.tests)

    @property
    def means_disagree(self) -> bool:
        """Whether the means moved against what the pairs show: a few trials are far off."""
        return self.differs and (self.b - self.a) * self.change < 0


def effect(
    a: Sequence[float], b: Sequence[float], *, absolute: bool = False, level: float = 0.05, tests: int = 1
) -> Effect:
    """The difference over pairs: of logarithms, or of the values where these can be zero."""
    if not a or len(a) != len(b):
        raise ValueError("there must be pairs")
    absolute = absolute or min(*a, *b) <= 0
    found = SignedRanks([y - x if absolute else math.log(y) - math.log(x) for x, y in zip(a, b, strict=True)])
    around = found.interval(level, tests)

    def as_change(value: float) -> float:
        return value if absolute else math.expm1(min(value, 700.0))

    return Effect(
        n=found.n, a=mean(a), b=mean(b), a_sd=sd(a), b_sd=sd(b), change=as_change(found.centre),
        interval=(as_change(around[0]), as_change(around[1])) if around else None,
        p=found.p, absolute=absolute, level=level, tests=tests,
    )  # fmt: skip


def autocorrelation(values: Sequence[float]) -> float:
    """Lag-1 autocorrelation of the trials, -1 to 1."""
    m = mean(values) if values else 0.0
    whole = math.fsum((v - m) ** 2 for v in values)
    if whole == 0:
        return 0.0
    return math.fsum((x - m) * (y - m) for x, y in itertools.pairwise(values)) / whole
