"""What is set of running processes: how many files each may have open, and the memory of their cgroup.

A process is meant by its name or its number; of those with that name, all that are in the namespace. What was
set goes with the process: one that has ended, and one that has its number since, needs nothing put back.
"""

from __future__ import annotations

import errno
import os
import resource
from collections.abc import Iterator, Set
from pathlib import Path

from netdyno.stats.observation import Value
from netdyno.system import proc
from netdyno.tuning.access.base import Saved, Target, Values, value
from netdyno.tuning.access.files import tell

PROC = Path("/proc")
NO_LIMIT = "max"
MEMORY = "memory.max"
"""Below what is in use the kernel ends processes to get there."""
CAP_SYS_RESOURCE = 24
MOST = 1 << 62
"""More memory than any machine has."""


class OpenFiles:
    """RLIMIT_NOFILE: the soft limit, which holds; the hard one is raised with it."""

    def read(self, target: Target) -> dict[str, Value]:
        """The limit, or those of all such processes where they differ."""
        return {"": _together(soft for soft, _ in self._limits(target).values())}

    def limits(self, target: Target) -> dict[str, tuple[int, int]]:
        """The hard limit, where that may not be raised; otherwise `fs.nr_open` bounds it."""
        hard = min(hard for _, hard in self._limits(target).values())
        return {} if may_raise() or hard == resource.RLIM_INFINITY else {"": (1, hard)}

    def writable(self, target: Target, key: str) -> bool:
        """Root may."""
        return True

    def save(self, target: Target, keys: Set[str]) -> Saved:
        """Both limits of each."""
        return {who: list(both) for who, both in self._limits(target).items()}

    def write(self, target: Target, values: Values) -> None:
        """The same for all."""
        new = int(values[""])
        for who, (_, hard) in self._limits(target).items():
            _prlimit(who, (new, hard if hard == resource.RLIM_INFINITY else max(hard, new)))

    def now(self, target: Target, saved: Saved) -> Saved:
        """Both limits of each that still runs."""
        return {who: list(_prlimit(who)) for who in saved if _runs(who)}

    def put(self, target: Target, saved: Saved) -> bool:
        """Each its own."""
        now = self.now(target, saved)
        changed = [who for who in now if now[who] != saved[who]]
        for who in changed:
            _prlimit(who, tuple(saved[who]))
        return bool(changed)

    def _limits(self, target: Target) -> dict[str, tuple[int, int]]:
        return {who: _prlimit(who) for who in _processes(target.device)}


class CgroupMemory:
    """A limit of the memory of a process's cgroup (version 2), for all that is in it."""

    def read(self, target: Target) -> dict[str, Value]:
        """The limit, or those of all cgroups where they differ; `max` is none."""
        return {"": _together(value(one.read_text().strip()) for one in self._files(target))}

    def limits(self, target: Target) -> dict[str, tuple[int, int]]:
        """Not less than is in use, where that would end processes."""
        if target.path != MEMORY:
            return {}
        return {
            "": (max(int((one.parent / "memory.current").read_text()) for one in self._files(target)), MOST)
        }

    def writable(self, target: Target, key: str) -> bool:
        """Not where netdyno itself would be held back."""
        ours = _cgroup(os.getpid())
        return ours is None or not any(ours.is_relative_to(one.parent) for one in self._files(target))

    def save(self, target: Target, keys: Set[str]) -> Saved:
        """The limit of each."""
        return {str(one.parent): one.read_text().strip() for one in self._files(target)}

    def write(self, target: Target, values: Values) -> None:
        """The same for all."""
        for one in self._files(target):
            tell(one, str(values[""]))

    def now(self, target: Target, saved: Saved) -> Saved:
        """The limit of each that is still there, whoever is in it by now."""
        found = {folder: Path(folder) / target.path for folder in saved}
        return {folder: one.read_text().strip() for folder, one in found.items() if one.exists()}

    def put(self, target: Target, saved: Saved) -> bool:
        """Each its own."""
        changed = [folder for folder, old in self.now(target, saved).items() if old != saved[folder]]
        for folder in changed:
            tell(Path(folder) / target.path, str(saved[folder]))
        return bool(changed)

    def _files(self, target: Target) -> list[Path]:
        folders = dict.fromkeys(_cgroup(_number(who)) for who in _processes(target.device))
        found = [one / target.path for one in folders if one is not None]
        if not found or not all(one.exists() for one in found):
            what = "it is in no cgroup of version 2 that limits memory"
            raise OSError(errno.EOPNOTSUPP, what, target.device)
        return found


def may_raise() -> bool:
    """Whether we may raise hard limits of others: root of a container often may not."""
    status = (PROC / "thread-self/status").read_text()
    effective = next(line.split()[1] for line in status.splitlines() if line.startswith("CapEff:"))
    return bool(int(effective, 16) & 1 << CAP_SYS_RESOURCE)


def names() -> list[str]:
    """Programs of this namespace that listen for connections, by name."""
    inodes = {f"socket:[{inode}]" for inode in _listening(PROC / "thread-self/net")}
    found = set()
    for pid in _here() if inodes else ():
        if inodes & _open(pid) and (name := _name(pid)) and is_process(name):
            found.add(name)
    return sorted(found)


def is_process(name: str) -> bool:
    """Whether a process may be called so in a setting."""
    return 0 < len(name) <= 64 and not any(sign in " ,=*/" or not sign.isprintable() for sign in name)


def _listening(folder: Path) -> Iterator[str]:
    """Sockets that listen, of TCP over IPv4 and IPv6."""
    for file in ("tcp", "tcp6"):
        try:
            lines = (folder / file).read_text().splitlines()[1:]
        except OSError:
            continue
        yield from (cells[9] for line in lines if len(cells := line.split()) > 9 and cells[3] == "0A")


def _open(pid: int) -> set[str]:
    found = set()
    try:
        for one in (PROC / str(pid) / "fd").iterdir():
            found.add(str(one.readlink()))
    except OSError:
        pass
    return found


def _here() -> Iterator[int]:
    """Processes in the namespace of the thread that asks."""
    ours = (PROC / "thread-self/ns/net").readlink()
    for entry in PROC.iterdir():
        if entry.name.isdigit():
            try:
                if (entry / "ns/net").readlink() == ours:
                    yield int(entry.name)
            except OSError:
                continue


def _name(pid: int) -> str:
    try:
        return (PROC / str(pid) / "comm").read_text().rstrip("\n")
    except OSError:
        return ""


def _processes(name: str) -> list[str]:
    """Of this name or number, in this namespace, each with when it began: a number may be another's later."""
    number = int(name) if name.isascii() and name.isdigit() else None
    found = []
    for pid in _here():
        if pid == number or _name(pid) == name:
            start = proc.start_time(pid)
            if start is not None:
                found.append(f"{pid} {start}")
    if not found:
        raise FileNotFoundError(errno.ENOENT, f"no process {name} runs here", name)
    return sorted(found)


def _number(who: str) -> int:
    return int(who.split()[0])


def _runs(who: str) -> bool:
    number, start = who.split()
    return proc.start_time(int(number)) == int(start)


def _prlimit(who: str, new: tuple[int, ...] | None = None) -> tuple[int, int]:
    """Both limits, as they were before."""
    what = (_number(who), resource.RLIMIT_NOFILE)
    return resource.prlimit(*what) if new is None else resource.prlimit(*what, (new[0], new[1]))


def _together(each: Iterator[int] | Iterator[Value]) -> Value:
    found = list(dict.fromkeys(each))
    return found[0] if len(found) == 1 else " ".join(map(str, found))


def _cgroup(pid: int) -> Path | None:
    """The folder of a process's cgroup of version 2; none where it has none."""
    try:
        lines = (PROC / str(pid) / "cgroup").read_text().splitlines()
        mounts = (PROC / "self/mountinfo").read_text().splitlines()
    except OSError:
        return None
    path = next((line.removeprefix("0::") for line in lines if line.startswith("0::")), None)
    roots = [line.split()[4] for line in mounts if " - cgroup2 " in line]
    if not roots or path is None:
        return None
    root = Path(roots[0])
    if not (root.is_dir() and any(root.iterdir())):
        # a thread that is in a namespace has a /sys of its own, without cgroups: the main thread has them
        root = PROC / "self/root" / str(root).lstrip("/")
    return root / path.lstrip("/")
