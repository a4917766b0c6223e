"""In how many trials of a comparison each setting broke a service level objective; pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from netdyno.lab.workload.slo import Slo
from netdyno.stats.observation import Observation
from netdyno.stats.pairs import Pair


@dataclass(frozen=True)
class SloOutcome:
    """One SLO over the trials that count."""

    slo: str
    """As it was written: `p99 <= 50ms`."""
    trials: int
    """Of each setting."""
    a: int
    b: int
    """Trials that broke it."""

    @property
    def summary(self) -> str:
        """In a sentence."""
        return f"{self.slo}: broken in {self.a} of {self.trials} trials of A, {self.b} of {self.trials} of B"


def judge(slos: Sequence[Slo], pairs: Sequence[Pair]) -> list[SloOutcome]:
    """Each SLO over all pairs that count."""
    counted = [(a, b) for a, b in pairs if a.valid and b.valid]
    return [
        SloOutcome(
            one.text,
            len(counted),
            sum(_broken(one, a) for a, _ in counted),
            sum(_broken(one, b) for _, b in counted),
        )
        for one in slos
    ]


def _broken(slo: Slo, seen: Observation) -> bool:
    return slo.metric in seen.metrics and slo.excess(seen.metrics[slo.metric]) > 0
