"""`netdyno reproduce switches`: measures studies one after the other, and shows and keeps their tables."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from netdyno import files, quantities
from netdyno.cli import console
from netdyno.cli.execute import put_back
from netdyno.errors import INVALID, PASS
from netdyno.lab.topology import need_root
from netdyno.switch.reproduce import study as studies
from netdyno.switch.reproduce.measure import Row, StudyOutcome, measure
from netdyno.switch.reproduce.plot import plot
from netdyno.switch.reproduce.study import SwitchStudy
from netdyno.switch.verbs.compare import Progress
from netdyno.system.interrupt import Interrupts


def listed(as_json: bool) -> None:
    """Show which studies there are."""
    found = studies.all_studies()
    if as_json:
        console.document([{"name": name, **one.model_dump(mode="json")} for name, one in found.items()])
        return
    console.table(["study", "title"], [(name, one.title) for name, one in found.items()])


def run(
    names: list[str], quick: bool, repeat: int | None, keep: Path | None, as_json: bool, runs: Path | None
) -> int:
    """Measure those that are named, or the figures of the paper; the exit code."""
    chosen = studies.chosen(names)
    need_root()
    if runs:
        os.environ["NETDYNO_RUNS"] = str(runs)
    put_back()
    documents, code = [], PASS
    with Interrupts().installed() as interrupts:
        for name, one in chosen.items():
            console.note(f"study {name}: {one.title}")
            told = Progress()
            # programs of others take processors from hosts, functions and switch
            busy = round(os.getloadavg()[0], 2)
            found = measure(name, one, quick, repeat, console.note, interrupts.shielded, told.trial)
            about = document(name, one, found, quick) | {"load_average": busy}
            documents.append(about)
            if not found.valid:
                code = INVALID
            if keep:
                _keep(keep, name, one, found, about)
            if not as_json:
                show(one, found)
    if as_json:
        console.document(documents)
    return code


def document(name: str, study: SwitchStudy, found: StudyOutcome, quick: bool) -> dict[str, Any]:
    """What is kept of a study: its table, what it measured, and what the paper found."""
    return {
        "format": "netdyno-switch-study-result/1", "study": name, "quick": quick, "title": study.title,
        "paper": study.paper, "bench": study.bench(quick).label, **found.document(),
    }  # fmt: skip


def _keep(folder: Path, name: str, study: SwitchStudy, found: StudyOutcome, about: dict[str, Any]) -> None:
    files.make_folder(folder)
    text = json.dumps(about, indent=1, ensure_ascii=False) + "\n"
    files.write(folder / f"{name}.json", text, shared=True)
    files.write(folder / f"{name}.svg", plot(study, found), shared=True)
    console.note(f"kept: {folder / name}.json and .svg")


def show(study: SwitchStudy, found: StudyOutcome) -> None:
    """A line for each row, what explains its variance, and which differences are significant."""
    heads = ["", "valid trials", "mean", "standard deviation", "variation", "lag-1 autocorrelation"]
    rows = [(one.name, f"{len(one.values)} of {one.trials}", *_cells(one)) for one in found.rows]
    console.table(heads, rows, f"\n{study.title}", right=heads[1:])
    for one in found.rows:
        for said in explained(one):
            console.line(f"{one.name}: {said}")
    for difference in found.differences:
        word = "significant" if difference.significant else "not significant"
        console.line(
            f"{difference.b} against {difference.a}: {difference.said} ({word}, p {difference.p:.2g})"
        )
    if study.target:
        longest = "no length" if found.longest is None else f"{found.longest} functions"
        console.line(f"longest chain that holds {study.target}: {longest}")
    if study.paper:
        console.line(f"in the paper: {study.paper}")
    console.line(f"run {found.run}")


def _cells(one: Row) -> tuple[str, ...]:
    v = one.variation
    if v is None:
        return (quantities.NONE,) * 4
    return (quantities.number(v.mean, "bit/s"), quantities.number(v.sd, "bit/s"), f"{v.coefficient:.1%}",
            f"{v.autocorrelation:+.2f}")  # fmt: skip


def explained(one: Row) -> list[str]:
    """What explains the variance of a row, a sentence each."""
    found = [one.verdict] if one.verdict else []
    v = one.variation
    if v is None:
        return [*found, "no trial is valid"]
    if v.dependent:
        found.append(
            f"neighbouring repetitions are alike or alternate (autocorrelation {v.autocorrelation:+.2f})"
        )
    if v.change:
        before, after = (quantities.number(one, "bit/s") for one in (v.change.before, v.change.after))
        found.append(
            f"level changes from {before} to {after} at repetition {v.change.at + 1} (p {v.change.p:.2g})"
        )
    return [*found, *one.causes]
