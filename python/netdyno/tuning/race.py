"""Many candidates, few trials: 2, 4, then 8 blocks, and after each the hopeless ones leave.

A race only chooses. Whoever wins was lucky too, so that what it measured flatters it: the claim is made from
fresh pairs that the choice has not seen.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from netdyno.stats.estimate import mean, sd
from netdyno.stats.paired import blocks
from netdyno.tuning.compare import Comparison, judge
from netdyno.tuning.model import Bench, Observation, Setting
from netdyno.tuning.trials import Limits, Progress, gated, measure_pairs

STAGES = (2, 4, 8)


@dataclass(frozen=True)
class Standing:
    """How a candidate did."""

    setting: Setting
    blocks: int
    gain: float
    """Mean log ratio to the baseline; above 0 is better."""
    left: int | None
    """The stage after which it left; None: it stayed to the end."""


@dataclass(frozen=True)
class Race:
    """Who won, and whether it is really better than the baseline."""

    standings: tuple[Standing, ...]
    """The best first."""
    proof: Comparison | None
    """From fresh pairs; None when no candidate beat the baseline."""

    @property
    def best(self) -> Setting:
        """The winner's setting."""
        return self.standings[0].setting


def race(
    bench: Bench,
    candidates: Sequence[Setting],
    metric: str,
    mechanism: Sequence[str],
    seed: int,
    *,
    stages: Sequence[int] = STAGES,
    level: float = 0.05,
    limits: Limits | None = None,
    progress: Progress = lambda done, of, seen: None,
) -> Race:
    """Let candidates run against the baseline, then measure the best afresh."""
    sign = 1.0 if bench.metrics[metric].better == "higher" else -1.0
    gains: list[list[float]] = [[] for _ in candidates]
    left: dict[int, int] = {}
    done = 0
    for stage in stages:
        live = [i for i in range(len(candidates)) if i not in left]
        arms: list[Setting] = [{}, *(candidates[i] for i in live)]
        for block in blocks(len(arms), stage - done, seed + stage):
            seen: dict[int, Observation] = {}
            for place, arm in enumerate(block):
                seen[arm] = gated(bench.measure(arms[arm], seed * 1009 + stage), limits or Limits())
                progress(done * len(arms) + place + 1, stages[-1] * len(arms), seen[arm])
            for arm, i in enumerate(live, 1):
                if (ratio := _log_ratio(seen[0], seen[arm], metric)) is not None:
                    gains[i].append(sign * ratio)
        done = stage
        for i in _hopeless(live, gains):
            left[i] = stage
    order = sorted(range(len(candidates)), key=lambda i: (-left.get(i, stages[-1] + 1), -_mean(gains[i])))
    standings = tuple(Standing(candidates[i], len(gains[i]), _mean(gains[i]), left.get(i)) for i in order)
    if not standings or standings[0].gain <= 0:
        return Race(standings, None)
    fresh = measure_pairs(
        bench, {}, standings[0].setting, stages[-1], seed + 1, limits=limits, progress=progress
    )
    return Race(standings, judge(fresh, {metric: bench.metrics[metric]}, mechanism, level=level))


def _hopeless(live: Sequence[int], gains: Sequence[Sequence[float]]) -> list[int]:
    """Those clearly behind the best, by two standard errors; and of the others the worse half."""
    ranked = sorted(live, key=lambda i: -_mean(gains[i]))
    noise = _mean([sd(gains[i]) for i in live if len(gains[i]) > 1])
    best = ranked[0]

    def behind(i: int) -> bool:
        error = noise * math.sqrt(2 / max(1, len(gains[i])))
        return _mean(gains[best]) - _mean(gains[i]) > 2 * error

    stay = [i for i in ranked if i == best or not behind(i)][: math.ceil(len(ranked) / 2)]
    return [i for i in ranked if i not in stay]


def _mean(values: Sequence[float]) -> float:
    return mean(values) if values else -math.inf


def _log_ratio(base: Observation, seen: Observation, metric: str) -> float | None:
    a, b = base.metrics.get(metric, 0.0), seen.metrics.get(metric, 0.0)
    return math.log(b / a) if base.valid and seen.valid and a > 0 and b > 0 else None
