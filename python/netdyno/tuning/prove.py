"""Measure again, fresh and in turn with the baseline: what a search found best is the luckiest of many.

Trials of a proof belong to that proof alone: baseline and candidates take turns in fresh blocks, and a
search that goes on and proposes something else begins another proof, at a smaller share of the level
(`stats/sequential.py`), so that the chance that any of them is false is the level. How many pairs a proof
takes is planned from the noise before the first of them, and never fewer than can prove anything. What is
disturbed is measured again within what there is to spare; if too few pairs are left all the same, that is
the verdict, and nothing else is.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from netdyno.experiment.measurer import SettingMeasurer
from netdyno.experiment.pairs import RepeatBudget
from netdyno.experiment.record import Record, TrialRecord
from netdyno.stats.comparison import Comparison, Finding, Verdict, judge
from netdyno.stats.discards import Discard
from netdyno.stats.observation import Metric, Setting
from netdyno.stats.paired import blocks, least_pairs
from netdyno.stats.power import ASSUMED, detectable, pairs_for
from netdyno.stats.sequential import share
from netdyno.tuning.gain import unmeasured

MATTERS = 0.05
"""The least change that a proof is planned for."""
EXTRA = 2
"""Pairs beyond those without which it could prove nothing: one that disagrees is not the end of it."""
MOST = 24
"""Pairs that noise may ask for; beyond them only --pairs goes."""

_METRIC = re.compile(r"[a-z][a-z0-9_]*")


@dataclass(frozen=True)
class Limit:
    """What a metric or a counter must not exceed."""

    name: str
    most: float
    upper: bool = True
    """Whether it is the most; else it is the least."""

    @property
    def label(self) -> str:
        """The name that it has in documents."""
        return self.name if self.upper else f"{self.name} (least)"

    def check(self, metrics: Iterable[str], counters: Iterable[str] | None = None) -> None:
        """Refuse a name that nothing has: it would never be broken. Without counters, which only trials
        tell, that of a metric: counters have capitals or dots."""
        there = list(counters or ())
        may_count = counters is None and not _METRIC.fullmatch(self.name)
        if self.name not in (*metrics, *there) and not may_count:
            raise unmeasured(self.name, metrics, "--limit", there)

    def broken(self, trial: TrialRecord) -> float:
        """By how much a trial breaks it; what a trial did not see breaks nothing."""
        seen = trial.observation
        beyond = seen.metrics.get(self.name, seen.counters.get(self.name, self.most)) - self.most
        return beyond if self.upper else -beyond


@dataclass(frozen=True)
class ProofPlan:
    """Plan of a proof: pairs, repeats and detectable effects."""

    pairs: int
    least: int
    """With fewer nothing can be proven."""
    spare: int
    """Trials that may be measured again."""
    arms: int
    """Settings that take turns, with the baseline."""
    detectable: Mapping[str, float]
    """By objective: the least change that so many pairs find with a power of 80 %."""
    number: int = 1
    """Of the proofs of this study."""
    level: float = 0.05
    """What it spends of the significance level of the study."""
    assumed: str = ASSUMED
    """What `detectable` rests on."""


def resume_or_plan(
    record: Record,
    settings: Sequence[Setting],
    level: float,
    pairs: int | None,
    make: Callable[..., ProofPlan],
) -> ProofPlan:
    """The proof of these settings: one that was begun before and has the pairs that are wanted goes on, with
    the trials that are its own; else it is another.

    `make` plans it for a level, a number of pairs and a spare.
    """
    arms = [dict(one) for one in settings]
    begun = record.noted("proof")
    own = next((p for p in begun if p["arms"] == arms and (pairs or 0) <= p["pairs"]), None)
    if own is None:
        number = len(begun) + 1
        made = replace(make(share(level, number), pairs, None), number=number, level=share(level, number))
        record.note("proof", number=number, arms=arms, pairs=made.pairs, level=made.level)
        return made
    number = int(own["number"])
    # what it was judged by is what it stays
    judged = next((p for p in record.noted("proof judged") if p["number"] == number), None)
    spare = int(judged["spare"]) if judged else None
    made = make(share(level, number), int(own["pairs"]), spare)
    return replace(made, number=number, level=share(level, number))


def plan(
    metrics: Mapping[str, Metric],
    seen: Mapping[str, float],
    spread: Mapping[str, float],
    known_from: int,
    *,
    arms: int,
    level: float,
    pairs: int | None = None,
    spare: int | None = None,
) -> ProofPlan:
    """As many pairs as find half of what was seen of each objective, the other half being luck.

    `spread` is the robust scale of one trial of the baseline, known from so many. What happens by chance in
    counts has no such noise: for these it is as few as can prove.
    """
    each, tests = level / len(seen), len(metrics)
    least = least_pairs(each, tests)
    noise = {o: math.sqrt(2) * spread[o] for o in seen if not metrics[o].zero_is_best}
    wanted = [least + EXTRA]
    for objective, one in noise.items():
        change = max(MATTERS, math.expm1(min(seen[objective] / 2, 700.0)))
        wanted.append(pairs_for(change, one, known_from, max(MOST, wanted[0]), each, tests))
    count = max(wanted) if pairs is None else max(pairs, least)
    found = {o: detectable(one, known_from, count, each, tests=tests) for o, one in noise.items()}
    return ProofPlan(count, least, arms * count if spare is None else spare, arms, found)


@dataclass(frozen=True)
class ArmTrials:
    """Trials of one arm, that is of one setting."""

    trials: tuple[TrialRecord, ...]
    """One for each block."""
    discarded: tuple[TrialRecord, ...] = ()
    """Those that were measured again."""

    @property
    def failed(self) -> list[str]:
        """Why those saw nothing that did not, also those that were measured again."""
        every = (*self.discarded, *self.trials)
        return [t.observation.why for t in every if not t.observation.metrics]


def measure(
    bench: SettingMeasurer, record: Record, plan: ProofPlan, settings: Sequence[Setting], seed: int
) -> tuple[list[ArmTrials], RepeatBudget]:
    """What was measured of each setting, in blocks of drawn order, and what is left to spare."""
    spare = RepeatBudget(plan.spare)
    trials: list[list[TrialRecord]] = [[] for _ in settings]
    tries: list[list[TrialRecord]] = [[] for _ in settings]
    draw = seed * 1009 + plan.number
    for number, block in enumerate(blocks(len(settings), plan.pairs, draw)):
        # a block has one seed: where it decides what is asked, all are asked alike
        own = (seed * 1_000_003 + 3 * 100_003 + plan.number * 1009 + number) % 2**31
        for which in block:
            name = json.dumps(dict(settings[which]), sort_keys=True)
            phase = f"proof {plan.number} {name}"
            after = tries[which].append
            one = record.measure_with_repeats(bench, phase, number, settings[which], own, spare, after=after)
            tries[which].pop()
            trials[which].append(one)
    return [ArmTrials(tuple(t), tuple(d)) for t, d in zip(trials, tries, strict=True)], spare


@dataclass(frozen=True)
class Candidate:
    """A setting that looks best, and its trials, each beside one of the baseline."""

    objective: str
    """The metric for which it was chosen: it must get better."""
    setting: Setting
    mechanism: Mapping[str, Sequence[str]]
    """By parameter, the counters that tell how it is better."""
    measured: ArmTrials


@dataclass(frozen=True)
class Proof:
    """A setting beside the baseline."""

    objective: str
    setting: Setting
    comparison: Comparison
    broken: tuple[str, ...]
    """Limits that one of its trials did not keep."""
    failed: tuple[int, int] = (0, 0)
    """How many of its trials saw nothing, and how many of the baseline's."""
    why: str = ""
    """Why the first of its own did."""

    @property
    def finding(self) -> Finding | None:
        """What is known of the metric for which it was chosen."""
        return next((f for f in self.comparison.findings if f.metric.name == self.objective), None)

    @property
    def verdict(self) -> Verdict:
        """Of that metric."""
        return self.finding.verdict if self.finding else Verdict.TOO_FEW

    @property
    def fails(self) -> bool:
        """Whether trials fail with it that do not without it."""
        return self.failed[0] > self.failed[1]

    @property
    def proven(self) -> bool:
        """Better, and within the limits; how that comes about is another statement."""
        return self.verdict is Verdict.BETTER and not self.broken and not self.fails

    def document(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "objective": self.objective,
            "setting": dict(self.setting),
            "verdict": self.verdict.value,
            "proven": self.proven,
            "mechanism": self.comparison.mechanism.value,
            "broken": list(self.broken),
            "failed": list(self.failed),
            "why": self.why,
            "shortage": self.comparison.unequal
            or (self.comparison.shortage if self.verdict is Verdict.TOO_FEW else ""),
            "comparison": self.comparison.as_dict(),
        }


def prove(
    metrics: Mapping[str, Metric],
    baseline: ArmTrials,
    candidates: Sequence[Candidate],
    limits: Sequence[Limit] = (),
    level: float = 0.05,
    again: Mapping[str, int] | None = None,
) -> list[Proof]:
    """Judge each candidate; `level` is the chance that any of them is falsely called better or worse."""
    proofs = []
    for one in candidates:
        pairs = [
            (a.observation, b.observation) for a, b in zip(baseline.trials, one.measured.trials, strict=True)
        ]
        discarded = [
            Discard(b, t.observation)
            for b, side in ((False, baseline), (True, one.measured))
            for t in side.discarded
        ]
        compared = judge(
            pairs, metrics, one.mechanism, level=level / len(candidates), again=again, discarded=discarded
        )
        counted = [t for t in one.measured.trials if t.observation.valid]
        broken = [limit.label for limit in limits if any(limit.broken(t) > 0 for t in counted)]
        mine = one.measured.failed
        failed, why = (len(mine), len(baseline.failed)), mine[0] if mine else ""
        proofs.append(Proof(one.objective, one.setting, compared, tuple(broken), failed, why))
    return proofs
