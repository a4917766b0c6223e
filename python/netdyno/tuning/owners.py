"""Who else sets kernel parameters here: TuneD, other processes of ours, files that are read at boot."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from netdyno.errors import Error
from netdyno.system import journal, namespace, proc
from netdyno.tuning import host_state
from netdyno.tuning.access import files
from netdyno.tuning.plan import Plan, Step

ROOT = Path("/")
FOLDERS = ("etc/sysctl.d", "run/sysctl.d", "usr/local/lib/sysctl.d", "usr/lib/sysctl.d", "lib/sysctl.d")
"""Where files are read from at boot; of two with one name that in the folder named first (sysctl.d(5))."""
KINDS = ("tunable", "tunable_kept")
STATE = "state"
"""Of an entry in another state folder than ours: which."""


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
    held = [(pid, entry) for pid, entry in changes(folder) if pid != os.getpid() and _holds(pid, entry)]
    for step in plan.steps if held else ():
        wanted = place(step)
        for pid, entry in held:
            if same(wanted, entry):
                raise _in_use(" ".join(filter(None, wanted["target"][1:])), pid, entry)


def refuse_file(path: Path, folder: Path) -> None:
    """Raise where another process of ours has changed this file and not put it back yet."""
    for pid, entry in changes(folder, ("sysctl",)):
        if pid != os.getpid() and _holds(pid, entry) and entry.get("path") == str(path):
            raise _in_use(str(path), pid, entry)


def _holds(pid: int | None, entry: Mapping[str, Any]) -> bool:
    """Whether it will be put back by another: by a living process, or by a restore in another state folder,
    which nothing here does. What is kept stays."""
    return pid is not None or (STATE in entry and not entry.get("kept"))


def _in_use(what: str, pid: int | None, entry: Mapping[str, Any]) -> Error:
    state, at = entry.get(STATE), entry.get("where") or "this machine"
    by = "a killed netdyno" if pid is None else f"netdyno process {pid}"
    by += f", whose state folder is {state}" if state else ""
    fix = "Let it end, or end it with Ctrl-C: it puts back what was"
    if pid is None:
        fix = f"Put it back first: {restore_command(state)}"
    return Error("ND-92-40", f"{what} is set by {by}", at=at, fix=fix)


def restore_command(state: str | None) -> str:
    """What puts back what a killed process left, in another state folder if it is there."""
    return f"NETDYNO_STATE={shlex.quote(state)} netdyno restore" if state else "netdyno restore"


def free(entry: Mapping[str, Any], folder: Path) -> bool:
    """Whether no living process of ours has set, and will put back, what an entry of a dead one is about."""
    files = [one["path"] for _, one in changes_in_force(folder, ("sysctl",))]
    if entry["kind"] in KINDS:
        return not any(same(entry, one) for _, one in changes_in_force(folder))
    return entry["kind"] != "sysctl" or entry["path"] not in files


def place(step: Step) -> dict[str, Any]:
    """What a step is about, as an entry of the journal tells it."""
    target = [step.target.kind, step.target.path, step.target.device]
    return {"where": step.where, "id": namespace.cookie(step.where), "target": target}


def same(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Whether both are about one parameter; a namespace may have several names, and a name several namespaces
    one after the other."""
    if list(one["target"]) != list(other["target"]):
        return False
    kind, path, _ = one["target"]
    alike = one.get("where") == other.get("where")
    # the number of a namespace is of a boot
    now = all(entry.get("boot", proc.boot_id()) == proc.boot_id() for entry in (one, other))
    if now and None not in (one.get("id"), other.get("id")):
        whole = one.get("where") is None and kind == "sysctl" and not host_state.is_of_namespace(path)
        return one["id"] == other["id"] or (alike and whole)
    return alike


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
    yield from ((owner, entry) for owner, entry in changes(folder, kinds) if owner is not None)


def changes(folder: Path, kinds: Iterable[str] = KINDS) -> Iterator[tuple[int | None, dict[str, Any]]]:
    """All that was set by us and not put back: with the process that will, or None where none lives. Entries
    of other state folders of this machine say which."""
    for path in sorted(folder.glob("*.jsonl")):
        owner, left = journal.open_changes(path)
        yield from ((owner, entry) for entry in left if entry["kind"] in kinds)
    for path in journal.elsewhere(folder):
        owner, left = journal.open_changes(path, this_boot=True)
        about = {STATE: str(path.parent.parent)}
        yield from ((owner, entry | about) for entry in left if entry["kind"] in kinds)


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


@dataclass(frozen=True)
class Conflict:
    """A kernel parameter that a file to be written sets, and another file sets as well."""

    name: str
    file: Path
    says: str
    wins: bool
    """Whether that other file is read later, so that its value holds after `sysctl --system`."""

    def __str__(self) -> str:
        if self.wins:
            return (
                f"{self.name} is also set to {self.says} in {self.file}, which is read later and wins at boot"
            )
        return (
            f"{self.name} is also set to {self.says} in {self.file}, which is read earlier: ours wins at boot"
        )


def conflicts(wanted: Mapping[str, str], file: str, root: Path = ROOT) -> list[Conflict]:
    """Other files that set one of these parameters to another value than we do in `file`, like
    `etc/sysctl.d/netdyno-tune.conf`; of each parameter that which holds in the end."""
    ours = root / file
    listed = [*_files(root, ours), root / "etc/sysctl.conf"]
    place = listed.index(ours)
    found: dict[str, Conflict] = {}
    for number, path in enumerate(listed):
        for pattern, says in () if path == ours else _lines(path):
            for name in [n for n in wanted if fnmatchcase(n, pattern)]:
                # a name with wildcards gives way to one that is exact, wherever it stands (sysctl.d(5))
                wins = number > place and pattern == name
                if says.split() != wanted[name].split() and (
                    wins or name not in found or not found[name].wins
                ):
                    found[name] = Conflict(name, path, says, wins)
                elif wins:
                    found.pop(name, None)
    return list(found.values())


def configured(root: Path = ROOT) -> dict[str, tuple[Path, str]]:
    """What each parameter will be set to at boot, and by which file."""
    found: dict[str, tuple[Path, str]] = {}
    for path in [*_files(root), root / "etc/sysctl.conf"]:
        found |= {name: (path, value) for name, value in _lines(path)}
    return found


def _files(root: Path, *more: Path) -> list[Path]:
    """Files of the folders, in the order in which they are read; others as if they were there."""
    listed: dict[str, Path] = {}
    for folder in reversed(FOLDERS):
        listed |= {path.name: path for path in (root / folder).glob("*.conf")}
    listed |= {path.name: path for path in more}
    return [listed[name] for name in sorted(listed)]


def _lines(path: Path) -> Iterator[tuple[str, str]]:
    """Names, with dots, and values."""
    try:
        text = path.read_text(errors="replace")
    except OSError:
        return
    for line in text.splitlines():
        name, equals, value = line.strip().removeprefix("-").partition("=")
        if equals and not line.lstrip().startswith(("#", ";")):
            yield name.strip().replace("/", "."), value.strip()
