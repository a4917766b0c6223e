"""`netdyno restore`: put back what a killed run left changed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

import typer

from netdyno import paths
from netdyno.cli import console
from netdyno.errors import Error
from netdyno.lazy import loaded
from netdyno.system import journal
from netdyno.system.device import CODE, GoneError
from netdyno.system.journal import AGAIN, DAMAGED, ReplayReport
from netdyno.system.undo import FORCE
from netdyno.systems import SYSTEMS

Json = Annotated[bool, typer.Option("--json", help="Print {undone, failed, left, gone, damaged} as JSON.")]
Runs = Annotated[
    bool, typer.Option("--runs", help="Leave what was made to last: only what a run changed for itself.")
]
Force = Annotated[bool, typer.Option("--force", help="Also restore values that others changed since.")]


def restore(runs: Runs = False, force: Force = False, as_json: Json = False) -> None:
    """Undo what runs that were killed left, and what was made to last: `netdyno bind`, `tune apply --keep`,
    `fleet up`.

    What belongs to runs that still go on is left alone. With --runs what was made to last stays; every
    `netdyno run` does that first by itself. A kernel parameter that is not what netdyno had set any more is
    somebody else's: it is left, and named, unless --force is given.

        sudo netdyno restore
    """
    wanted = journal.is_temporary if runs else lambda _: True
    report_restored(replay(wanted, force), as_json, "nothing was left behind")


def replay(wanted: Callable[[dict[str, Any]], bool], force: bool) -> ReplayReport:
    """Undo what dead processes left of what is wanted; what a living one holds it puts back itself."""
    folder = paths.state() / "journal"
    free = [loaded(one.free) for one in SYSTEMS if one.free]
    return journal.restore(
        wanted=lambda entry: wanted(entry) and all(one(entry, folder) for one in free), force=force
    )


def report_restored(report: ReplayReport, as_json: bool, nothing: str) -> None:
    """Say what was put back, and raise where something was not."""
    if as_json:
        console.document(
            {
                "undone": report.undone,
                "failed": report.failed,
                "left": report.left,
                "gone": report.gone,
                "damaged": report.damaged,
            }
        )
    else:
        for line in report.undone:
            console.out().print(f"put back: {line}", markup=False)
        if not (report.undone or report.failed or report.left or report.gone or report.damaged):
            console.out().print(nothing)
    findings = [_finding("ND-92-31", what, DAMAGED, path) for path, what in report.damaged.items()]
    findings += [_finding("ND-92-31", line, report.advice.get(line, AGAIN)) for line in report.failed]
    findings += [_finding("ND-92-41", line, FORCE) for line in report.left]
    findings += [_finding(CODE, line, GoneError(line).fix) for line in report.gone]
    if report.failed or report.damaged:
        fix = next(iter(findings))["fix"]
        raise Error("ND-92-31", "not everything could be put back", fix=fix, all=findings)
    if report.left:
        raise Error("ND-92-41", "; ".join(report.left), fix=FORCE, all=findings)
    if report.gone:
        gone = GoneError("; ".join(report.gone))
        raise Error(CODE, gone.what, fix=gone.fix, all=findings)


def _finding(code: str, what: str, fix: str, at: str = "") -> dict[str, str]:
    return {"code": code, "what": what, "at": at, "fix": fix}
