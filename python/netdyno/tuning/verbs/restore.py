"""`netdyno tune restore`: restore values changed by `apply --keep` or by a killed process."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from netdyno import paths
from netdyno.cli import console
from netdyno.cli.restore import Force, Json, replay, report_restored
from netdyno.tuning import owners, persist


def restore(force: Force = False, as_json: Json = False) -> None:
    """Undo what `netdyno tune apply --keep` made persistent, and what a killed process left changed.

    Values of a process that still runs are left alone: it restores them when it ends. Values that others
    changed since are left and named, unless --force is given.

        sudo netdyno tune restore
    """
    report = replay(ours, force)
    for pid in sorted({pid for pid, _ in owners.changes_in_force(paths.state() / "journal")}):
        console.note(f"process {pid} still holds a setting; end it with Ctrl-C")
    report_restored(report, as_json, "nothing to restore")


def ours(entry: dict[str, Any]) -> bool:
    """Whether an entry of the journal is of the tuning."""
    if entry["kind"] == "path":
        path = Path(entry["path"])
        return persist.is_kept(path) or path.name.startswith("nd-bench-")
    return entry["kind"] in (*owners.KINDS, "sysctl", "socket")
