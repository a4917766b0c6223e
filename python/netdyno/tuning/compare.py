"""Is B better than A, worse, or the same? Judged over pairs of trials; pure.

A win must survive the correction for all that was tested, and a counter that says how it came about must have
moved too. A loss needs no explanation.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from netdyno.stats.compare import holm
from netdyno.stats.estimate import mean
from netdyno.stats.paired import Effect, detectable, effect, least_pairs, signed_rank
from netdyno.tuning.counters import known
from netdyno.tuning.model import Metric
from netdyno.tuning.trials import Pair, both, valid


class Verdict(StrEnum):
    """What is known of a difference."""

    BETTER = "better"
    WORSE = "worse"
    UNEXPLAINED = "unexplained"
    """It would be a win, but no counter of the mechanism moved."""
    NO_EFFECT = "no effect"
    """Whatever the difference is, it is too small to matter."""
    NOT_SHOWN = "not shown"
    """It may be something or nothing: more pairs would tell."""


@dataclass(frozen=True)
class Moved:
    """A counter of the mechanism."""

    name: str
    a: float
    b: float
    """Means over trials."""
    p: float
    moved: bool


@dataclass(frozen=True)
class Finding:
    """What is known of one metric."""

    metric: Metric
    effect: Effect
    p_holm: float
    detectable: float
    """The least change that these pairs could find."""
    verdict: Verdict


@dataclass(frozen=True)
class Comparison:
    """A and B over all metrics."""

    findings: tuple[Finding, ...]
    counters: tuple[Moved, ...]
    pairs: int
    dropped: int
    """Pairs that do not count, as a trial was disturbed."""
    level: float
    matters: float

    def verdict(self, metric: str) -> Verdict:
        """Of one metric."""
        return next(one.verdict for one in self.findings if one.metric.name == metric)

    @property
    def mechanism(self) -> bool:
        """Whether a counter that explains a difference moved."""
        return any(one.moved for one in self.counters)

    def as_dict(self) -> dict[str, Any]:
        """For JSON, which has no infinity."""
        plain = asdict(self)
        plain["metrics"] = plain.pop("findings")
        return dict(finite(plain))


def judge(
    pairs: Sequence[Pair],
    metrics: Mapping[str, Metric],
    mechanism: Sequence[str],
    *,
    level: float = 0.05,
    matters: float = 0.05,
    noise: Mapping[str, tuple[float, int]] | None = None,
    seed: int = 1,
) -> Comparison:
    """Judge pairs of trials.

    `mechanism`: the counters that say how a win came about. `matters`: the least change that is worth the
    name. `noise`: from a calibration, the spread of each metric and from how many pairs it is known.
    """
    counted = valid(pairs)
    if not counted:
        return Comparison((), (), 0, len(pairs), level, matters)
    seen = {name: 0.0 for pair in counted for one in pair for name in one.counters}
    moved = tuple(_moved(name, counted, level) for name in known(mechanism, seen))
    effects: dict[str, Effect] = {}
    for name, metric in metrics.items():
        if together := both(counted, name):
            a, b = zip(*together, strict=True)
            effects[name] = effect(a, b, absolute=metric.zero_is_best, confidence=1 - level, seed=seed)
    corrected = holm([one.p for one in effects.values()])
    findings = []
    for (name, found), p in zip(effects.items(), corrected, strict=True):
        metric = metrics[name]
        spread, pairs_known = (noise or {}).get(name) or (_spread(found), found.n)
        least = math.inf if found.absolute else detectable(spread, pairs_known, found.n, level / len(effects))
        verdict = _verdict(metric, found, p, level, matters, any(one.moved for one in moved))
        findings.append(Finding(metric, found, p, least, verdict))
    return Comparison(tuple(findings), moved, len(counted), len(pairs) - len(counted), level, matters)


def repeats(metrics: int, level: float, wanted: int = 8) -> int:
    """As many pairs as are wanted, or as it takes to prove anything at all of so many metrics."""
    return max(wanted, least_pairs(level, metrics))


def _verdict(metric: Metric, e: Effect, p: float, level: float, matters: float, explained: bool) -> Verdict:
    if p <= level and e.change != 0:
        if (e.change > 0) != (metric.better == "higher"):
            return Verdict.WORSE
        return Verdict.BETTER if explained else Verdict.UNEXPLAINED
    if e.interval is None:
        return Verdict.NOT_SHOWN
    bound = matters * abs(e.a) if e.absolute else matters
    return Verdict.NO_EFFECT if -bound <= e.interval[0] and e.interval[1] <= bound else Verdict.NOT_SHOWN


def _spread(e: Effect) -> float:
    """The noise, where no calibration tells it: from how the two sides vary by themselves."""
    return math.hypot(e.a_sd / e.a if e.a else 0.0, e.b_sd / e.b if e.b else 0.0)


def _moved(name: str, pairs: Sequence[Pair], level: float) -> Moved:
    a = [one.counters.get(name, 0.0) for one, _ in pairs]
    b = [one.counters.get(name, 0.0) for _, one in pairs]
    p = signed_rank([y - x for x, y in zip(a, b, strict=True)])
    # with the few pairs of a quick check no test can tell: there every pair must agree, and by much
    apart = max(a) < min(b) or max(b) < min(a)
    few = len(pairs) < least_pairs(level)
    return Moved(name, mean(a), mean(b), p, apart if few else p <= level)


def finite(value: Any) -> Any:
    """Without infinities and what is no number, which JSON does not have."""
    if isinstance(value, dict):
        return {key: finite(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [finite(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
