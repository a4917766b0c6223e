"""Measure again, fresh and in turn with the baseline: what a search found best is the luckiest of many."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from netdyno.stats.compare import holm
from netdyno.stats.estimate import mean, sd, t_interval
from netdyno.tuning.gain import centre, change, gain, has
from netdyno.tuning.model import Metric, Setting
from netdyno.tuning.record import Trial


@dataclass(frozen=True)
class Limit:
    """What a metric or a counter must not exceed."""

    name: str
    most: float

    def broken(self, trial: Trial) -> float:
        """By how much a trial exceeds it; what is not there is not exceeded."""
        seen = trial.observation
        return seen.metrics.get(self.name, seen.counters.get(self.name, self.most)) - self.most


@dataclass(frozen=True)
class Shift:
    """What a setting does to a metric, over pairs of trials."""

    metric: str
    baseline: float
    value: float
    change: float
    """Of the metric: 0.5 is half as much again; of counts the difference."""
    interval: tuple[float, float]
    """Of the change."""
    gain: float
    pairs: int
    p: float
    """Corrected for how many were compared (Holm)."""
    better: bool
    """Proven so: the interval leaves out none, p holds, and the baseline does not do as much by itself."""
    worse: bool


@dataclass(frozen=True)
class Proof:
    """A setting beside the baseline."""

    setting: Setting
    why: str
    """What it was chosen for."""
    shifts: Mapping[str, Shift]
    within: bool
    """Whether every trial of it kept the limits."""
    broken: tuple[str, ...]
    proven: bool

    def document(self) -> dict[str, Any]:
        """As JSON."""
        return {**asdict(self), "broken": list(self.broken)}


def order(count: int, rounds: int, seed: int) -> list[list[int]]:
    """Which of `count` settings come when: each once in a round, every other round the other way about.

    Of two that is ABBA, so that what drifts evenly weighs on both alike.
    """
    draw = random.Random(seed)
    found: list[list[int]] = []
    while len(found) < rounds:
        one = list(range(count))
        draw.shuffle(one)
        found += [one, one[::-1]]
    return found[:rounds]


def prove(
    metrics: Mapping[str, Metric],
    objectives: Mapping[str, str],
    baseline: Sequence[Trial],
    others: Sequence[tuple[str, Setting, Sequence[Trial]]],
    limits: Sequence[Limit] = (),
    level: float = 0.05,
) -> list[Proof]:
    """Judge settings by their trials, each beside the baseline's of the same round.

    `objectives` says for which metric each of `others` (why, setting, trials) was chosen: it must get better.
    """
    shifts: list[dict[str, Shift]] = []
    for _, _, trials in others:
        found = (shift(m, baseline, trials, level) for m in metrics.values())
        shifts.append({s.metric: s for s in found if s is not None})
    every = [(i, s) for i, each in enumerate(shifts) for s in each.values()]
    for (i, s), p in zip(every, holm([s.p for _, s in every]), strict=True):
        held = p <= level
        shifts[i][s.metric] = Shift(
            **{**asdict(s), "p": p, "better": s.better and held, "worse": s.worse and held}
        )
    proofs = []
    for (why, setting, trials), mine in zip(others, shifts, strict=True):
        broken = [limit.name for limit in limits if any(limit.broken(t) > 0 for t in trials)]
        broken += ["failed trial"] * any(not t.observation.valid for t in trials)
        wanted = mine.get(objectives[why])
        proven = bool(wanted and wanted.better and not broken)
        proofs.append(Proof(setting, why, mine, not broken, tuple(broken), proven))
    return proofs


def shift(metric: Metric, baseline: Sequence[Trial], others: Sequence[Trial], level: float) -> Shift | None:
    """One metric over pairs of trials; None when fewer than three pairs can be judged."""
    pairs = [
        (a.observation.metrics[metric.name], b.observation.metrics[metric.name])
        for a, b in zip(baseline, others, strict=True)
        if has(a.observation, metric.name) and has(b.observation, metric.name)
    ]
    if len(pairs) < 3:
        return None
    before, after = zip(*pairs, strict=True)
    at = centre(metric, before)
    gains = [gain(metric, b, at) - gain(metric, a, at) for a, b in pairs]
    middle = mean(gains)
    low, high = t_interval(gains, 1 - level) or (middle, middle)
    # what two trials of the baseline are apart, over as many pairs, is no gain
    noise = sd([gain(metric, a, at) for a in before]) * math.sqrt(2 / len(pairs))
    floor = _quantile(len(pairs) - 1, 1 - level / 2) * noise
    ends = sorted((change(metric, low), change(metric, high)))
    return Shift(
        metric.name, at, centre(metric, after), change(metric, middle), (ends[0], ends[1]), middle,
        len(pairs), _p(gains), better=low > 0 and middle > floor, worse=high < 0 and middle < -floor,
    )  # fmt: skip


def _p(gains: Sequence[float]) -> float:
    """Student's test that the mean of paired gains is 0, on both sides."""
    spread = sd(gains)
    if spread == 0:
        return 1.0 if mean(gains) == 0 else 0.0
    # loaded when needed: commands that judge nothing start faster
    from scipy import special

    t = mean(gains) / (spread / math.sqrt(len(gains)))
    return float(2 * special.stdtr(len(gains) - 1, -abs(t)))


def _quantile(freedom: int, share: float) -> float:
    from scipy import special

    return float(special.stdtrit(freedom, share))
