"""A search for a better setting, from what is wanted to what is proven and kept: `tune search`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from netdyno.errors import Error
from netdyno.experiment import entry
from netdyno.experiment import study as studies
from netdyno.experiment.record import Record
from netdyno.experiment.study import Study
from netdyno.stats.observation import Metric, Setting
from netdyno.stats.sequential import TEST
from netdyno.system.interrupt import Interrupts
from netdyno.tuning.driven import Asked, Driven, driven
from netdyno.tuning.gain import of_bench
from netdyno.tuning.prove import Limit, Planned
from netdyno.tuning.search import Budget, Found, Goal, most_trials
from netdyno.tuning.search import search as run


@dataclass(frozen=True)
class Wanted:
    """What to search for, and how long."""

    asked: Asked
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
    """Measure anew what was measured before."""


class Teller(Protocol):
    """Who is told how far a study is."""

    def note(self, text: str) -> None:
        """Something worth knowing."""

    def begun(self, record: Record, trials: int, metrics: Sequence[Metric]) -> None:
        """Trials are about to be measured: where they are kept, at most how many, and what is looked at."""

    def planned(self, planned: Planned) -> None:
        """How the proof is going to be measured."""

    def over(self, record: Record) -> None:
        """All were measured."""


class Silent:
    """Tells nobody."""

    def note(self, text: str) -> None:
        """Nothing."""

    def begun(self, record: Record, trials: int, metrics: Sequence[Metric]) -> None:
        """Nothing."""

    def planned(self, planned: Planned) -> None:
        """Nothing."""

    def over(self, record: Record) -> None:
        """Nothing."""


@dataclass(frozen=True)
class Searched:
    """What came of it."""

    found: Found
    document: Mapping[str, Any]
    """As it is kept."""
    study: Study
    screening: Mapping[str, Any] | None = None
    """The document of the screening that it went on from."""


def search(wanted: Wanted, teller: Teller, interrupts: Interrupts) -> Searched:
    """Make the bench ready, search, prove, keep. Interrupted, the same call goes on."""
    before = studies.read(wanted.screened, "screen") if wanted.screened else None
    names = list(wanted.asked.params) or _survivors(before)
    with driven(wanted.asked, interrupts) as on:
        space = on.space(names, wanted.memory)
        goal = _goal(on, wanted)
        hints = _hints(before, goal)
        plan = {
            "space": space.document(), "objectives": list(goal.objectives),
            "limits": {one.name: one.most for one in goal.limits}, "seed": wanted.seed,
            "hints": [dict(h) for h in hints], "test": TEST, "level": wanted.level,
        }  # fmt: skip
        study = Study.of("search", on.label, plan, wanted.name)
        with entry.begun(study, on.bench.metrics, fresh=wanted.fresh) as kept:
            about = f"at most {wanted.budget.trials} trials of {len(space.axes)} parameters, then the proof"
            teller.note(f"{study.name}: {about}")
            most = most_trials(space, goal, wanted.budget, len(on.bench.metrics))
            teller.begun(kept.record, most, [on.bench.metrics[o] for o in goal.objectives])
            found = run(
                on.bench, space, goal, kept.record, budget=wanted.budget, seed=wanted.seed, hints=hints,
                level=wanted.level, before_proof=teller.planned,
            )  # fmt: skip
            teller.over(kept.record)
            document = kept.finish(
                found.document(), space.document(), finding=found.said, valid=not found.invalid
            )
    return Searched(found, document, study, before)


def _goal(on: Driven, wanted: Wanted) -> Goal:
    """What is wanted: as is said, or as the class of service has it, or the first metric."""
    limits, objectives = list(wanted.limits), list(wanted.objectives)
    if on.service:
        objectives = objectives or [o for o in on.service.objectives if o in on.bench.metrics]
        named = {one.name for one in limits}
        limits += [
            Limit(one.metric, one.most)
            for one in on.service.constraints
            if one.most is not None and one.metric in on.bench.metrics and one.metric not in named
        ]
    objectives = objectives or [next(iter(on.bench.metrics))]
    of_bench(on.bench.metrics, objectives)
    return Goal(tuple(dict.fromkeys(objectives)), tuple(limits))


def _survivors(before: Mapping[str, Any] | None) -> list[str]:
    if before is None:
        return []
    found = before["result"]["survivors"]
    if not found:
        what = "nothing mattered in that screening: there is nothing to look for"
        raise Error("ND-104-53", what, at=str(before["name"]), fix="Name parameters with --param")
    return list(found)


def _hints(before: Mapping[str, Any] | None, goal: Goal) -> list[Setting]:
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
