"""What rounds tell: an estimate with its interval; that alone decides verdict and goals.

A ratio is judged over the pairs of rounds, by Wilcoxon's signed-rank interval of their logarithms; a
figure of our own by the same interval of its rounds.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from netdyno.stats.ranks import SignedRanks

LEVEL = 0.05
LEAST = 6
"""Pairs without which no interval of 95 % exists: 2 / 2⁶ is the first that is below 5 %."""


@dataclass(frozen=True)
class Estimate:
    """The middle of so many figures (Hodges-Lehmann), and the interval that holds it; None of too few."""

    centre: float
    interval: tuple[float, float] | None
    n: int

    def __str__(self) -> str:
        if self.interval is None:
            return f"{self.n} of at least {LEAST}"
        low, high = self.interval
        return f"[{_short(low)}, {_short(high)}]"


def of_figures(figures: Sequence[float]) -> Estimate | None:
    """What rounds tell of one figure; None without any."""
    if not figures:
        return None
    ranks = SignedRanks(figures)
    return Estimate(ranks.centre, ranks.interval(LEVEL), len(figures))


def of_ratio(pairs: Sequence[tuple[float, float]], *, lower: bool) -> Estimate | None:
    """What pairs of (ours, peer) tell of the ratio, above 1 where ours is better; None without any.

    `lower`: less is better. A pair in which one side measured nothing has no ratio.
    """
    logs = [math.log(peer / ours if lower else ours / peer) for ours, peer in pairs if ours > 0 and peer > 0]
    found = of_figures(logs)
    if found is None:
        return None
    low, high = found.interval or (None, None)
    interval = None if low is None or high is None else (math.exp(low), math.exp(high))
    return Estimate(math.exp(found.centre), interval, found.n)


def verdict(ratio: Estimate | None) -> str:
    """In a word, and never more than the interval bears."""
    if ratio is None or ratio.interval is None:
        return f"no verdict: {ratio.n if ratio else 0} pairs of at least {LEAST}"
    low, high = ratio.interval
    return "slower" if high < 1 else "faster" if low > 1 else "no difference shown"


@dataclass(frozen=True)
class Goal:
    """What a figure of ours should be, or its ratio to the peer's.

    `exact`: every round must meet it, as a count that has to be right.
    """

    least: float = -math.inf
    most: float = math.inf
    ratio: bool = False
    exact: bool = False

    def judge(self, ours: Sequence[float], ratio: Estimate | None) -> str:
        """`reached` where the whole interval is within the bounds, `missed` where all of it is beyond one."""
        if self.exact:
            if not ours:
                return "not decided: no round"
            return "reached" if all(self.least <= figure <= self.most for figure in ours) else "missed"
        found = ratio if self.ratio else of_figures(ours)
        if found is None or found.interval is None:
            of = "pairs" if self.ratio else "rounds"
            return f"not decided: {found.n if found else 0} {of} of at least {LEAST}"
        low, high = found.interval
        if self.least <= low and high <= self.most:
            return "reached"
        return "missed" if high < self.least or low > self.most else f"not decided: {found}"

    def __str__(self) -> str:
        bounds = [("at least", self.least)] * (self.least > -math.inf) + [("at most", self.most)] * (
            self.most < math.inf
        )
        return " and ".join(f"{word} {bound:,.12g}{' ×' * self.ratio}" for word, bound in bounds)


@dataclass(frozen=True)
class Metric:
    """A figure of a case."""

    unit: str
    lower: bool = False
    goals: tuple[Goal, ...] = ()


def row(
    metric: Metric,
    ours: Sequence[float | None],
    peer: Sequence[float | None] | None = None,
    cannot: str | None = None,
) -> dict[str, Any] | None:
    """What is kept of a metric: medians, ratio, interval, verdict, goals, all rounds; None without ours.

    The rounds of both sides belong together by their place; None is one that does not count. `cannot` says
    what the machine does not allow: then nothing is said about the goals.
    """
    mine = [figure for figure in ours if figure is not None]
    if not mine:
        return None
    kept: dict[str, Any] = {"ours": statistics.median(mine), "peer": None, "ratio": None, "unit": metric.unit}
    ratio = None
    if peer is not None:
        pairs = [(a, b) for a, b in zip(ours, peer, strict=True) if a is not None and b is not None]
        theirs = [figure for figure in peer if figure is not None]
        ratio = of_ratio(pairs, lower=metric.lower)
        kept["peer"] = statistics.median(theirs) if theirs else None
        kept["ratio"] = ratio.centre if ratio else None
        kept["interval"] = list(ratio.interval) if ratio and ratio.interval else None
        kept["pairs"] = ratio.n if ratio else 0
        kept["verdict"] = verdict(ratio)
    kept["runs"] = {"ours": list(ours), "peer": list(peer or ())}
    goals = [goal for goal in metric.goals if peer is not None or not goal.ratio]
    if goals:
        kept["goals"] = {
            str(goal): f"not decided: {cannot}" if cannot else goal.judge(mine, ratio) for goal in goals
        }
    return kept


def _short(bound: float) -> str:
    return f"{bound:.3f}" if abs(bound) < 100 else f"{bound:,.0f}"
