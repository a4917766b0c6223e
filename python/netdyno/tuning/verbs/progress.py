"""How the verbs of `netdyno tune` say figures, and progress."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import Any

from netdyno import files, quantities, units
from netdyno.cli import console
from netdyno.errors import Error
from netdyno.experiment.record import Record, TrialRecord
from netdyno.stats.observation import Metric
from netdyno.tuning.gain import change
from netdyno.tuning.prove import ProofPlan
from netdyno.tuning.recommend import Experience
from netdyno.tuning.study_listener import StudyListener


def limit(text: str) -> tuple[str, float]:
    """`failed=0`: a metric and the most that it may be."""
    name, equals, most = text.partition("=")
    if not name or not equals:
        fix = "Write it like failed=0 or latency_p99=0.05"
        raise Error("ND-104-04", f"{text!r} is no limit", at="--limit", fix=fix)
    return name, units.bound(most)


class ProgressLine:
    """A throttled progress line on standard error: trials done, last result, time left."""

    def __init__(self, record: Record, trials: int, metrics: Sequence[Metric], every: float = 1.0) -> None:
        self._record, self.trials, self._metrics, self._every = record, trials, list(metrics), every
        self._last = 0.0
        record.on_trial = self._one

    def _one(self, trial: TrialRecord) -> None:
        done, now = len(self._record.trials), time.monotonic()
        if now - self._last < self._every and trial.observation.valid:
            return
        self._last = now
        seen = trial.observation
        shown = [
            f"{m.name} {quantities.number(seen.metrics[m.name], m.unit)}"
            for m in self._metrics
            if m.name in seen.metrics
        ]
        said = ", ".join(shown) if seen.valid else f"discarded: {seen.why}"
        left = max(0, self.trials - done) * self._record.took / max(1, done)
        phase = trial.phase.split(" {")[0]
        console.progress(f"{done:4}/{self.trials} {phase}: {said}; {quantities.wait(left)} left")


class StudyPrinter(StudyListener):
    """Prints the progress of a study on standard error."""

    def note(self, text: str) -> None:
        """Something worth knowing."""
        console.progress(text)

    def begun(self, record: Record, trials: int, metrics: Sequence[Metric]) -> None:
        """Trials are about to be measured."""
        self._record, self._progress = record, ProgressLine(record, trials, metrics)

    def planned(self, plan: ProofPlan) -> None:
        """What the proof takes, and what it can find."""
        trials = plan.pairs * plan.arms
        self._progress.trials = len(self._record.trials) + trials
        seen = "".join(
            f"; minimum detectable effect ({plan.pairs} pairs) of {name}: {least:.1%}"
            for name, least in plan.detectable.items()
            if math.isfinite(least)
        )
        assumed = f" ({plan.assumed})" if seen else ""
        console.progress(
            f"proof {plan.number}: {plan.pairs} pairs with the baseline, of the {plan.least} or "
            f"more that it takes at a level of {plan.level:.3g}; {trials} trials, and up to "
            f"{plan.spare} again where one is disturbed{seen}{assumed}"
        )

    def over(self, record: Record) -> None:
        """What was measured, and what was there already."""
        if record.reused:
            console.note(record.reused)
        console.note(f"trials took {quantities.wait(record.took)} in total")


def changed(metric: Metric, better_by: float, reference: float) -> str:
    """A gain as the change of the metric that it is."""
    moved = change(metric, better_by, reference) or 0.0
    if metric.zero_is_best:
        return quantities.difference(moved) if moved else "0"
    return f"{moved:+.1%}" if moved < 1 else f"×{1 + moved:.3g}"


def sized(metric: Metric, size: float, reference: float) -> str:
    """The size of an effect: as a gain; of counts how many more it may be."""
    if not metric.zero_is_best:
        return changed(metric, size, reference)
    return f"±{quantities.difference(abs(change(metric, -size, reference) or 0.0))[1:]}"


def times(better_by: float | None) -> str:
    """A gain as a factor."""
    return f"×{math.exp(better_by):.2f}" if better_by is not None else "–"


def page(path: Path, documents: Sequence[dict[str, Any]], told: Path | None = None) -> None:
    """Write the page of studies, and tell where it is."""
    # loaded here, for the other verbs to start sooner
    from netdyno.report.studies import render

    files.make_folder(path.parent)
    files.write(path, render(documents), shared=True)
    console.note(f"page: {told or path}")


def experience_page(path: Path, known: Experience, **more: dict[str, Any] | None) -> None:
    """Write the page of what is known, with a judgement of it or a proposal from it."""
    from netdyno.tuning.pages.experience import render

    finished = datetime.now().astimezone().isoformat(timespec="seconds")
    files.write(path, render(asdict(known), finished, **more), shared=True)
    console.note(f"page: {path}")
