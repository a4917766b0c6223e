"""Processes as /proc shows them: who they are for certain, and how much CPU they used."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

TICK = os.sysconf("SC_CLK_TCK")
MARK = "NETDYNO_MARK"
"""Name of the environment variable by which what a program started is known."""


@dataclass(frozen=True)
class Stat:
    """The fields of /proc/<pid>/stat that are used here."""

    pid: int
    name: str
    state: str
    parent: int
    group: int
    cpu: float
    """User and system time, in seconds."""
    start: int
    """Clock ticks after boot; together with the pid it names a process for certain."""


def stat(pid: int) -> Stat | None:
    """What a process is doing, or None when there is none of this number."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return None
    # the name is in parentheses and may hold spaces and parentheses itself
    name = text[text.index("(") + 1 : text.rindex(")")]
    fields = text[text.rindex(")") + 2 :].split()
    cpu = (int(fields[11]) + int(fields[12])) / TICK
    return Stat(pid, name, fields[0], int(fields[1]), int(fields[2]), cpu, int(fields[19]))


def start_time(pid: int) -> int | None:
    """When a living process started, in ticks after boot. A zombie does not live."""
    found = stat(pid)
    return found.start if found and found.state not in "ZX" else None


def alive(pid: int, start: int | None) -> bool:
    """Whether this very process still lives."""
    return start is not None and start_time(pid) == start


def members(group: int) -> Iterator[Stat]:
    """The living processes of a process group."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            found = stat(int(entry.name))
            if found and found.group == group and found.state not in "ZX":
                yield found


def family(leader: int) -> set[int]:
    """The living processes of a leader's group, and all that these started, also in sessions of their own."""
    found = [stat(int(entry.name)) for entry in Path("/proc").iterdir() if entry.name.isdigit()]
    living = [one for one in found if one and one.state not in "ZX"]
    ours = {one.pid for one in living if leader in (one.pid, one.group)}
    while more := {one.pid for one in living if one.parent in ours} - ours:
        ours |= more
    return ours


def marked(mark: str) -> set[int]:
    """The living processes in whose environment this mark stands: also those that left their group."""
    found = set()
    wanted = f"{MARK}={mark}".encode()
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                if wanted in (entry / "environ").read_bytes().split(b"\0"):
                    found.add(int(entry.name))
    return {pid for pid in found if start_time(pid) is not None}


def group_cpu(group: int) -> float:
    """CPU seconds used so far by the living members of a process group."""
    return sum(member.cpu for member in members(group))


def boot_id() -> str:
    """Names this boot of the machine."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def pid_namespace() -> str:
    """Tells the PID namespace that we are in from others of this machine; empty where /proc does not say."""
    try:
        return str(Path("/proc/self/ns/pid").readlink())
    except OSError:
        return ""
