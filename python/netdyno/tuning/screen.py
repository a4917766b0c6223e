"""Which parameters matter at all: Morris's elementary effects, held against what the bench does by itself.

A trajectory walks through the space and changes one parameter at each step; the change of the metric at
that step is one elementary effect of the parameter. Over several trajectories the mean of their sizes (mu*)
tells how much it matters, and their spread (sigma) whether that depends on the others. How large such a mean
is when nothing was changed is told by trials of the baseline between the trajectories, and by places on them
that are measured twice: what is quiet at the baseline may be loud elsewhere. The louder of the two decides
of which parameters an effect is shown. That of none is shown does not prove that there is none.

Some trials are far off, and one of them must not make its parameter matter. So the scale of the noise is a
robust one, its tails are taken for those of t with 2 degrees of freedom, and two means are held against it:
the trimmed one, without the largest quarter, sees what is alike in most steps; the plain one sees what is
very large in a few. The smaller p of the two counts, twice.

M. D. Morris, Technometrics 33 (1991) 161; F. Campolongo et al., Environ. Model. Softw. 22 (2007) 1509 for
mu*.
"""

from __future__ import annotations

import functools
import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import median
from typing import Any

from netdyno.errors import Error
from netdyno.experiment.measurer import SettingMeasurer
from netdyno.experiment.record import Record, TrialRecord
from netdyno.stats.estimate import mean, sd
from netdyno.stats.observation import Metric, Observation, Value
from netdyno.stats.power import NORMAL, TAILS, trial_scale
from netdyno.stats.unpaired import among, holm
from netdyno.tuning.gain import centre, gain, has_metrics, of_bench
from netdyno.tuning.model import NOT_TAKEN
from netdyno.tuning.patience import TIMES, hopeless
from netdyno.tuning.space import Axis, Space

LEVELS = 4
LEAST_AA = 6
"""Trials of the baseline without which its spread is too uncertain to judge by."""
AGAIN = 500
"""What the seed of a second time is apart from that of the first."""
BLOCK = 1009
"""Seeds of a trajectory: so many, of which those of second times are the last."""
TWICE = 2
"""Places of each trajectory that are measured twice."""
DRAWS = 20_000
CUT = 0.25
"""Share of a parameter's steps, the largest, that its trimmed mean leaves out; one of three at least."""
QUIET = 0.5
"""Where the baseline varies by less than this share of what the walks do, only theirs counts."""
TAKEN = "Another --baseline; with --global namespaces may use every congestion control that there is"


@dataclass(frozen=True)
class Step:
    """One step of a trajectory: this parameter went from one place to another."""

    name: str
    before: float
    after: float


@dataclass(frozen=True)
class Trajectory:
    """A walk: where it begins, and each step."""

    begin: Mapping[str, float]
    steps: tuple[Step, ...]

    def points(self) -> list[dict[str, float]]:
        """Every place on the way, the first included."""
        found = [dict(self.begin)]
        for step in self.steps:
            found.append({**found[-1], step.name: step.after})
        return found


@dataclass(frozen=True)
class Effect:
    """What a parameter does to a metric; a gain is positive where the metric gets better."""

    name: str
    metric: str
    mu: float
    mu_star: float
    sigma: float
    effects: tuple[float, ...]
    """Each elementary effect: the gain from the lower value to the higher."""
    failed: int
    """Steps that could not be judged, since a trial at one of their ends failed; cut short is no failure."""
    p: float | None
    """The chance that the bench's own spread gives such a mu*, corrected (Holm) for how many there are."""
    matters: bool | None
    """None when too few of its steps could be judged."""
    doubtful: bool
    """By itself it would stand out; among so many it may be luck."""
    least: float
    """The least mu* of so many steps, alike in all, that would have been named, given all that were."""
    better: Value | None
    """Towards which end of its bounds the metric gets better on the whole, or with which choice."""


@dataclass(frozen=True)
class Screening:
    """What a screening found."""

    level: float
    metrics: Mapping[str, Metric]
    reference: Mapping[str, float]
    """The baseline."""
    spread: Mapping[str, float]
    """How one trial of the baseline varies, as a gain: a robust standard deviation."""
    walking: Mapping[str, float]
    """The same of one trial on the trajectories."""
    visible: Mapping[str, float]
    """The least mu* that would have been named of any parameter, as a gain."""
    baseline: int
    trajectories: int
    effects: tuple[Effect, ...]
    """By metric, the largest first."""
    failed: int
    trials: tuple[TrialRecord, ...] = field(repr=False, default=())

    def of(self, metric: str) -> list[Effect]:
        """The effects on one metric, the largest first."""
        return [e for e in self.effects if e.metric == metric]

    def survivors(self) -> list[str]:
        """Parameters that matter for any metric, in the order in which they do."""
        return list(dict.fromkeys(e.name for e in self.effects if e.matters))

    def importance(self, metric: str) -> dict[str, float]:
        """Shares of what the parameters do to a metric together; those of which no effect is shown have none.

        Only trials of the screening are in it: those of a search crowd where it is good, and would make what
        they have in common look like what matters.
        """
        weight = {e.name: e.mu_star**2 if e.matters else 0.0 for e in self.of(metric)}
        total = sum(weight.values())
        return {name: w / total if total else 0.0 for name, w in weight.items()}

    def document(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "level": self.level,
            "baseline": {"trials": self.baseline, "values": dict(self.reference)},
            "spread": dict(self.spread),
            "walking": dict(self.walking),
            "visible": dict(self.visible),
            "trajectories": self.trajectories,
            "trials": len(self.trials),
            "failed": self.failed,
            "survivors": self.survivors(),
            "metrics": {
                name: {
                    "unit": m.unit,
                    "better": m.better,
                    "zero_is_best": m.zero_is_best,
                    "importance": self.importance(name),
                    "effects": [
                        {
                            "name": e.name, "mu": e.mu, "mu_star": e.mu_star, "sigma": e.sigma, "p": e.p,
                            "matters": e.matters, "doubtful": e.doubtful, "better": e.better,
                            "least": e.least,
                            "steps": len(e.effects), "failed": e.failed,
                        }
                        for e in self.of(name)
                    ],
                }
                for name, m in self.metrics.items()
            },
        }  # fmt: skip


def plan(space: Space, trajectories: int, seed: int) -> list[Trajectory]:
    """The walks of a screening, the same for the same seed."""
    draw = random.Random(seed)
    return [_walk(space, draw) for _ in range(trajectories)]


def _walk(space: Space, draw: random.Random) -> Trajectory:
    begin, ways = {}, {}
    for axis in space.axes:
        before, after = _ends(axis, draw)
        begin[axis.name], ways[axis.name] = before, Step(axis.name, before, after)
    order = list(ways.values())
    draw.shuffle(order)
    return Trajectory(begin, tuple(order))


def _ends(axis: Axis, draw: random.Random) -> tuple[float, float]:
    """Two places that are half the axis apart, in any order; of choices, any two."""
    levels = axis.levels(LEVELS)
    if axis.choices:
        first, second = draw.sample(levels, 2)
        return first, second
    half = max(1, len(levels) // 2)
    low = draw.randrange(len(levels) - half)
    ends = [levels[low], levels[low + half]]
    draw.shuffle(ends)
    return ends[0], ends[1]


def cost(space: Space, trajectories: int) -> int:
    """How many trials a screening takes."""
    return trajectories * (len(space.axes) + 1 + _twice(space)) + max(LEAST_AA, trajectories + 1)


def _twice(space: Space) -> int:
    return min(TWICE, len(space.axes) + 1)


def screen(
    bench: SettingMeasurer,
    space: Space,
    metrics: Sequence[str],
    record: Record,
    *,
    trajectories: int = 6,
    seed: int = 1,
    level: float = 0.05,
) -> Screening:
    """Walk the trajectories with trials of the baseline between them, and judge."""
    wanted = of_bench(bench.metrics, metrics)
    return judge_walks(space, wanted, walk(bench, space, record, trajectories, seed), level)


@dataclass(frozen=True)
class Walks:
    """The trials of a screening."""

    baseline: Sequence[TrialRecord]
    walked: Sequence[tuple[Trajectory, Sequence[TrialRecord]]]
    pairs: Sequence[tuple[TrialRecord, TrialRecord]]
    """Of those places that were measured twice."""

    def only(self, chosen: Callable[[TrialRecord], bool]) -> Walks:
        """Those of some trials; of a trajectory all or none."""
        return Walks(
            [one for one in self.baseline if chosen(one)],
            [(way, trials) for way, trials in self.walked if chosen(trials[0])],
            [(one, other) for one, other in self.pairs if chosen(one)],
        )


def judge_walks(space: Space, metrics: Sequence[Metric], walks: Walks, level: float) -> Screening:
    """What they say."""
    return judge(space, metrics, walks.baseline, walks.walked, walks.pairs, level)


def walk(bench: SettingMeasurer, space: Space, record: Record, trajectories: int, seed: int) -> Walks:
    """Walk the trajectories with trials of the baseline between them."""
    baseline: list[TrialRecord] = []
    walked: list[tuple[Trajectory, list[TrialRecord]]] = []
    pairs: list[tuple[TrialRecord, TrialRecord]] = []

    def rest(count: int) -> None:
        for _ in range(count):
            at = len(baseline)
            baseline.append(record.fair(bench, "baseline", at, {}, _seed(seed, 0, at)))
            if (why := baseline[-1].observation.why).startswith(NOT_TAKEN):
                # so will all that begin with it
                raise Error("ND-90-30", f"the baseline is {why}", fix=TAKEN)

    # those that the walks leave no gap for come first, where they also warm up what is cold
    rest(max(1, LEAST_AA - trajectories))
    for number, trajectory in enumerate(plan(space, trajectories, seed)):
        points, trials = trajectory.points(), list[TrialRecord]()
        twice = random.Random(_seed(seed, number + 1, 0)).sample(range(len(points)), _twice(space))
        for i, point in enumerate(points):
            setting, own = space.setting(point), _seed(seed, number + 1, i)
            trials.append(record.fair(bench, f"trajectory {number}", i, setting, own))
            if i in twice:
                other = record.fair(bench, f"trajectory {number} twice", i, setting, own + AGAIN)
                pairs.append((trials[-1], other))
        walked.append((trajectory, trials))
        rest(1)
    return Walks(baseline, walked, pairs)


def judge(
    space: Space,
    metrics: Sequence[Metric],
    baseline: Sequence[TrialRecord],
    walked: Sequence[tuple[Trajectory, Sequence[TrialRecord]]],
    pairs: Sequence[tuple[TrialRecord, TrialRecord]],
    level: float,
) -> Screening:
    """What the trials of a screening say."""
    names = [m.name for m in metrics]
    rested = [t.observation for t in baseline if has_metrics(t.observation, *names)]
    if len(rested) < 3:
        why = next((t.observation.why for t in baseline if t.observation.why), "they lack a metric")
        fix = "Make the baseline work first; `netdyno tune calibrate` looks at it alone"
        raise Error("ND-90-30", f"fewer than three trials of the baseline are valid: {why}", fix=fix)
    reference, spread, walking, visible = {}, {}, {}, {}
    effects: list[Effect] = []
    for metric in metrics:
        values = [o.metrics[metric.name] for o in rested]
        at = centre(metric, values)
        quiet, loud = _resting([gain(metric, v, at) for v in values]), _walking(metric, at, pairs)
        reference[metric.name], spread[metric.name], walking[metric.name] = at, quiet.scale, loud.scale
        noise = Noise(quiet, loud)
        found = [_effect(axis, metric, at, walked) for axis in space.axes]
        tested = _tested(found, noise, level)
        visible[metric.name] = min((e.least for e in tested), default=0.0)
        effects += tested
    every = [t for _, trials in walked for t in trials] + [other for _, other in pairs]
    return Screening(
        level=level,
        metrics={m.name: m for m in metrics},
        reference=reference,
        spread=spread,
        walking=walking,
        visible=visible,
        baseline=len(rested),
        trajectories=len(walked),
        effects=tuple(effects),
        failed=sum(not has_metrics(t.observation, *names) for t in [*every, *baseline]),
        trials=(*baseline, *every),
    )


@dataclass(frozen=True)
class Scale:
    """What one trial varies by when nothing was changed, as a standard deviation."""

    scale: float
    known_from: int
    """Trials, or places measured twice."""


@dataclass(frozen=True)
class Noise:
    """What steps are held against."""

    quiet: Scale
    """Of the baseline."""
    loud: Scale
    """Of the walks."""

    @property
    def scale(self) -> float:
        """The larger."""
        return max(self.quiet.scale, self.loud.scale)

    def null(self, steps: int) -> Null:
        """Means of so many steps, in parts of the scale, when nothing has an effect."""
        rested, twice = self.quiet.known_from, self.loud.known_from
        if self.quiet.scale < QUIET * self.loud.scale:
            rested = 0
        return _drawn(max(1, steps), rested, twice)


@dataclass(frozen=True)
class Null:
    """Means of steps in which nothing has an effect, sorted."""

    trimmed: Sequence[float]
    plain: Sequence[float]

    def p(self, sizes: Sequence[float]) -> float:
        """The chance of such sizes, in parts of the scale."""
        found = _beyond(self.trimmed, _trimmed(sizes)), _beyond(self.plain, mean(sizes))
        return min(1.0, 2 * min(found))

    def least(self, level: float, tests: int) -> float:
        """The size, alike in all steps, beyond which `p` is within the level, as one of so many tests."""
        return min(_least(self.trimmed, level / 2, tests), _least(self.plain, level / 2, tests))


def _resting(values: Sequence[float]) -> Scale:
    """From trials of the baseline."""
    # counts that are seldom anything else than nothing have a median difference of nothing
    return Scale(trial_scale(values) or sd(values), len(values))


def _walking(metric: Metric, reference: float, pairs: Sequence[tuple[TrialRecord, TrialRecord]]) -> Scale:
    """From places that were measured twice; of all walks together, as each parameter takes a step on each."""
    apart = [
        abs(
            gain(metric, b.observation.metrics[metric.name], reference)
            - gain(metric, a.observation.metrics[metric.name], reference)
        )
        for a, b in pairs
        if has_metrics(a.observation, metric.name) and has_metrics(b.observation, metric.name)
    ]
    if not apart:
        return Scale(0.0, 0)
    whole = (mean([d * d for d in apart]) / 2) ** 0.5
    return Scale(median(apart) / (NORMAL * math.sqrt(2)) or whole, len(apart))


def _gained(metric: Metric, seen: Observation, reference: float) -> float | None:
    """The gain of a trial; one that was cut short is as much worse as it was given longer."""
    if hopeless(seen) and not metric.zero_is_best:
        return -math.log(TIMES)
    return gain(metric, seen.metrics[metric.name], reference) if has_metrics(seen, metric.name) else None


def _effect(
    axis: Axis, metric: Metric, reference: float, walked: Sequence[tuple[Trajectory, Sequence[TrialRecord]]]
) -> Effect:
    steps: list[tuple[Step, float]] = []
    failed = 0
    for trajectory, trials in walked:
        for i, step in enumerate(trajectory.steps):
            if step.name != axis.name:
                continue
            before, after = (_gained(metric, trials[at].observation, reference) for at in (i, i + 1))
            if before is None or after is None:
                failed += 1
            else:
                steps.append((step, after - before))
    effects = tuple(moved if step.after > step.before else -moved for step, moved in steps)
    return Effect(
        axis.name, metric.name,
        mu=mean(effects) if effects else 0.0,
        mu_star=mean([abs(e) for e in effects]) if effects else 0.0,
        sigma=sd(effects), effects=effects, failed=failed, p=None, matters=None, doubtful=False,
        least=0.0, better=_better(axis, steps),
    )  # fmt: skip


def _trimmed(sizes: Sequence[float]) -> float:
    """Their mean without the largest."""
    return mean(sorted(sizes)[: len(sizes) - _cut(len(sizes))])


def _cut(steps: int) -> int:
    """How many of so many steps are left out."""
    return max(int(steps * CUT), int(steps > 2))


def _better(axis: Axis, steps: Sequence[tuple[Step, float]]) -> Value | None:
    """The end of the axis, or the choice, towards which the steps were gains."""
    if not steps:
        return None
    if not axis.choices:
        up = mean([moved if step.after > step.before else -moved for step, moved in steps])
        return axis.value(1 if up > 0 else 0)
    scores: dict[Value, list[float]] = {}
    for step, moved in steps:
        scores.setdefault(axis.value(step.after), []).append(moved)
        scores.setdefault(axis.value(step.before), []).append(-moved)
    return max(scores, key=lambda v: mean(scores[v]))


def _tested(found: Sequence[Effect], noise: Noise, level: float) -> list[Effect]:
    """With what is known of each: does it stand out of what trials vary by?"""
    judged = [e for e in found if len(e.effects) >= 2]
    p = []
    for e in judged:
        if noise.scale == 0:
            p.append(0.0 if e.mu_star > 0 else 1.0)
        else:
            p.append(noise.null(len(e.effects)).p([abs(one) / noise.scale for one in e.effects]))
    chances = dict(zip((e.name for e in judged), zip(p, holm(p), strict=True), strict=True))
    # those that are not named were held against the level of the first of them, those that are against less
    tests = min(among(p, level), default=1)
    tested = []
    for e in found:
        alone, corrected = chances.get(e.name, (None, None))
        matters = None if corrected is None else corrected <= level
        doubtful = matters is False and alone is not None and alone <= level
        better = e.better if matters else None
        least = noise.scale * noise.null(len(e.effects)).least(level, tests)
        tested.append(replace(e, p=corrected, matters=matters, doubtful=doubtful, better=better, least=least))
    return sorted(tested, key=lambda e: -e.mu_star)


@functools.cache
def _drawn(steps: int, rested: int, twice: int) -> Null:
    # loaded when needed: commands that judge nothing start faster
    import numpy as np

    draw = np.random.default_rng(1)

    def apart(count: int) -> Any:
        return np.abs(draw.standard_t(TAILS, (DRAWS, count)) - draw.standard_t(TAILS, (DRAWS, count)))

    sizes = np.sort(apart(steps))
    middle = np.zeros(DRAWS)
    if twice:
        middle = np.median(apart(twice), axis=1)
    if rested > 1:
        trials = draw.standard_t(TAILS, (DRAWS, rested))
        low, high = np.triu_indices(rested, 1)
        middle = np.maximum(middle, np.median(np.abs(trials[:, low] - trials[:, high]), axis=1))
    scale = middle / (NORMAL * math.sqrt(2))
    trimmed = sizes[:, : steps - _cut(steps)].mean(axis=1)
    return Null(sorted((trimmed / scale).tolist()), sorted((sizes.mean(axis=1) / scale).tolist()))


def _least(null: Sequence[float], level: float, tests: int) -> float:
    """The size beyond which `_beyond` is within the level, as one of so many tests."""
    # so many of the null may be as large
    rest = math.floor(level / tests * (len(null) + 1) + 1e-9) - 1
    return null[len(null) - 1 - min(max(0, rest), len(null) - 1)]


def _beyond(null: Sequence[float], size: float) -> float:
    """The share of the null that is at least so large; never none of it, as it was drawn."""
    from bisect import bisect_left

    return (len(null) - bisect_left(null, size) + 1) / (len(null) + 1)


def _seed(seed: int, block: int, index: int) -> int:
    return (seed * 1_000_003 + block * BLOCK + index) % 2**31
