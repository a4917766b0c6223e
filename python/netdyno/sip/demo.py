"""`netdyno demo sip`: users register at Kamailio in a namespace, and call each other."""

from __future__ import annotations

from pathlib import Path

import typer

from netdyno import config, paths
from netdyno.cli import console
from netdyno.cli.execute import execute
from netdyno.cli.options import Outputs
from netdyno.core.result import Result
from netdyno.errors import Error
from netdyno.experiment import spec
from netdyno.sip.ladder import source, text
from netdyno.sip.verbs import traced

KEPT = 3
"""Calls and registrations whose ladders the report has, and as many that failed."""


def run(as_json: bool, html: Path | None, runs: Path | None) -> None:
    """Run it, show it with the ladder of a call, and leave result and report in the folder of the run."""
    path = paths.data("experiments") / "sip" / "demo.yaml"
    wanted = spec.load(config.read(path), str(path))
    folders: list[Path] = []

    def keep(result: Result, folder: Path) -> None:
        traced.keep(result, folder, KEPT, listens=False, said="ladders")
        folders.append(folder)

    code = execute(wanted, path.parent, Outputs(json=as_json, html=html, runs=runs), then=keep)
    if folders and not as_json:
        _ladder(folders[0])
    raise typer.Exit(code)


def _ladder(folder: Path) -> None:
    """The messages of the first call."""
    try:
        found = source.find(str(folder)).calls((), None)
    except Error:
        # the run ended before there was any
        return
    call = next((one for one in found if one.method == "INVITE"), None)
    if call is None:
        return
    console.line("")
    console.line(f"call {call.call_id}: {call.result}")
    for row in text.lines(call.drawn, call.parties):
        console.line(row)
