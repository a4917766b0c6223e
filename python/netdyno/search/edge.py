"""Where the edge is between loads that meet a goal and loads that do not, from trials that do not all agree.

A DUT under the same load loses a frame in one trial and none in the next. So the edge has a width: the
chance that a trial meets the goal falls from 1 to 0 as a normal distribution does, around a middle at which
half of the trials do (probit regression, as for dose and response: Finney 1947). Middle and width are both
unknown. What the trials say of the middle is a distribution over a grid, summed over all widths; the interval
holds MASS of it. One trial in LAPSE may be wrong for a reason of its own, so that a single stray loss far
below the edge moves nothing.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from netdyno.search.trial import Goal, LoadTrial, Space, counting_trials

CONFIDENCE = 0.99
"""Of the interval that is stated: so often it held the truth of simulated DUTs, with noise and without."""
MASS = 0.995
"""Of the distribution that the interval holds. Trials are few and placed by what came before, which makes the
distribution a little narrow: with 0.99 it held the truth of DUTs with 0.5 % noise in 97 of 100 searches."""
LAPSE = 0.01
"""Share of trials that may tell the opposite, whatever the load."""
WIDTHS = np.geomspace(5e-4, 0.1, 11)
"""Standard deviations of the edge that are thought possible, as shares of its middle; all equally likely."""
POINTS, OUTER = 301, 60
"""Of the grid: near the edge, and over all loads."""
CANDIDATES = (0.005, 0.02, 0.08, 0.2, 0.35, 0.5, 0.65, 0.8, 0.92, 0.98, 0.995)
"""Where the next trial may be, in the distribution of the middle."""

Grid = NDArray[np.float64]


@dataclass(frozen=True)
class Edge:
    """What is known of the edge: the chance of each middle, of each width."""

    at: Grid
    """Middles."""
    joint: Grid
    """Chance of each middle (rows) with each width (columns); they add up to 1."""

    @property
    def chance(self) -> Grid:
        """Of each middle."""
        return np.asarray(self.joint.sum(axis=1), dtype=np.float64)

    def quantile(self, share: float) -> float:
        """The load below which the middle is with this chance."""
        return float(np.interp(share, np.cumsum(self.chance), self.at))

    def interval(self, mass: float = MASS) -> tuple[float, float]:
        """The load range that holds the middle."""
        rest = (1 - mass) / 2
        return self.quantile(rest), self.quantile(1 - rest)

    def tells_most(self) -> float:
        """The load of the trial after which least is expected to be unknown of the middle.

        Trials at the middle alone never tell how wide the edge is, and so not where it is: those a little
        above and below do (Kontsevich and Tyler 1999).
        """
        middles = np.log(self.at)
        candidates = np.unique([self.quantile(share) for share in CANDIDATES])
        best, least = candidates[0], math.inf
        for load in candidates:
            met = _chance(self.at, load)
            left = 0.0
            for weights in (self.joint * met, self.joint * (1 - met)):
                whole = weights.sum()
                if whole > 0:
                    chance = weights.sum(axis=1) / whole
                    mean = chance @ middles
                    left += whole * math.sqrt(max(0.0, float(chance @ (middles - mean) ** 2)))
            if left < least:
                best, least = load, left
        return float(best)


def _chance(at: Grid, load: float) -> Grid:
    """That a trial at a load meets the goal, for each middle and width."""
    spread = np.maximum(at[:, None] * WIDTHS[None, :], 1e-300)
    chance: Grid = np.asarray(LAPSE + (1 - 2 * LAPSE) * ndtr((at[:, None] - load) / spread))
    return chance


def estimate(goal: Goal, trials: Sequence[LoadTrial], space: Space) -> Edge | None:
    """What trials say of the edge; none while they do not have it between them."""
    seen = counting_trials(trials)
    good = [one.load for one in seen if goal.met(one)]
    bad = [one.load for one in seen if not goal.met(one)]
    if not bad:
        return None
    grid = _grid(good, bad, space)
    # trials at one load are one binomial: the grid is gone through once for each load
    passed, failed = Counter(good), Counter(bad)
    logs = np.zeros((len(grid), len(WIDTHS)))
    for load in passed.keys() | failed.keys():
        chance = _chance(grid, load)
        logs += passed[load] * np.log(chance) + failed[load] * np.log1p(-chance)
    # equally likely on a logarithmic axis, whatever the spacing of the grid
    logs += np.log(np.gradient(grid) / grid)[:, None]
    weights = np.exp(logs - logs.max())
    return Edge(grid, weights / weights.sum())


def _grid(good: Sequence[float], bad: Sequence[float], space: Space) -> Grid:
    """Points from the lowest load to above the highest, close together where trials disagree."""
    low, high = space.bottom * 0.9, space.most * 1.02
    inner = [min(bad), max((load for load in good), default=space.bottom)]
    margin = 8 * space.resolution * max(inner)
    left, right = max(low, min(inner) - margin), min(high, max(inner) + margin)
    fine = np.linspace(left, right, POINTS)
    outer = np.geomspace(low, high, OUTER)
    return np.unique(np.concatenate([fine, outer]))


def near(trials: Sequence[LoadTrial], edge: Edge, space: Space) -> list[LoadTrial]:
    """The trials that tell where the edge is: those at its interval, and a little beside it."""
    low, high = edge.interval()
    margin = 2 * space.resolution * high
    return [one for one in counting_trials(trials) if low - margin <= one.load <= high + margin]


def passes(goal: Goal, trials: Sequence[LoadTrial]) -> float | None:
    """The highest load of which every trial met the goal, and of every lower one too."""
    seen = counting_trials(trials)
    lowest = min((one.load for one in seen if not goal.met(one)), default=math.inf)
    return max((one.load for one in seen if goal.met(one) and one.load < lowest), default=None)
