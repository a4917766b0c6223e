"""A study as a run: in the store beside all others, where it is listed, shown, reported and compared.

Each setting that was measured is a leg, each trial of it a repetition with the metrics of the workload.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from netdyno import files, paths
from netdyno.core import redaction
from netdyno.core.model import Phases, Reason, Validity
from netdyno.core.result import Files, Leg, Measured, Repetition, Result
from netdyno.experiment.record import TrialRecord
from netdyno.experiment.study import Study
from netdyno.stats.observation import Metric, Setting
from netdyno.stats.summary import summarise
from netdyno.store import Store
from netdyno.system import environment

BASELINE = "baseline"
LONGEST = 60
"""Characters of a leg's name that are made of its setting."""

Naming = Callable[[TrialRecord], str]


def finish(
    study: Study,
    result: Mapping[str, Any],
    trials: Sequence[TrialRecord],
    tunables: Any,
    metrics: Mapping[str, Metric],
    *,
    finding: str = "",
    valid: bool = True,
    leg: Naming | None = None,
) -> dict[str, Any]:
    """Write what came of a study, and enter it into the store as a run."""
    document = study.finish(result, [trial.document() for trial in trials], tunables)
    made = as_result(document, trials, metrics, finding=finding, valid=valid, leg=leg or named)
    _keep(made, document)
    return document


def _keep(made: Result, document: Mapping[str, Any]) -> None:
    """Its folder with the document and the page, and its place in the store."""
    folder = paths.runs() / made.id
    files.folder(folder)
    files.write(folder / "study.json", json.dumps(document, indent=1, ensure_ascii=False) + "\n")
    # loaded here, for whoever measures nothing to start sooner
    from netdyno.report.studies import render

    files.write(folder / "report.html", render([document]))
    files.write(folder / "result.json", json.dumps(made.model_dump(mode="json"), indent=2) + "\n")
    with Store() as store:
        store.put(made, folder)


def as_result(
    document: Mapping[str, Any],
    trials: Sequence[TrialRecord],
    metrics: Mapping[str, Metric],
    *,
    finding: str,
    valid: bool,
    leg: Naming,
) -> Result:
    """A study's trials in the shape that every run has; pure but for what it says of this machine."""
    legs: dict[str, Leg] = {}
    for number, trial in enumerate(trials, 1):
        name = leg(trial)
        fresh = Leg(name=name, transport=str(document["bench"]), levels=dict(trial.setting))
        of = legs.setdefault(name, fresh)
        of.repetitions.append(_repetition(number, trial, metrics))
    for of in legs.values():
        of.summary = summarise(of.repetitions)
    began = min((trial.observation.started for trial in trials), default=0.0)
    return Result(
        id=str(document["run"]),
        kind=str(document["kind"]),
        name=str(document["name"]),
        finding=finding,
        started=_time(began) if began else str(document["finished"]),
        finished=str(document["finished"]),
        valid=valid,
        legs=list(legs.values()),
        environment=environment.collect(),
        files=Files(study="study.json", report="report.html"),
        command=[redaction.hide(one) for one in ("netdyno", *sys.argv[1:])],
    )


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
        phases=Phases(warmup=0.0, measure=seen.seconds, drain=0.0),
        validity=Validity(valid=seen.valid, reasons=reasons),
        metrics={
            name: Measured(value=value, unit=metrics[name].unit, better=metrics[name].better)
            if name in metrics
            else Measured(value=value)
            for name, value in seen.metrics.items()
        },
        counters={name: moved for name, moved in seen.counters.items() if moved},
    )


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
