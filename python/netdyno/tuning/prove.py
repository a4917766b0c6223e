"""Measure again, fresh and in turn with the baseline: what a search found best is the luckiest of many."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from netdyno.tuning.compare import Comparison, Finding, Verdict, judge
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
class Candidate:
    """A setting that looks best, and its trials, each beside one of the baseline."""

    objective: str
    """The metric for which it was chosen: it must get better."""
    setting: Setting
    mechanism: tuple[str, ...]
    """Counters of which one must have moved, or nobody knows why it is better."""
    trials: tuple[Trial, ...]


@dataclass(frozen=True)
class Proof:
    """A setting beside the baseline."""

    objective: str
    setting: Setting
    comparison: Comparison
    broken: tuple[str, ...]
    """Limits that one of its trials did not keep."""

    @property
    def finding(self) -> Finding | None:
        """What is known of the metric for which it was chosen."""
        return next((f for f in self.comparison.findings if f.metric.name == self.objective), None)

    @property
    def verdict(self) -> Verdict:
        """Of that metric; with fewer than two pairs that count nothing is shown."""
        return self.finding.verdict if self.finding else Verdict.NOT_SHOWN

    @property
    def proven(self) -> bool:
        """Better, for a reason that was seen, and within the limits."""
        return self.verdict is Verdict.BETTER and not self.broken

    def document(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "objective": self.objective,
            "setting": dict(self.setting),
            "verdict": self.verdict.value,
            "proven": self.proven,
            "broken": list(self.broken),
            "comparison": self.comparison.as_dict(),
        }


def prove(
    metrics: Mapping[str, Metric],
    baseline: Sequence[Trial],
    candidates: Sequence[Candidate],
    limits: Sequence[Limit] = (),
    level: float = 0.05,
) -> list[Proof]:
    """Judge each candidate; `level` is the chance that any of them is falsely called better or worse."""
    proofs = []
    for one in candidates:
        pairs = [(a.observation, b.observation) for a, b in zip(baseline, one.trials, strict=True)]
        compared = judge(pairs, metrics, one.mechanism, level=level / len(candidates))
        broken = [limit.name for limit in limits if any(limit.broken(t) > 0 for t in one.trials)]
        proofs.append(Proof(one.objective, one.setting, compared, tuple(broken)))
    return proofs
