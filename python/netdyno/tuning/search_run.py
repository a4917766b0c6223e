"""A search for a better setting, from what is wanted to what is proven and kept: `tune search`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from netdyno.errors import Error
from netdyno.experiment import entry
from netdyno.experiment import study as studies
from netdyno.experiment.study import Study
from netdyno.stats.observation import Setting
from netdyno.stats.sequential import TEST
from netdyno.system.interrupt import Interrupts
from netdyno.tuning.gain import of_bench
from netdyno.tuning.prepared_bench import BenchRequest, PreparedBench, open_bench
from netdyno.tuning.prove import Limit
from netdyno.tuning.search import Budget, Goal, SearchOutcome, most_trials
from netdyno.tuning.search import search as run
from netdyno.tuning.study_listener import StudyListener


@dataclass(frozen=True)
class TuningSearchRequest:
    """A search: bench, objectives, limits and budget."""

    bench: BenchRequest
    """What is measured, and which parameters there are."""
    objectives: Sequence[str] = ()
    """Metrics to improve; none: those of the class of service, else the first of the bench."""
    limits: Sequence[Limit] = ()
    screened: str | None = None
    """A screening: only what mattered in it is searched."""
    memory: int | None = None
    """Bytes that buffers may take."""
    budget: Budget = field(default_factory=Budget)
    level: float = 0.05
    seed: int = 1
    name: str | None = None
    fresh: bool = False
    """Discard earlier trials and measure again."""


@dataclass(frozen=True)
class TuningSearchOutcome:
    """A finished search and its stored study."""

    found: SearchOutcome
    document: Mapping[str, Any]
    """As it is kept."""
    study: Study
    screening: Mapping[str, Any] | None = None
    """The document of the screening that it went on from."""


def search(
    request: TuningSearchRequest, listener: StudyListener, interrupts: Interrupts
) -> TuningSearchOutcome:
    """Make the bench ready, search, prove, keep. Call again to resume after an interrupt."""
    before = studies.read(request.screened, "screen") if request.screened else None
    names = list(request.bench.params) or survivors(before)
    with open_bench(request.bench, interrupts) as on:
        space = on.space(names, request.memory)
        goal = goal_of(on, request)
        hints = hints_of(before, goal)
        plan = {
            "space": space.document(), "objectives": list(goal.objectives),
            "limits": {one.label: one.most for one in goal.limits}, "seed": request.seed,
            "hints": [dict(h) for h in hints], "test": TEST, "level": request.level,
        }  # fmt: skip
        study = Study.of("search", on.label, plan, request.name)
        with entry.open_entry(study, on.bench.metrics, fresh=request.fresh) as kept:
            about = f"at most {request.budget.trials} trials of {len(space.axes)} parameters, then the proof"
            listener.note(f"{study.name}: {about}")
            for said in on.remarks(one.name for one in space.axes):
                listener.note(said)
            most = most_trials(space, goal, request.budget, len(on.bench.metrics))
            on.patience.follow(kept.record)
            listener.begun(kept.record, most, [on.bench.metrics[o] for o in goal.objectives])
            found = run(
                on.bench, space, goal, kept.record, budget=request.budget, seed=request.seed, hints=hints,
                level=request.level, before_proof=listener.planned,
            )  # fmt: skip
            listener.over(kept.record)
            document = kept.finish(
                found.document(), space.document(), finding=found.summary, valid=not found.invalid
            )
    return TuningSearchOutcome(found, document, study, before)


def goal_of(on: PreparedBench, request: TuningSearchRequest) -> Goal:
    """What is wanted: as is said, or as the class of service has it, or the first metric."""
    limits, objectives = list(request.limits), list(request.objectives)
    for one in limits:
        one.check(on.bench.metrics)
    if on.service:
        objectives = objectives or [o for o in on.service.objectives if o in on.bench.metrics]
        named = {one.name for one in limits}
        limits += [
            Limit(one.metric, bound, upper)
            for one in on.service.constraints
            for bound, upper in ((one.most, True), (one.least, False))
            if bound is not None and one.metric in on.bench.metrics and one.metric not in named
        ]
    limits += [Limit(one.metric, one.bound, one.upper) for one in on.slos]
    objectives = objectives or [next(iter(on.bench.metrics))]
    of_bench(on.bench.metrics, objectives, "--for")
    return Goal(tuple(dict.fromkeys(objectives)), tuple(limits))


def survivors(before: Mapping[str, Any] | None) -> list[str]:
    """The parameters that mattered in a screening; none where there was none."""
    if before is None:
        return []
    found = before["result"]["survivors"]
    if not found:
        what = "nothing mattered in that screening: there is nothing to look for"
        raise Error("ND-104-53", what, at=str(before["name"]), fix="Name parameters with --param")
    return list(found)


def hints_of(before: Mapping[str, Any] | None, goal: Goal) -> list[Setting]:
    """Where a screening says it is better, for each objective that it looked at."""
    if before is None:
        return []
    metrics = before["result"]["metrics"]
    found: list[Setting] = []
    for name in goal.objectives:
        if name in metrics:
            effects = metrics[name]["effects"]
            found.append({e["name"]: e["better"] for e in effects if e["matters"]})
    return [hint for hint in found if hint]
