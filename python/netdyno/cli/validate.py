"""`netdyno validate`: list all faults of a file before it runs."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from netdyno.api.checked import findings
from netdyno.cli import console, values
from netdyno.errors import CONFIGURATION
from netdyno.experiment import validation


def validate(
    what: Annotated[
        list[str],
        typer.Argument(help="Files or presets.", metavar="FILE", autocompletion=values.any_preset),
    ],
    as_json: Annotated[
        bool, typer.Option("--json", help="Print {file, errors, advice} for each as JSON.")
    ] = False,
) -> None:
    """Check what can be run: profiles, experiments, graphs, tables of tuning, NATs and their studies.

    All faults that can be known are listed, each with a code, a place and a fix; a fault that depends on a
    value that is itself wrong is not. `netdyno run` does the same check first. Warnings flag legal but
    probably unintended settings: a flow longer than the load, a core that this machine lacks.

        netdyno validate mine.yaml
        netdyno validate profiles/*.json --json
    """
    found: list[dict[str, Any]] = []
    for one in what:
        errors, advice = findings(one)
        found.append({"file": one, "errors": errors, "advice": advice})
    if as_json:
        console.document(found)
    else:
        for seen in found:
            _show(**seen)
    if any(seen["errors"] for seen in found):
        raise typer.Exit(CONFIGURATION)


def _show(file: str, errors: list[validation.Finding], advice: list[validation.Finding]) -> None:
    for error in errors:
        console.finding(error, file)
    for one in advice:
        console.note(f"{file}: look again: {one['at']}: {one['what']}. {one['fix']}")
    if not errors:
        console.line(f"{file}: good")
