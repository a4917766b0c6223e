"""The tables of a paper measured here, from what is wanted to what came of them: `tune reproduce`."""

from __future__ import annotations

import os
import platform
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

from netdyno.experiment import entry
from netdyno.experiment.looks import Looks
from netdyno.experiment.pairs import RepeatBudget
from netdyno.experiment.study import Study
from netdyno.stats.comparison import Comparison, finite
from netdyno.stats.pairs import both
from netdyno.stats.sequential import TEST, share
from netdyno.system.interrupt import Interrupts
from netdyno.system.vm import inside
from netdyno.tuning import benches, compare_run, tables
from netdyno.tuning.study_listener import StudyListener
from netdyno.tuning.tables import MeasuredTable, Tables, TableTrials, TrialCallback


@dataclass(frozen=True)
class ReproductionRequest:
    """A reproduction: tables of a paper, repetitions and significance."""

    tables: Tables
    load: float | None = None
    """Scales the load; none: by the processors of this machine."""
    length: float = 1.0
    """Scales times."""
    repeat: int | None = None
    """Blocks; none: as many as the tables say."""
    spare: int | None = None
    level: float = 0.05
    seed: int = 1
    allow_global: bool = False
    fresh: bool = False


@dataclass(frozen=True)
class ReproductionOutcome:
    """The measured tables and their stored study."""

    filled: Sequence[MeasuredTable]
    document: Mapping[str, Any]
    """As it is kept."""
    study: Study
    spare: RepeatBudget
    trials: int
    """That were planned."""

    @property
    def comparisons(self) -> list[Comparison]:
        """Of all tables and benches."""
        return [c for one in self.filled for c in one.comparisons.values()]

    @property
    def short(self) -> list[Comparison]:
        """Those of which nothing can be said for want of pairs."""
        return [c for c in self.comparisons if c.too_few]


def reproduce(
    request: ReproductionRequest, listener: StudyListener, interrupts: Interrupts, told: TrialCallback
) -> ReproductionOutcome:
    """Choose settings, measure block by block, fill the tables, keep them. The same call goes on."""
    made, length, level = request.tables, request.length, request.level
    factor = request.load
    if factor is None:
        factor = min(1.0, len(os.sched_getaffinity(0)) / made.processors)
    least = made.least(share(level, 1))
    asked = request.repeat or made.repeat
    specs = {key: tables.scaled(spec, factor, length) for key, spec in made.benches.items()}
    there = benches.tunables(next(iter(specs.values())))
    chosen = {one: benches.choose(one, there, request.allow_global) for one in made.settings}
    notes = [f"{s.name}: without {n}, which {why}" for s in chosen.values() for n, why in s.left_out.items()]
    for line in [f"load × {factor:.3g} of the paper's, time × {length:g}", *notes]:
        listener.note(line)
    if asked < least:
        listener.note(f"with fewer than {least} blocks nothing can be shown: {least} are measured")
    settings = {key: one.setting for key, one in chosen.items()}
    labels = {key: spec.label for key, spec in specs.items()}
    plan = {"settings": {k: dict(v) for k, v in settings.items()}, "seed": request.seed, "benches": labels,
            "test": TEST, "level": level}  # fmt: skip
    if machine := inside.accelerator():
        # its trials and those of this machine itself are no pairs
        plan["machine"] = f"virtual, kernel {platform.release()}, {machine.upper()}"
    study = Study.of("reproduce", made.name, plan)
    stands = {key: compare_run.bench(spec, interrupts, request.allow_global) for key, spec in specs.items()}
    for one in stands.values():
        # where the load of one table cannot work, those of others may
        one.failures = None
    measured = {name: metric for one in stands.values() for name, metric in one.metrics.items()}
    named = partial(tables.leg, settings=settings)
    with entry.open_entry(study, measured, leg=named, fresh=request.fresh) as kept:
        looks = Looks(kept.record, max(asked, least), asked, level)
        count, arms = looks.now.pairs, len(made.benches) * len(chosen)
        stages = list(looks.stages(request.spare, arms))
        spare = stages[-1].spare.left
        listener.note(
            f"reproduce: look {looks.now.number}, at {count} blocks, level {looks.now.level:.3g} of "
            f"{level:.3g}; {count * arms} trials, and up to {spare} again where one is disturbed"
        )
        seen = tables.run(
            made, stands, settings, kept.record, repeat=count, seed=request.seed, stages=stages, told=told
        )
        filled = tables.fill(made, chosen, seen, level=looks.now.level)
        every = [c for one in filled for c in one.comparisons.values()]
        if not any(c.too_few for c in every):
            looks.judged(min(c.pairs for c in every))
        document = {
            "looks": looks.document(),
            "load": factor, "length": length, "repeat": count, "left_out": notes, "benches": labels,
            "tables": [_document(one, seen) for one in filled],
        }  # fmt: skip
        valid = not any(c.invalid for c in every)
        written = kept.finish(document, [], finding=tables.summary_sentence(filled), valid=valid)
        again = sum((stage.spare.again for stage in stages), Counter[str]())
        rest = RepeatBudget(stages[-1].spare.left, again)
    return ReproductionOutcome(filled, written, study, rest, count * arms)


def _document(one: MeasuredTable, seen: TableTrials) -> dict[str, Any]:
    rows = [
        {"bench": line.row.bench, "metric": line.row.metric, "paper": line.row.paper,
         "paper_change": line.row.change, "paper_inside": line.inside,
         "pairs": both(tables.pairs(seen, line.row.bench, one.table.setting), line.row.metric),
         "finding": finite(asdict(line.finding)) if line.finding else None}
        for line in one.lines
    ]  # fmt: skip
    counters = {key: made.as_dict()["counters"] for key, made in one.comparisons.items()}
    return {"name": one.table.name, "about": one.table.about, "setting": one.table.setting, "rows": rows,
            "counters": counters}  # fmt: skip
