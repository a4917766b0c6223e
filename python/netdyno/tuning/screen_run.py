"""A screening, from what is wanted to what matters and is kept: `tune screen`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from netdyno.experiment import entry
from netdyno.experiment.study import Study
from netdyno.system.interrupt import Interrupts
from netdyno.tuning.driven import Asked, driven
from netdyno.tuning.gain import of_bench
from netdyno.tuning.screen import Screening, cost
from netdyno.tuning.screen import screen as run
from netdyno.tuning.search_run import Teller


@dataclass(frozen=True)
class Wanted:
    """What to screen, and how well."""

    asked: Asked
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
    """Measure anew what was measured before."""


@dataclass(frozen=True)
class Screened:
    """What came of it."""

    found: Screening
    document: Mapping[str, Any]
    """As it is kept."""
    study: Study


def screen(wanted: Wanted, teller: Teller, interrupts: Interrupts) -> Screened:
    """Make the bench ready, walk the trajectories, judge, keep. Interrupted, the same call goes on."""
    with driven(wanted.asked, interrupts) as on:
        space = on.space(wanted.asked.params, wanted.memory)
        metrics = on.metrics(wanted.metrics)
        looked_at = of_bench(on.bench.metrics, metrics)
        plan = {
            "space": space.document(), "metrics": metrics, "trajectories": wanted.trajectories,
            "seed": wanted.seed,
        }  # fmt: skip
        study = Study.of("screen", on.label, plan, wanted.name)
        count = cost(space, wanted.trajectories)
        with entry.begun(study, on.bench.metrics, fresh=wanted.fresh) as kept:
            teller.note(f"{study.name}: {count} trials of {len(space.axes)} parameters")
            teller.begun(kept.record, count, looked_at)
            found = run(
                on.bench, space, metrics, kept.record, trajectories=wanted.trajectories, seed=wanted.seed,
                level=wanted.level,
            )  # fmt: skip
            teller.over(kept.record)
            document = kept.finish(
                found.document(), space.document(),
                finding=f"matter: {', '.join(found.survivors()) or 'none of them'}",
            )  # fmt: skip
    return Screened(found, document, study)
