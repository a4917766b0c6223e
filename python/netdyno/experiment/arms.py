"""Several settings compared with each other: trials in blocks, each setting once a block, in an order drawn
for each block; then every two settings are judged over the blocks as pairs."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from netdyno.errors import Error
from netdyno.experiment.measurer import SettingMeasurer
from netdyno.experiment.pairs import RepeatBudget
from netdyno.experiment.permanent import alike
from netdyno.experiment.record import Record, TrialRecord
from netdyno.stats.comparison import Comparison, judge
from netdyno.stats.discards import Discard
from netdyno.stats.observation import Metric, Observation, Setting
from netdyno.stats.paired import blocks, least_pairs
from netdyno.stats.pairs import DisturbanceLimits, both

PHASE = "block"


@dataclass(frozen=True)
class Arm:
    """One of the settings that are compared."""

    name: str
    setting: Setting


Progress = Callable[[int, int, Arm, Observation, bool], None]
"""Told after each trial: how many are done, of how many, whose it was, what it saw, and whether an earlier
run measured it."""


@dataclass
class MeasuredArms:
    """What was seen of each arm, block by block."""

    arms: Sequence[Arm]
    seen: list[list[Observation]] = field(default_factory=list)
    """Of each arm, in the order of the blocks."""
    discarded: list[list[Observation]] = field(default_factory=list)
    """Of each arm, trials that were measured again."""
    again: Counter[str] = field(default_factory=Counter)

    def valid(self, arm: int) -> list[Observation]:
        """Of an arm, the trials that count."""
        return [one for one in self.seen[arm] if one.valid]


@dataclass(frozen=True)
class Contrast:
    """Two arms, judged over the blocks in which both count."""

    a: int
    b: int
    comparison: Comparison
    pairs: Mapping[str, Sequence[tuple[float, float]]]
    """Of each metric, the values of both in each pair that counts."""

    def document(self, arms: Sequence[Arm]) -> dict[str, Any]:
        """As JSON."""
        made = self.comparison.as_dict()
        for one in made["metrics"]:
            one["pairs"] = [list(pair) for pair in self.pairs[one["metric"]["name"]]]
        return {"a": arms[self.a].name, "b": arms[self.b].name, **made}


def named(settings: Sequence[tuple[str, Setting]]) -> list[Arm]:
    """Arms by name; a setting that comes again is an arm too: a comparison of it with itself."""
    times: Counter[str] = Counter()
    found = []
    for name, setting in settings:
        times[name] += 1
        found.append(Arm(f"{name} ({times[name]})" if times[name] > 1 else name, setting))
    return found


def least_blocks(arms: int, metrics: int, level: float) -> int:
    """With fewer blocks no difference could be shown of any metric between any two arms."""
    return least_pairs(level / max(1, arms * (arms - 1) // 2), metrics)


def measure_blocks(
    record: Record,
    bench: SettingMeasurer,
    arms: Sequence[Arm],
    count: int,
    seed: int,
    *,
    spare: int | None = None,
    limits: DisturbanceLimits | None = None,
    progress: Progress = lambda done, of, arm, seen, kept: None,
) -> MeasuredArms:
    """Measure so many blocks; what the record has is not measured again."""
    found = MeasuredArms(arms, [[] for _ in arms], [[] for _ in arms])
    rest = RepeatBudget(count * len(arms) if spare is None else spare)
    done = fresh = 0
    for number, order in enumerate(blocks(len(arms), count, seed)):
        for place in order:
            tries: list[TrialRecord] = []

            def after(trial: TrialRecord, arm: Arm = arms[place], tries: list[TrialRecord] = tries) -> None:
                nonlocal done, fresh
                done += 1
                tries.append(trial)
                kept, fresh = record.fresh == fresh, record.fresh
                progress(done, count * len(arms) + rest.again.total(), arm, trial.observation, kept)

            index = number * len(arms) + place
            trial = record.measure_with_repeats(
                bench, PHASE, index, arms[place].setting, seed * 100_003 + number, rest, limits, after
            )
            found.seen[place].append(trial.observation)
            found.discarded[place] += [one.observation for one in tries[:-1]]
        _works([seen[-1] for seen in found.seen], number)
    found.again = rest.again
    return found


def _works(block: Sequence[Observation], number: int) -> None:
    """Raise if in the first block all trials failed, and alike: more of them would too."""
    why = {alike(one.why) for one in block if not one.metrics}
    if number == 0 and len(why) == 1 and not any(one.metrics for one in block):
        what = f"all {len(block)} trials of the first block failed in the same way: {block[0].why}"
        raise Error("ND-91-25", what, fix="Make the load work first: run it by itself, and see what it says")


def contrasts(
    found: MeasuredArms, metrics: Mapping[str, Metric], *, level: float = 0.05, matters: float = 0.05
) -> list[Contrast]:
    """Every two arms. The level is shared by all comparisons (Bonferroni), in each by all metrics (Holm)."""
    every = list(itertools.combinations(range(len(found.arms)), 2))
    made = []
    for a, b in every:
        pairs = list(zip(found.seen[a], found.seen[b], strict=True))
        discarded = [
            Discard(is_b, one)
            for is_b, arm in ((False, a), (True, b))
            for one in found.discarded[arm]
        ]  # fmt: skip
        comparison = judge(pairs, metrics, (), level=level / len(every), matters=matters, discarded=discarded)
        values = {one.metric.name: both(pairs, one.metric.name) for one in comparison.findings}
        made.append(Contrast(a, b, comparison, values))
    return made
