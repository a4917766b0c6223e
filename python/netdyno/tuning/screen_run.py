"""A screening, from what is wanted to what matters and is kept: `tune screen`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from netdyno.experiment import entry
from netdyno.experiment.study import Study
from netdyno.system.interrupt import Interrupts
from netdyno.tuning.gain import of_bench
from netdyno.tuning.prepared_bench import BenchRequest, open_bench
from netdyno.tuning.screen import Screening, cost
from netdyno.tuning.screen import screen as run
from netdyno.tuning.study_listener import StudyListener


@dataclass(frozen=True)
class ScreeningRequest:
    """A screening: bench, metrics, trajectories and significance."""

    bench: BenchRequest
    """What is measured, and which parameters there are."""
    metrics: Sequence[str] = ()
    """Only these; none: all that the bench measures."""
    trajectories: int = 8
    memory: int | None = None
    """Bytes that buffers may take."""
    level: float = 0.05
    seed: int = 1
    name: str | None = None
    fresh: bool = False
    """Discard earlier trials and measure again."""


@dataclass(frozen=True)
class ScreeningOutcome:
    """A finished screening and its stored study."""

    found: Screening
    document: Mapping[str, Any]
    """As it is kept."""
    study: Study


def screen(request: ScreeningRequest, listener: StudyListener, interrupts: Interrupts) -> ScreeningOutcome:
    """Make the bench ready, walk the trajectories, judge, keep. Call again to resume after an interrupt."""
    with open_bench(request.bench, interrupts) as on:
        space = on.space(request.bench.params, request.memory)
        metrics = on.metrics(request.metrics)
        looked_at = of_bench(on.bench.metrics, metrics, "--metric")
        plan = {
            "space": space.document(), "metrics": metrics, "trajectories": request.trajectories,
            "seed": request.seed,
        }  # fmt: skip
        study = Study.of("screen", on.label, plan, request.name)
        count = cost(space, request.trajectories)
        with entry.open_entry(study, on.bench.metrics, fresh=request.fresh) as kept:
            listener.note(f"{study.name}: {count} trials of {len(space.axes)} parameters")
            for said in on.remarks(one.name for one in space.axes):
                listener.note(said)
            on.patience.follow(kept.record)
            listener.begun(kept.record, count, looked_at)
            found = run(
                on.bench, space, metrics, kept.record, trajectories=request.trajectories, seed=request.seed,
                level=request.level,
            )  # fmt: skip
            listener.over(kept.record)
            document = kept.finish(
                found.document(), space.document(),
                finding=f"matter: {', '.join(found.survivors()) or 'none of them'}",
            )  # fmt: skip
    return ScreeningOutcome(found, document, study)
