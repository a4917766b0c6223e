"""`netdyno reproduce sip`: measures studies one after the other, and shows and keeps their tables."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from netdyno import files, quantities
from netdyno.cli import console
from netdyno.cli.execute import Views, measure, put_back
from netdyno.cli.options import Outputs
from netdyno.cli.plain import PlainLines
from netdyno.core.result import Result
from netdyno.errors import INVALID, PASS, Error
from netdyno.experiment import validation
from netdyno.experiment.verdict import exit_code
from netdyno.sip.reproduce import study as studies
from netdyno.sip.reproduce.plot import plot
from netdyno.sip.reproduce.study import Point, Study

INTERVAL = ["95% interval"]


def listed(as_json: bool) -> None:
    """Show which studies there are."""
    found = studies.all_studies()
    if as_json:
        console.document([one.model_dump() for one in found])
        return
    console.table(["study", "title"], [(one.name, one.title) for one in found])


def run(
    names: list[str], quick: bool, repeat: int | None, keep: Path | None, as_json: bool, runs: Path | None
) -> int:
    """Measure those that are named, or the figures of the paper; the exit code."""
    found = studies.chosen(names)
    documents = []
    code = PASS
    put_back()
    for one in found:
        console.note(f"study {one.name}: {one.title}")
        made = studies.experiment(one, quick, repeat)
        validation.refuse(made, studies.folder())
        # programs of others that want a CPU slow the server under test as well
        busy = round(os.getloadavg()[0], 2)
        result, _ = measure(made, studies.folder(), Outputs(runs=runs), Views([PlainLines()]))
        if result.error:
            console.show(Error.of(result.error))
            return exit_code(result)
        points = studies.points(one, result)
        if not all(point.valid for point in points):
            code = INVALID
        about = studies.document(one, result, quick) | {"load_average": busy}
        documents.append(about)
        if keep:
            _keep(keep, one, points, about)
        if not as_json:
            _show(one, points, result)
    if as_json:
        console.document(documents)
    return code


def _keep(folder: Path, study: Study, points: list[Point], about: dict[str, Any]) -> None:
    files.make_folder(folder)
    text = json.dumps(about, indent=1, ensure_ascii=False) + "\n"
    files.write(folder / f"{study.name}.json", text, shared=True)
    files.write(folder / f"{study.name}.svg", plot(study, points), shared=True)
    console.note(f"kept: {folder / study.name}.json and .svg")


def _show(study: Study, points: list[Point], result: Result) -> None:
    names = list(dict.fromkeys(name for point in points for name in point.levels))
    heads = [*names, "between", "attempts", "success", *INTERVAL, "mean", *INTERVAL, "p95", "valid trials"]
    rows = [
        [
            *(str(point.levels.get(name, "")) for name in names),
            quantities.delay(1e9 / point.rate) if point.rate else quantities.NONE,
            quantities.number(point.attempts),
            quantities.number(point.success, "ratio"),
            studies.shares(point.success_interval),
            quantities.delay(point.mean_ns),
            studies.delays(point.mean_interval_ns),
            quantities.delay(point.p95_ns),
            f"{point.valid} of {point.trials}",
        ]
        for point in points
    ]
    console.table(heads, rows, f"\n{study.title}", right=heads)
    for others, rate in studies.highest(points).items():
        where = ", ".join(f"{level} {name}" for name, level in others)
        console.line(f"without failure up to {rate:g}/s{f' at {where}' if where else ''}, of the rates tried")
    if study.paper:
        console.line(f"in the paper: {study.paper}")
    console.line(f"run {result.id}")
