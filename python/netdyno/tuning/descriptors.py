"""File descriptors of a server: one that has all of them open cannot accept connections."""

from __future__ import annotations

import re
from pathlib import Path

from netdyno.tuning.access import process
from netdyno.tuning.watch import Say

SPARE = 2
"""Descriptors that a server keeps free that cannot accept any more."""
STEP = 4
"""Times as many as it may have are advised."""
NR_OPEN = Path("/proc/sys/fs/nr_open")


def open_files(pid: int) -> int:
    """How many files a process has open; 0 where that may not be seen."""
    try:
        return sum(1 for _ in Path(f"/proc/{pid}/fd").iterdir())
    except OSError:
        return 0


def limits(pid: int) -> tuple[int, int | None] | None:
    """How many it may have open, and its hard limit, None if that is none; nothing where there is no bound,
    or it may not be seen."""
    try:
        text = Path(f"/proc/{pid}/limits").read_text()
    except OSError:
        return None
    found = re.search(r"^Max open files\s+(\d+)\s+(\d+|unlimited)", text, re.MULTILINE)
    return (int(found[1]), None if found[2] == "unlimited" else int(found[2])) if found else None


def exhausted(pid: int) -> bool:
    """Whether a process has as many files open as it may have."""
    most = limits(pid)
    return most is not None and open_files(pid) >= most[0] - SPARE


def advice(pid: int, at: str) -> Say | None:
    """What helps a server that may open no more files; `at` names the place in a command. None if it may."""
    most = limits(pid)
    if most is None or not exhausted(pid):
        return None
    soft, hard = most
    what = f"process {pid} has all of its {soft} file descriptors open and cannot accept"
    more = min(STEP * soft, int(NR_OPEN.read_text()))
    if hard is not None and not process.may_raise():
        more = min(more, hard)
    if more <= soft:
        return Say(f"{what}: raise its limit, LimitNOFILE= of its unit, and restart it")
    name = f"process.{pid}.nofile"
    command = f"netdyno tune apply --set {name}={more}{at}"
    return Say(f"{what}: raise its limit: LimitNOFILE= of its unit, or {command}", setting={name: more})
