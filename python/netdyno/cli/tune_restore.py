"""`netdyno tune restore`: take back settings that were kept, or left by a process that was killed."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from netdyno import journal, paths
from netdyno.cli import console
from netdyno.errors import Error
from netdyno.tuning import keep, owners


def restore(
    as_json: Annotated[bool, typer.Option("--json", help="Print {undone, failed} as JSON.")] = False,
) -> None:
    """Take back what `netdyno tune apply --keep` made last, and what a killed process left set.

    What a process that still runs holds is left alone: it puts back itself when it ends.

        sudo netdyno tune restore
    """
    report = journal.restore(wanted=_ours)
    if as_json:
        console.document({"undone": report.undone, "failed": report.failed})
    else:
        for line in report.undone:
            console.out().print(f"put back: {line}", markup=False)
        if not report.undone and not report.failed:
            console.out().print("nothing was left set")
    for pid in sorted({pid for pid, _ in owners.held(paths.state() / "journal")}):
        console.note(f"process {pid} still holds a setting; end it with Ctrl-C")
    if report.failed:
        findings = [
            {"code": "ND-92-31", "what": line, "at": "", "fix": "Run it with sudo"} for line in report.failed
        ]
        raise Error("ND-92-31", "not everything could be put back", fix="Run it with sudo", all=findings)


def _ours(entry: dict[str, Any]) -> bool:
    files = {f"/{keep.SYSCTL}", f"/{keep.UDEV}"}
    return entry["kind"] in owners.KINDS or (
        entry["kind"] == "path" and any(str(entry["path"]).endswith(name) for name in files)
    )
