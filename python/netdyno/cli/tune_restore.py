"""`netdyno tune restore`: take back settings that were kept, or left by a process that was killed."""

from __future__ import annotations

from typing import Any

from netdyno import paths
from netdyno.cli import console
from netdyno.cli.restore import Force, Json, replayed, told
from netdyno.tuning import keep, owners


def restore(force: Force = False, as_json: Json = False) -> None:
    """Take back what `netdyno tune apply --keep` made last, and what a killed process left set.

    What a process that still runs holds is left alone: it puts back itself when it ends. What is not as it
    was set any more is somebody else's: it is left, and named, unless --force is given.

        sudo netdyno tune restore
    """
    report = replayed(_ours, force)
    for pid in sorted({pid for pid, _ in owners.held(paths.state() / "journal")}):
        console.note(f"process {pid} still holds a setting; end it with Ctrl-C")
    told(report, as_json, "nothing was left set")


def _ours(entry: dict[str, Any]) -> bool:
    files = {f"/{keep.SYSCTL}", f"/{keep.UDEV}"}
    return entry["kind"] in (*owners.KINDS, "sysctl", "socket") or (
        entry["kind"] == "path" and any(str(entry["path"]).endswith(name) for name in files)
    )
