"""`netdyno restore`: put back what a killed run left changed."""

from __future__ import annotations

from typing import Annotated

import typer

from netdyno import journal
from netdyno.cli import console
from netdyno.errors import Error


def restore(
    as_json: Annotated[bool, typer.Option("--json", help="Print {undone, failed} as JSON.")] = False,
) -> None:
    """Undo what runs that were killed left, and `netdyno bind`: namespaces, processes, files, drivers.

    What belongs to runs that still go on is left alone. Every `netdyno run` does this first by itself, and
    leaves what `netdyno bind` did.

        sudo netdyno restore
    """
    report = journal.restore(wanted=lambda _: True)
    if as_json:
        console.document({"undone": report.undone, "failed": report.failed})
    else:
        for line in report.undone:
            console.out().print(f"put back: {line}")
        if not report.undone and not report.failed:
            console.out().print("nothing was left behind")
    if report.failed:
        findings = [
            {"code": "ND-92-31", "what": line, "at": "", "fix": "Run it with sudo"} for line in report.failed
        ]
        raise Error("ND-92-31", "not everything could be put back", fix="Run it with sudo", all=findings)
