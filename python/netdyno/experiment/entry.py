"""A study as a run: in the store beside all others, where it is listed, shown, reported and compared.

Each setting that was measured is a leg, each trial of it a repetition with the metrics of the workload. It is
entered with its first new trial, and each trial when it is over, like those of a load: a study that was
interrupted or killed has its run too.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from netdyno import errors, files, paths
from netdyno.core import redaction
from netdyno.core.result import Files, Leg, MetricValue, Repetition, Result
from netdyno.core.wire import PhaseLengths, Reason, Validity
from netdyno.errors import Error
from netdyno.experiment.record import Record, TrialRecord
from netdyno.experiment.spec import run_id
from netdyno.experiment.study import Study
from netdyno.stats.observation import Metric, Setting
from netdyno.stats.summary import summarise
from netdyno.store import Store
from netdyno.system import environment

BASELINE = "baseline"
STUDY, REPORT = "study.json", "report.html"
LONGEST = 60
"""Characters of a leg's name that are made of its setting."""

Naming = Callable[[TrialRecord], str]


@dataclass
class Entry:
    """A study under way, and its run."""

    study: Study
    record: Record
    """What its trials are measured under."""
    metrics: Mapping[str, Metric]
    leg: Naming
    """Of a trial."""
    _store: Store | None = field(default=None, repr=False)
    """From its first new trial on."""
    _result: Result | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        """It hears of trials as they are measured."""
        self.record.on_fresh = self._measured

    @property
    def folder(self) -> Path:
        """Of its run."""
        return paths.runs() / self.record.run

    def finish(
        self, result: Mapping[str, Any], tunables: Any, *, finding: str = "", valid: bool = True
    ) -> dict[str, Any]:
        """Write what came of it, and enter that."""
        trials = self.record.trials
        document = self.study.finish(
            self.record.run, result, [trial.document() for trial in trials], tunables
        )
        made = self._run()
        self._add(made, list(enumerate(trials, 1)))
        made.finding, made.valid, made.finished = finding, valid, str(document["finished"])
        made.files = Files(study=STUDY, report=REPORT)
        # loaded here, for whoever measures nothing to start sooner
        from netdyno.report.studies import render

        files.make_folder(self.folder)
        files.write(self.folder / STUDY, json.dumps(document, indent=1, ensure_ascii=False) + "\n")
        files.write(self.folder / REPORT, render([document]))
        self._write(made)
        with Store() as store:
            # in the order in which they were asked for, and without what this study did not come to
            store.put(made, self.folder)
        return document

    def ended(self, error: BaseException) -> None:
        """It ended before it was finished: its run has what was measured."""
        made, store = self._result, self._store
        if made is None or store is None:
            return
        # an interrupt may have come between the file and the store
        self._catch_up(store, made)
        found = error if isinstance(error, Error) else None
        after = f"after {len(self.record.all_trials):,} trials; the same command goes on"
        if found is None or found.exit_code == errors.INTERRUPTED:
            made.interrupted, made.finding = True, f"interrupted {after}"
        else:
            made.error = redaction.hide_in(found.as_dict())
            made.finding = f"ended by {found.code} {after}"
        made.finished = _now()
        self._write(made)
        store.finish(made)

    def close(self) -> None:
        """Let go of the store."""
        if self._store:
            self._store.close()

    def _measured(self, _: TrialRecord) -> None:
        """A trial is over: it is in the store, and so are those that an earlier call measured."""
        if self._store is None or self._result is None:
            self._store, self._result = Store(), self._run()
            files.make_folder(self.folder)
            self._add(self._result, list(enumerate(self.record.all_trials, 1)))
            self._store.enter(self._result, self.folder)
            for outdated in (STUDY, REPORT):
                # of the study as it was finished before
                (self.folder / outdated).unlink(missing_ok=True)
        else:
            self._catch_up(self._store, self._result)

    def _catch_up(self, store: Store, made: Result) -> None:
        """Enter what the file of trials has and the store has not."""
        there = sum(len(leg.repetitions) for leg in made.legs)
        for number, trial in list(enumerate(self.record.all_trials, 1))[there:]:
            for of in self._add(made, [(number, trial)]):
                store.update(made)
                store.add(made.id, of, of.repetitions[-1])

    def _run(self) -> Result:
        """Its run, without trials."""
        began = min(
            (t.observation.started for t in self.record.all_trials if t.observation.started), default=0.0
        )
        return Result(
            id=self.record.run,
            kind=self.study.kind,
            name=self.study.name,
            started=_time(began) if began else _now(),
            environment=environment.collect(),
            command=[redaction.hide(one) for one in ("netdyno", *sys.argv[1:])],
        )

    def _add(self, to: Result, trials: list[tuple[int, TrialRecord]]) -> list[Leg]:
        """Add trials with their numbers to the legs of their settings; those legs."""
        legs = {one.name: one for one in to.legs}
        touched: dict[str, Leg] = {}
        for number, trial in trials:
            name = self.leg(trial)
            if name not in legs:
                legs[name] = Leg(name=name, transport=self.study.bench, levels=dict(trial.setting))
                to.legs.append(legs[name])
            legs[name].repetitions.append(_repetition(number, trial, self.metrics))
            touched[name] = legs[name]
        for one in touched.values():
            one.summary = summarise(one.repetitions)
        return list(touched.values())

    def _write(self, made: Result) -> None:
        files.write(self.folder / "result.json", json.dumps(made.model_dump(mode="json"), indent=2) + "\n")


@contextmanager
def open_entry(
    study: Study, metrics: Mapping[str, Metric], *, leg: Naming | None = None, fresh: bool = False
) -> Iterator[Entry]:
    """A study under way: it goes on with what was measured before; `fresh`, it is another run."""
    if fresh:
        study.restart()
    with Record(study.record, dict(study.plan), run_id(study.name) if fresh else study.run) as record:
        entry = Entry(study, record, metrics, leg or named)
        try:
            yield entry
        except BaseException as e:
            # its trials are in its file; why it ended is not to be lost to a disk that is full
            with suppress(Error, OSError):
                entry.ended(e)
            raise
        finally:
            entry.close()


def named(trial: TrialRecord) -> str:
    """A leg by its setting."""
    return setting_name(trial.setting)


def setting_name(setting: Setting) -> str:
    """A setting in a few words, the same for the same setting."""
    if not setting:
        return BASELINE
    text = ",".join(f"{name}={value}" for name, value in sorted(setting.items()))
    if len(text) <= LONGEST:
        return text
    digest = hashlib.sha256(text.encode()).hexdigest()[:6]
    return f"{len(setting)} parameters {digest}"


def _repetition(number: int, trial: TrialRecord, metrics: Mapping[str, Metric]) -> Repetition:
    seen = trial.observation
    reasons = [] if seen.valid else [Reason(code="ND-90-33", what=seen.why or "the trial does not count")]
    return Repetition(
        run=f"{trial.phase} {trial.index}",
        index=number,
        transport="",
        started=_time(seen.started) if seen.started else "",
        phases=PhaseLengths(warmup=0.0, measure=seen.seconds, drain=0.0),
        validity=Validity(valid=seen.valid, reasons=reasons),
        metrics={
            name: MetricValue(value=value, unit=metrics[name].unit, better=metrics[name].better)
            if name in metrics
            else MetricValue(value=value)
            for name, value in seen.metrics.items()
        },
        counters={name: moved for name, moved in seen.counters.items() if moved},
    )


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
