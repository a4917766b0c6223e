"""Look for the best setting: a model of what was seen proposes the next trial, and the best is proven in the
end.

For one objective the model is a multivariate tree-structured Parzen estimator, for several it is NSGA-II,
both of Optuna. Trials that break a limit or fail teach it where not to go. What a search believes is best
is measured again, fresh and in turn with the baseline, before anything is claimed.
"""

from __future__ import annotations

import json
import logging
import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

from netdyno.errors import Error
from netdyno.experiment.measurer import SettingMeasurer
from netdyno.experiment.record import Record, TrialRecord
from netdyno.stats.comparison import Verdict, finite
from netdyno.stats.observation import Metric, Setting
from netdyno.stats.paired import least_pairs
from netdyno.stats.power import trial_scale
from netdyno.stats.sequential import share
from netdyno.tuning import pareto
from netdyno.tuning.gain import centre, gain, has_metrics, of_bench
from netdyno.tuning.prove import (
    EXTRA,
    MOST,
    Candidate,
    Limit,
    Proof,
    ProofPlan,
    measure,
    plan,
    prove,
    resume_or_plan,
)
from netdyno.tuning.space import Point, Space

if TYPE_CHECKING:
    import optuna

BASELINE = 3
"""Trials of the baseline before a search: they are part of its budget."""
RANDOM = 8
"""Trials before there is anything to model."""
POPULATION = 8
"""Of NSGA-II. Neither depends on the budget: a search may go on with a larger one."""
LOSS = 0.05
"""How much worse, as a gain, a setting may be without a parameter that it does not need."""
UP = 0.8
"""How far up the corners are where a search begins: at the very end there may be no memory left."""


@dataclass(frozen=True)
class Goal:
    """What is wanted."""

    objectives: tuple[str, ...]
    limits: tuple[Limit, ...] = ()


@dataclass(frozen=True)
class Budget:
    """How long to look."""

    trials: int = 30
    """With those of the baseline, without those of the proof."""
    seconds: float = math.inf
    patience: int | None = None
    """So many trials without anything better end it."""
    pairs: int | None = None
    """Trials of each setting in the proof; without a number, as many as the noise asks for."""
    spare: int | None = None
    """Trials of the proof that may be measured again; without a number, as many as it has."""


@dataclass(frozen=True)
class TrialPoint:
    """A measured setting: its trial, gains and broken limits."""

    setting: Setting
    trial: TrialRecord
    gains: Mapping[str, float]
    """Empty when it failed."""
    broken: tuple[str, ...]
    """Limits that it does not keep."""

    @property
    def feasible(self) -> bool:
        """Whether it may be proposed."""
        return bool(self.gains) and not self.broken

    @property
    def lost(self) -> bool:
        """Whether nothing is known of it, as its trial saw something and yet does not count."""
        return not self.gains and bool(self.trial.observation.metrics)


@dataclass(frozen=True)
class SearchOutcome:
    """A finished search: trials, Pareto front and proofs."""

    goal: Goal
    metrics: Mapping[str, Metric]
    reference: Mapping[str, float]
    spread: Mapping[str, float]
    tried: tuple[TrialPoint, ...]
    front: tuple[int, ...]
    """Places in `tried` of those that nothing dominates."""
    proofs: tuple[Proof, ...]
    """One for each objective."""
    ended: str
    """budget, time, patience."""
    baseline: tuple[TrialRecord, ...] = field(repr=False, default=())
    planned: ProofPlan | None = None
    """How the proof was measured; none where nothing looked better."""

    @property
    def too_few(self) -> bool:
        """Whether something cannot be told, as too few pairs of the proof count."""
        return any(p.verdict is Verdict.TOO_FEW for p in self.proofs)

    @property
    def invalid(self) -> bool:
        """Whether some proof is to be concluded nothing from."""
        return any(p.verdict in (Verdict.TOO_FEW, Verdict.INVALID) for p in self.proofs)

    @property
    def summary(self) -> str:
        """What came of it, in a sentence."""
        told = [f"for {p.objective}: {p.comparison.summary}" for p in self.proofs]
        return "; ".join(told) or "nothing looked better than the baseline"

    @property
    def proven(self) -> bool:
        """Whether anything was proven better."""
        return any(p.proven for p in self.proofs)

    def document(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "objectives": list(self.goal.objectives),
            "limits": {limit.label: limit.most for limit in self.goal.limits},
            "baseline": {"trials": len(self.baseline), "values": dict(self.reference)},
            "spread": dict(self.spread),
            "metrics": {
                n: {"unit": m.unit, "better": m.better, "zero_is_best": m.zero_is_best}
                for n, m in self.metrics.items()
            },
            "tried": [
                {
                    "setting": dict(t.setting), "metrics": dict(t.trial.observation.metrics),
                    "gains": dict(t.gains), "feasible": t.feasible, "broken": list(t.broken),
                    "lost": t.lost, "why": t.trial.observation.why,
                }
                for t in self.tried
            ],
            "front": list(self.front),
            "planned": finite(asdict(self.planned)) if self.planned else None,
            "proofs": [p.document() for p in self.proofs],
            "proven": self.proven,
            "ended": self.ended,
        }  # fmt: skip


Prover = Callable[[SearchOutcome, Mapping[str, Setting]], SearchOutcome]
"""Proves what was chosen for each objective of a search."""


def search(
    bench: SettingMeasurer,
    space: Space,
    goal: Goal,
    record: Record,
    *,
    budget: Budget | None = None,
    seed: int = 1,
    hints: Sequence[Setting] = (),
    level: float = 0.05,
    before_proof: Callable[[ProofPlan], None] = lambda planned: None,
    prover: Prover | None = None,
) -> SearchOutcome:
    """Look within the budget, beginning with the hints, and prove what was found; how, is told before.

    `prover` proves it in another way than by pairs on this bench."""
    budget = budget or Budget()
    of_bench(bench.metrics, goal.objectives, "--for")
    for limit in goal.limits:
        limit.check(bench.metrics)
    baseline = [record.fair(bench, "baseline", i, {}, _seed(seed, 0, i)) for i in range(BASELINE)]
    valid = [t.observation for t in baseline if has_metrics(t.observation, *goal.objectives)]
    if not valid:
        why = baseline[0].observation.why or "it lacks a metric"
        fix = "Make the baseline work first; `netdyno tune calibrate` looks at it alone"
        raise Error("ND-90-30", f"no trial of the baseline is valid: {why}", fix=fix)
    counters = {name for o in valid for name in o.counters}
    counters |= {name for a in space.axes for name in a.tunable.counters}
    for limit in goal.limits:
        limit.check(bench.metrics, counters)
    metrics = {n: m for n, m in bench.metrics.items() if all(has_metrics(o, n) for o in valid)}
    reference = {n: centre(m, [o.metrics[n] for o in valid]) for n, m in metrics.items()}
    gains = {n: [gain(m, o.metrics[n], reference[n]) for o in valid] for n, m in metrics.items()}
    spread = {n: trial_scale(values) for n, values in gains.items()}

    # loaded when needed: it takes longer than most commands
    from optuna.trial import TrialState

    study, distributions = _study(space, goal, seed)
    for point in [*map(space.point, hints), *corners(space)]:
        study.enqueue_trial(_params(space, point))
    tried: list[TrialPoint] = []
    ended, better_at = "budget", 0
    while len(baseline) + len(tried) < budget.trials:
        if record.took >= budget.seconds:
            ended = "time"
            break
        if budget.patience is not None and len(tried) - better_at >= budget.patience:
            ended = "patience"
            break
        asked = study.ask(distributions)
        setting = space.setting(_point(space, asked.params))
        trial = _measured(bench, record, setting, len(tried), seed)
        one = TrialPoint(setting, trial, _gains(metrics, goal, reference, trial), _broken(goal, trial))
        if _advances(one, tried, goal, spread):
            better_at = len(tried) + 1
        tried.append(one)
        if one.lost:
            # it says nothing of the setting: the model is not to keep away from there
            study.tell(asked, state=TrialState.FAIL)
            continue
        for limit in goal.limits:
            asked.set_constraint(f"limit {limit.label}", limit.broken(trial) if one.gains else 1.0)
        asked.set_constraint("failed", 0.0 if one.gains else 1.0)
        # a trial that failed is told as the baseline: it is the constraint that keeps away from there
        study.tell(asked, [one.gains.get(o, 0.0) for o in goal.objectives])

    feasible = [i for i, t in enumerate(tried) if t.feasible]
    nothing = dict.fromkeys(goal.objectives, 0.0)
    kept = [i for i in feasible if not pareto.dominates(nothing, tried[i].gains, goal.objectives)]
    front = [kept[i] for i in pareto.front([tried[i].gains for i in kept], goal.objectives)]
    found = SearchOutcome(
        goal, metrics, reference, spread, tuple(tried), tuple(front), (), ended, tuple(baseline)
    )
    chosen = _chosen(found, bench, record, seed)
    if not chosen:
        return found
    if prover is not None:
        return prover(found, chosen)
    return _proven(found, chosen, bench, space, record, budget, len(valid), seed, level, before_proof)


def most_trials(space: Space, goal: Goal, budget: Budget, metrics: int) -> int:
    """How many trials a search takes at most, with all that comes after it, if none is disturbed."""
    objectives = len(goal.objectives)
    least = least_pairs(share(0.05, 1), metrics * objectives)
    pairs = max(MOST, least + EXTRA) if budget.pairs is None else max(budget.pairs, least)
    return budget.trials + objectives * (len(space.axes) + 1) + (1 + objectives) * pairs


def corners(space: Space) -> list[dict[str, float]]:
    """Where to begin: all numbers up together, with each of the choices, then all of them down.

    Most parameters are limits, and while several bind, to raise one of them changes nothing: a trial by lot
    seldom raises all of those.
    """
    choices = max((len(a.choices) for a in space.axes), default=0) or 1

    def corner(place: float, turn: int) -> dict[str, float]:
        return {
            a.name: (turn % len(a.choices) + 0.5) / len(a.choices) if a.choices else place for a in space.axes
        }

    return [*(corner(UP, turn) for turn in range(choices)), corner(1 - UP, 0)]


def _study(
    space: Space, goal: Goal, seed: int
) -> tuple[optuna.Study, dict[str, optuna.distributions.BaseDistribution]]:
    # loaded when needed: it takes longer than most commands
    import optuna

    logging.getLogger("optuna").setLevel(logging.ERROR)
    sampler: optuna.samplers.BaseSampler
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if len(goal.objectives) == 1:
            sampler = optuna.samplers.TPESampler(n_startup_trials=RANDOM, multivariate=True, seed=seed)
        else:
            sampler = optuna.samplers.NSGAIISampler(population_size=POPULATION, seed=seed)
        study = optuna.create_study(sampler=sampler, directions=["maximize"] * len(goal.objectives))
    distributions: dict[str, optuna.distributions.BaseDistribution] = {
        a.name: optuna.distributions.CategoricalDistribution(range(len(a.choices)))
        if a.choices
        else optuna.distributions.FloatDistribution(0.0, 1.0)
        for a in space.axes
    }
    start = _params(space, space.start())
    limits = {f"limit {limit.label}": 0.0 for limit in goal.limits} | {"failed": 0.0}
    study.add_trial(
        optuna.create_trial(
            values=[0.0] * len(goal.objectives), params=start, distributions=distributions, constraints=limits
        )
    )
    return study, distributions


def _params(space: Space, point: Point) -> dict[str, float]:
    """A point as Optuna has it: of choices the number."""
    return {
        a.name: min(len(a.choices) - 1, int(point[a.name] * len(a.choices))) if a.choices else point[a.name]
        for a in space.axes
    }


def _point(space: Space, params: Mapping[str, Any]) -> dict[str, float]:
    return {
        a.name: (params[a.name] + 0.5) / len(a.choices) if a.choices else params[a.name] for a in space.axes
    }


def _measured(bench: SettingMeasurer, record: Record, setting: Setting, index: int, seed: int) -> TrialRecord:
    """A trial; one that is not valid has a second chance, as it may have been the machine's fault."""
    trial = record.measure(bench, "search", index, setting, _seed(seed, 1, index))
    if trial.observation.valid:
        return trial
    return record.measure(bench, "search again", index, setting, _seed(seed, 2, index))


def _gains(
    metrics: Mapping[str, Metric], goal: Goal, reference: Mapping[str, float], trial: TrialRecord
) -> dict[str, float]:
    seen = trial.observation
    if not has_metrics(seen, *goal.objectives):
        return {}
    return {n: gain(m, seen.metrics[n], reference[n]) for n, m in metrics.items() if has_metrics(seen, n)}


def _broken(goal: Goal, trial: TrialRecord) -> tuple[str, ...]:
    return tuple(limit.label for limit in goal.limits if limit.broken(trial) > 0)


def _advances(one: TrialPoint, tried: Sequence[TrialPoint], goal: Goal, spread: Mapping[str, float]) -> bool:
    """Whether it is better than all before in some objective, by more than the baseline varies."""
    if not one.feasible:
        return False
    return any(
        one.gains[o] > max([0.0, *(t.gains[o] for t in tried if t.feasible)]) + spread[o]
        for o in goal.objectives
    )


def _chosen(found: SearchOutcome, bench: SettingMeasurer, record: Record, seed: int) -> dict[str, Setting]:
    """What was best in each objective, without what it does not need."""
    goal, metrics = found.goal, found.metrics
    return {
        o: needed
        for o, one in candidates(found.tried, goal).items()
        if (
            needed := trimmed(
                bench, record, goal, o, metrics[o], found.reference, one.setting, found.spread, seed
            )
        )
    }


def _proven(
    found: SearchOutcome,
    chosen: Mapping[str, Setting],
    bench: SettingMeasurer,
    space: Space,
    record: Record,
    budget: Budget,
    known_from: int,
    seed: int,
    level: float,
    before: Callable[[ProofPlan], None],
) -> SearchOutcome:
    """With what was chosen measured again."""
    goal, metrics, spread = found.goal, found.metrics, found.spread
    best = candidates(found.tried, goal)
    distinct = {_name(setting): setting for setting in ({}, *chosen.values())}
    names = list(distinct)

    def make(own: float, pairs: int | None, spare: int | None) -> ProofPlan:
        return plan(
            metrics, {o: best[o].gains[o] for o in chosen}, spread, known_from, arms=len(names), level=own,
            pairs=pairs, spare=budget.spare if spare is None else spare,
        )  # fmt: skip

    planned = resume_or_plan(record, list(distinct.values()), level, budget.pairs, make)
    before(planned)
    measured, spare = measure(bench, record, planned, list(distinct.values()), seed)
    beside = [
        Candidate(o, setting, mechanism(space, setting), measured[names.index(_name(setting))])
        for o, setting in chosen.items()
    ]
    proofs = prove(metrics, measured[0], beside, goal.limits, planned.level, spare.again)
    note_judged(record, planned, proofs)
    return replace(found, proofs=tuple(proofs), planned=planned)


def note_judged(record: Record, planned: ProofPlan, proofs: Sequence[Proof]) -> None:
    """Note that a proof was judged, and so what it stays, unless it may still go on."""
    if not any(p.verdict is Verdict.TOO_FEW for p in proofs):
        judged = {"number": planned.number, "spare": planned.spare}
        if judged not in record.noted("proof judged"):
            record.note("proof judged", **judged)


def trimmed(
    bench: SettingMeasurer,
    record: Record,
    goal: Goal,
    objective: str,
    metric: Metric,
    reference: Mapping[str, float],
    best: Setting,
    spread: Mapping[str, float],
    seed: int,
) -> Setting:
    """A setting without the parameters that can be left as they are and nothing is lost.

    One after the other is left out for a trial, and stays out if that is as good as a fresh trial of the
    whole. Where nothing of it is left, the whole was only lucky.
    """
    count = 0

    def measured_value(setting: Setting) -> float | None:
        nonlocal count
        trial = record.fair(bench, f"trim {objective}", count, setting, _seed(seed, 4, count))
        count += 1
        if not has_metrics(trial.observation, objective) or _broken(goal, trial):
            return None
        return gain(metric, trial.observation.metrics[objective], reference[objective])

    whole = measured_value(best)
    if whole is None:
        return best
    loss = max(0.0 if metric.zero_is_best else LOSS, 2 * spread[objective])
    kept = dict(best)
    for name in best:
        without = {n: v for n, v in kept.items() if n != name}
        found = measured_value(without) if without else 0.0
        if found is not None and found >= whole - loss:
            kept = without
    return kept


def mechanism(space: Space, setting: Setting) -> dict[str, tuple[str, ...]]:
    """The counters by which what is changed would show, of each parameter."""
    return {a.name: a.tunable.counters for a in space.axes if a.name in setting}


def candidates(tried: Sequence[TrialPoint], goal: Goal) -> dict[str, TrialPoint]:
    """For each objective what looks best; none where nothing looks better than the baseline."""
    feasible = [t for t in tried if t.feasible and t.setting]
    if not feasible:
        return {}
    best = pareto.extremes([t.gains for t in feasible], goal.objectives)
    return {o: feasible[i] for o, i in best.items() if feasible[i].gains[o] > 0}


def _name(setting: Setting) -> str:
    return json.dumps(dict(setting), sort_keys=True)


def _seed(seed: int, block: int, index: int) -> int:
    return (seed * 1_000_003 + block * 100_003 + index) % 2**31
