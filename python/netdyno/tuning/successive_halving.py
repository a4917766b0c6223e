"""Successive halving: 2, 4, then 8 blocks, and after each round the worst candidates are eliminated.

A race only chooses. Whoever wins was lucky too, so that what it measured flatters it: no claim is made here,
but from fresh pairs that the choice has not seen.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from netdyno.experiment.measurer import SettingMeasurer
from netdyno.experiment.pairs import Progress
from netdyno.stats.estimate import mean, sd
from netdyno.stats.observation import Observation, Setting
from netdyno.stats.paired import blocks
from netdyno.stats.pairs import DisturbanceLimits, gated
from netdyno.tuning.gain import gain, has_metrics

STAGES = (2, 4, 8)


@dataclass(frozen=True)
class CandidateStanding:
    """Rank, blocks and gain of a candidate."""

    candidate: int
    """Its place among those that were given."""
    blocks: int
    gain: float
    """Mean over the baseline, as `gain.gain` has it: above 0 is better."""
    left: int | None
    """The stage after which it left; None: it stayed to the end."""


def successive_halving(
    bench: SettingMeasurer,
    base: Setting,
    candidates: Sequence[Setting],
    metric: str,
    seed: int,
    *,
    stages: Sequence[int] = STAGES,
    limits: DisturbanceLimits | None = None,
    progress: Progress = lambda done, of, seen: None,
) -> list[CandidateStanding]:
    """Let candidates run against the baseline; the best first."""
    measured = bench.metrics[metric]
    gains: list[list[float]] = [[] for _ in candidates]
    left: dict[int, int] = {}
    done = trials = 0
    for stage in stages:
        live = [i for i in range(len(candidates)) if i not in left]
        if done and len(live) < 2:
            break
        arms: list[Setting] = [base, *(candidates[i] for i in live)]
        rest = (stages[-1] - done) * len(arms)
        for number, block in enumerate(blocks(len(arms), stage - done, seed + stage), done):
            seen: dict[int, Observation] = {}
            for arm in block:
                seen[arm] = gated(
                    bench.measure(arms[arm], seed * 1009 + number), limits or DisturbanceLimits()
                )
                trials, rest = trials + 1, rest - 1
                progress(trials, trials + rest, seen[arm])
            for arm, i in enumerate(live, 1):
                if has_metrics(seen[0], metric) and has_metrics(seen[arm], metric):
                    gains[i].append(gain(measured, seen[arm].metrics[metric], seen[0].metrics[metric]))
        done = stage
        left |= dict.fromkeys(_eliminated(live, gains), stage)
    order = sorted(range(len(candidates)), key=lambda i: (-left.get(i, stages[-1] + 1), -_mean(gains[i])))
    return [CandidateStanding(i, len(gains[i]), _mean(gains[i]), left.get(i)) for i in order]


def _eliminated(live: Sequence[int], gains: Sequence[Sequence[float]]) -> list[int]:
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
