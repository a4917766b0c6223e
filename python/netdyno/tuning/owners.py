"""Who else sets kernel parameters here: TuneD, other processes of ours, files that are read at boot."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from netdyno.errors import Error
from netdyno.system import journal, proc
from netdyno.tuning.access import files
from netdyno.tuning.plan import Plan

ROOT = Path("/")
FOLDERS = ("etc/sysctl.d", "run/sysctl.d", "usr/local/lib/sysctl.d", "usr/lib/sysctl.d", "lib/sysctl.d")
"""Where files are read from at boot; of two with one name that in the folder named first (sysctl.d(5))."""
KINDS = ("tunable", "tunable_kept")


@dataclass(frozen=True)
class Drift:
    """A parameter that is not what the files say."""

    name: str
    file: Path
    says: str
    now: str

    def __str__(self) -> str:
        return f"{self.name} is {self.now} here, and {self.says} in {self.file}"


def refuse(plan: Plan, folder: Path, root: Path = ROOT) -> None:
    """Raise where somebody else holds what would be changed."""
    if plan.machine and (profile := tuned(root)):
        fix = "Stop it first: systemctl stop tuned, or tuned-adm off"
        raise Error("ND-92-40", f"TuneD is active with the profile {profile}", at="this machine", fix=fix)
    wanted = {(step.where, (step.target.kind, step.target.path, step.target.device)) for step in plan.steps}
    for pid, entry in changes_in_force(folder):
        place = entry.get("where")
        if pid != os.getpid() and (place, tuple(entry["target"])) in wanted:
            raise _taken(" ".join(filter(None, entry["target"][1:])), pid, place)


def refuse_file(path: Path, folder: Path) -> None:
    """Raise where another process of ours has changed this file and not put it back yet."""
    for pid, entry in changes_in_force(folder, ("sysctl",)):
        if pid != os.getpid() and entry.get("path") == str(path):
            raise _taken(str(path), pid)


def _taken(what: str, pid: int, place: str | None = None) -> Error:
    fix = "Let it end, or end it with Ctrl-C: it puts back what was"
    return Error("ND-92-40", f"{what} is set by netdyno process {pid}", at=place or "this machine", fix=fix)


def free(entry: Mapping[str, Any], folder: Path) -> bool:
    """Whether no living process of ours has set, and will put back, what an entry of a dead one is about."""
    about = [(one.get("where"), one["target"]) for _, one in changes_in_force(folder)]
    files = [one["path"] for _, one in changes_in_force(folder, ("sysctl",))]
    if entry["kind"] in KINDS:
        return (entry.get("where"), entry["target"]) not in about
    return entry["kind"] != "sysctl" or entry["path"] not in files


def tuned(root: Path = ROOT) -> str:
    """The profile that TuneD holds, or nothing."""
    try:
        pid = int((root / "run/tuned/tuned.pid").read_text())
        profile = (root / "etc/tuned/active_profile").read_text().strip()
    except (OSError, ValueError):
        return ""
    return profile if proc.start_time(pid) is not None else ""


def changes_in_force(folder: Path, kinds: Iterable[str] = KINDS) -> Iterator[tuple[int, dict[str, Any]]]:
    """What living processes of ours have changed and not put back yet."""
    for path in sorted(folder.glob("*.jsonl")):
        owner, left = journal.open_changes(path)
        if owner is not None:
            yield from ((owner, entry) for entry in left if entry["kind"] in kinds)


def drift(parameters: Iterable[str], root: Path = ROOT) -> list[Drift]:
    """Of these kernel parameters, those that are not what will be set at the next boot."""
    said = configured(root)
    found = []
    for name in dict.fromkeys(parameters):
        if name not in said:
            continue
        path, says = said[name]
        try:
            now = (files.PROC / name.replace(".", "/")).read_text().split()
        except OSError:
            continue
        if now != says.split():
            found.append(Drift(name, path, says, " ".join(now)))
    return found


def configured(root: Path = ROOT) -> dict[str, tuple[Path, str]]:
    """What each parameter will be set to at boot, and by which file."""
    listed: dict[str, Path] = {}
    for folder in reversed(FOLDERS):
        listed |= {path.name: path for path in (root / folder).glob("*.conf")}
    found: dict[str, tuple[Path, str]] = {}
    for path in [*(listed[name] for name in sorted(listed)), root / "etc/sysctl.conf"]:
        try:
            text = path.read_text(errors="replace")
        except OSError:
            continue
        for line in text.splitlines():
            name, equals, value = line.strip().removeprefix("-").partition("=")
            if equals and not line.lstrip().startswith(("#", ";")):
                found[name.strip().replace("/", ".")] = (path, value.strip())
    return found
