"""Trials that do not count, compared between the two settings; pure.

A trial is discarded since the machine was disturbed, or since it saw nothing. Where the setting itself is
the cause, its bad trials go and its good ones stay. So a comparison is invalid if the settings lost unequal
shares of their trials (Fisher's exact test at 5 %). It is so too if the setting that it favours lost more
trials than the other, and more of these saw nothing, or the means do not differ in its favour any more (by
1.28 standard errors, one-sided 10 %) once the discarded trials count as they were measured.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from netdyno.stats.estimate import mean, sd
from netdyno.stats.observation import Metric, Observation
from netdyno.stats.pairs import Pair

LEVEL = 0.05
"""Of the test whether both settings lost equal shares of their trials."""

SE = 1.28
"""Standard errors by which a claim must hold with the discarded trials counted too: one-sided, 10 %."""


@dataclass(frozen=True)
class Discard:
    """A trial that does not count and was measured again."""

    b: bool
    """Whether it is one of B's."""
    seen: Observation


@dataclass(frozen=True)
class Discards:
    """Trials of A and of B, and those of them that do not count."""

    trials: tuple[int, int] = (0, 0)
    discarded: tuple[int, int] = (0, 0)
    failed: tuple[int, int] = (0, 0)
    """Those of the discarded that saw nothing."""
    p: float = 1.0
    """Of the test that both lost equal shares."""

    @property
    def works_not(self) -> bool:
        """Whether nothing came of any trial of B, while A works."""
        return 0 < self.trials[1] == self.failed[1] and self.failed[0] < self.trials[0]

    @property
    def differ(self) -> bool:
        """Whether the test says that they did not."""
        return self.p <= LEVEL


def trials_of(pairs: Sequence[Pair], again: Sequence[Discard]) -> tuple[list[Observation], list[Observation]]:
    """All trials of A and of B, with those that were measured again."""
    a, b = [one for one, _ in pairs], [two for _, two in pairs]
    return a + [d.seen for d in again if not d.b], b + [d.seen for d in again if d.b]


def discards(pairs: Sequence[Pair], again: Sequence[Discard]) -> Discards:
    """How many trials of each setting do not count."""
    a, b = trials_of(pairs, again)
    lost = [[one for one in side if not one.valid] for side in (a, b)]
    gone, failed = [len(side) for side in lost], [sum(not one.metrics for one in side) for side in lost]
    return Discards(
        (len(a), len(b)), (gone[0], gone[1]), (failed[0], failed[1]),
        fisher(gone[0], len(a), gone[1], len(b)),
    )  # fmt: skip


def works_not(found: Discards, pairs: Sequence[Pair], again: Sequence[Discard]) -> str:
    """That the load never gets through with B, in its own words; empty where it does."""
    if not found.works_not:
        return ""
    _, b = trials_of(pairs, again)
    why = Counter(one.why for one in b).most_common(1)[0][0]
    (without, failed), (of_a, of) = found.failed, found.trials
    said = f"{failed} of {of} trials failed ({why}), {without} of {of_a} without it"
    return f"does not work with the setting: {said}"


def fisher(a: int, of_a: int, b: int, of_b: int) -> float:
    """Two-sided p value of Fisher's exact test: `a` of `of_a` trials against `b` of `of_b`."""
    whole, lost = of_a + of_b, a + b

    def ways(k: int) -> int:
        return math.comb(of_a, k) * math.comb(of_b, lost - k)

    seen = ways(a)
    least, most = max(0, lost - of_b), min(lost, of_a)
    extreme = sum(one for k in range(least, most + 1) if (one := ways(k)) <= seen)
    return extreme / math.comb(whole, lost) if whole else 1.0


def against(
    found: Discards, metric: Metric, b_favoured: bool, pairs: Sequence[Pair], again: Sequence[Discard]
) -> str:
    """Why the discarded trials speak against a claim that favours one setting; empty where they do not."""
    mine, other = (1, 0) if b_favoured else (0, 1)
    if found.discarded[mine] <= found.discarded[other]:
        return ""
    if found.failed[mine] > found.failed[other]:
        return f"{found.failed[mine]} of its trials saw nothing, {found.failed[other]} of the other's"
    a, b = (_values(metric, side) for side in trials_of(pairs, again))
    if not a or not b:
        return ""
    if not metric.zero_is_best and min(*a, *b) > 0:
        a, b = [math.log(v) for v in a], [math.log(v) for v in b]
    upwards = b_favoured == (metric.better == "higher")
    moved = (mean(b) - mean(a)) * (1 if upwards else -1)
    error = math.sqrt(sd(a) ** 2 / len(a) + sd(b) ** 2 / len(b))
    return "" if moved > SE * error else f"with the discarded trials counted, {metric.name} does not say so"


def _values(metric: Metric, side: Sequence[Observation]) -> list[float]:
    found = (one.metrics.get(metric.name, math.nan) for one in side)
    return [value for value in found if math.isfinite(value)]


def sentence(found: Discards, why: str = "") -> str:
    """That the discards are unequal, in a sentence."""
    (a, b), (of_a, of_b) = found.discarded, found.trials
    return f"unequal discards: {b} of {of_b} trials with the setting, {a} of {of_a} without it{why}"
