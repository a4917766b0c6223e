"""The first process of a container, by the name that its runtime knows it by."""

from __future__ import annotations

import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

ASKED = {
    "podman": ("podman", "inspect", "--type", "container", "--format", "{{.State.Pid}} {{.Id}}"),
    "docker": ("docker", "inspect", "--type", "container", "--format", "{{.State.Pid}} {{.Id}}"),
    "machine": ("machinectl", "show", "--property", "Leader", "--value"),
}
"""What each kind of container is asked with, its name last; `machine` is one of systemd-nspawn, whose
processes are of this machine always."""
PROC = Path("/proc")
SECONDS = 15.0
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,254}")
_SAID = re.compile(r"([0-9]{1,10})(?: ([0-9a-f]{64}))?")
_UNKNOWN = re.compile(r"no such (container|object)|no container with|No machine .* known", re.IGNORECASE)


@dataclass(frozen=True)
class Answer:
    """What a runtime says of a name."""

    runtime: str
    pid: int = 0
    """Of its first process; 0 where none runs."""
    known: bool = False
    """Whether there is such a container."""
    here: bool = False
    """Whether that process is in it on this machine: a runtime may be asked over the network."""
    trouble: str = ""
    """Why it did not answer."""


def ask(name: str, runtime: str | None = None) -> list[Answer]:
    """What each runtime that is installed here, or the one that is named, says of a container."""
    if not _NAME.fullmatch(name):
        return []
    asked = [one for one in ASKED if runtime in (None, one)]
    return [_ask(one, name) for one in asked if shutil.which(ASKED[one][0])]


def _ask(runtime: str, name: str) -> Answer:
    program, *rest = ASKED[runtime]
    command = [shutil.which(program) or program, *rest, name]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=SECONDS, check=False, errors="replace"
        )
    except (OSError, subprocess.TimeoutExpired) as e:
        return Answer(runtime, trouble=str(e))
    said = _SAID.fullmatch(done.stdout.strip())
    if done.returncode == 0 and said and bool(said[2]) == (runtime != "machine"):
        pid = int(said[1])
        return Answer(runtime, pid, known=True, here=not said[2] or _contains(said[2], pid))
    if _UNKNOWN.search(done.stderr):
        return Answer(runtime)
    lines = done.stderr.strip().splitlines() or [f"{program} ended with {done.returncode}"]
    return Answer(runtime, trouble=lines[-1][:200])


def _contains(container: str, pid: int) -> bool:
    """Whether a process of this machine is in a container, by the control groups that it is in."""
    try:
        return container in (PROC / str(pid) / "cgroup").read_text()
    except OSError:
        return False
