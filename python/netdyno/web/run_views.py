"""Runs as the dashboard's pages read them: rows of the list, and the parts of a finished run."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from netdyno import reading
from netdyno.core.result import Result
from netdyno.errors import Error
from netdyno.experiment import cores
from netdyno.report import charts, network, page, section
from netdyno.report.figures import Figure, figures
from netdyno.report.search import search_view
from netdyno.report.table import Table
from netdyno.report.text import Data, Msg, label
from netdyno.report.thresholds import judged
from netdyno.report.verdict import verdict
from netdyno.report.verdict_plot import verdict_plot
from netdyno.store import Row

LEGS = 40
"""Legs of a run whose charts a page has; the report has all."""
NAMES = ("series.csv", "flows.csv", "profile.json", network.FILE, "study.json", "events.jsonl")
"""Files of a run's folder that anybody who is logged in may have."""
PRIVATE = ("log.jsonl", "links.jsonl", ".pcapng", ".log")
"""Endings of those that only an operator may have: packets and log lines may tell secrets."""


def row(one: Row) -> dict[str, Any]:
    """A line of the list."""
    plain = asdict(one)
    del plain["folder"]
    return plain


def hosts(one: Row) -> list[str]:
    """Hosts of the fleet that generates the load of a run under way."""
    with contextlib.suppress(Error):
        return [host.name for host in cores.hosts(one.subject.fleet)] if one.subject.fleet else []
    return []


def files(folder: Path, role_may_all: bool) -> list[dict[str, Any]]:
    """Names and sizes of what may be downloaded."""
    found = []
    if folder.is_dir():
        for path in sorted(folder.iterdir()):
            wanted = path.name in NAMES or (role_may_all and path.name.endswith(PRIVATE))
            if wanted and path.is_file() and not path.is_symlink():
                found.append({"name": path.name, "bytes": path.stat().st_size})
    return found


def networks(folder: Path, result: Result | None, shown: Mapping[str, Any] | None) -> list[dict[str, Any]]:
    """Drawings of the networks of a run; with what impaired links did in the trial that is shown."""
    leg = shown["legs"][shown["leg"]]["name"] if shown and shown["legs"] else ""
    found = []
    for one in network.networks(folder):
        passed = network.links(result, one, leg, shown["trial"]) if result and shown else []
        found.append(network.document(one, passed))
    return found


def profile(folder: Path, result: Result) -> dict[str, Any] | None:
    """The profile of a run, to run again: as it was given, with the load and times of its trials.

    None where it is not all: of experiments with several legs, networks or devices under test.
    """
    path = folder / "profile.json"
    trials = [one for leg in result.legs for one in leg.repetitions]
    if result.kind != "run" or len(result.legs) != 1 or not trials or path.is_symlink() or not path.is_file():
        return None
    given = reading.record(path)
    if not isinstance(given, dict) or "groups" not in given or network.networks(folder) or trials[0].dut:
        return None
    measured = trials[0].profile
    loads = {group["name"]: group for group in measured.get("groups", [])}
    groups = [
        group
        | {
            key: loads[group["name"]][key]
            for key in ("devices", "load")
            if key in group and key in loads[group["name"]]
        }
        for group in given["groups"]
        if group.get("name") in loads
    ]
    phases = {key: measured.get("phases", {}).get(key) for key in ("warmup", "measure")}
    return given | {
        "groups": groups,
        "phases": (given.get("phases") or {}) | {k: v for k, v in phases.items() if v},
    }


def sections(folder: Path) -> list[list[Any]]:
    """Sections of the report that systems make: the anchor and title of each."""
    with contextlib.suppress(Error):
        return [[one.anchor, label(one.title)] for one in section.sections(folder)]
    return []


def run(result: Result, leg: int = 0, trial: int = 0) -> dict[str, Any]:
    """A finished run: verdict, figures, what was judged, and the charts of one trial."""
    said = verdict(result)
    legs = [one for one in result.legs if one.repetitions]
    failed, passed = judged(result)
    searched = search_view(result)
    plots = [*verdict_plot(result).charts, *(searched.charts if searched else [])]
    shown: dict[str, Any] = {}
    if result.kind == "run" and legs:
        leg = min(leg, len(legs) - 1)
        repetitions = legs[leg].repetitions
        trial = min(trial, len(repetitions) - 1)
        shown = charts.trial(repetitions[trial])
    return {
        "id": result.id,
        "name": result.name,
        "kind": result.kind,
        "finding": result.finding,
        "hosts": list(dict.fromkeys(h.name for one in legs for r in one.repetitions for h in r.hosts)),
        "facts": [[label(name), text] for name, text in page.facts(result)],
        "verdict": {
            "state": said.state,
            "headline": label(said.headline),
            "lead": label(said.lead),
            "points": [label(one) for one in said.points],
            "original": said.original,
        },
        "legs": [
            {
                "name": one.name,
                "transport": one.transport,
                "trials": len(one.repetitions),
                "valid": all(r.validity.valid for r in one.repetitions),
                "figures": [_figure(f) for f in figures(one, result.thresholds)]
                if result.kind == "run"
                else [],
            }
            for one in legs[:LEGS]
        ],
        "more": max(0, len(legs) - LEGS),
        "leg": leg,
        "trial": trial,
        "thresholds": table(failed.table, passed.table),
        "plots": plots,
        "charts": shown,
        "again": bool(result.command),
    }


def _figure(one: Figure) -> dict[str, Any]:
    return {
        "label": label(one.label),
        "value": one.value,
        "note": _label(one.note),
        "limit": _label(one.limit),
        "mark": one.mark,
    }


def _label(text: Msg | Data | str | None) -> dict[str, Any] | None:
    if text is None:
        return None
    return {"d": text} if isinstance(text, str) else label(text)


def table(*tables: Table) -> dict[str, Any]:
    """Tables with the same columns as one."""
    return {
        "columns": [label(one.label) for one in tables[0].columns],
        "rows": [_row(row) for one in tables for row in one.rows],
    }


def _row(cells: Sequence[Any]) -> list[dict[str, Any]]:
    return [{"text": _label(one.text), "mark": one.mark} for one in cells]
