"""Watches that run on this machine: each tells in a file what it sees and does, for whoever looks."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

from netdyno import files, paths
from netdyno.errors import Error
from netdyno.stats.observation import Value
from netdyno.system import proc
from netdyno.system.journal import Journal
from netdyno.tuning import host_state
from netdyno.tuning.model import Scope
from netdyno.tuning.registry import registry
from netdyno.tuning.watch import Sample, Say, Set
from netdyno.tuning.watch_run import Logged, document, words

KEPT = 100
"""Findings that a file holds: the latest."""
EVERY = 2.0
"""Seconds between two writes where nothing was found."""


@dataclass(frozen=True)
class Finding:
    """A line of a watch."""

    number: int
    """Counted through the watch."""
    time: float
    """Seconds since 1970."""
    action: str
    """As `netdyno tune watch --json` calls it."""
    says: str
    setting: Mapping[str, Value] = field(default_factory=dict)
    """What would lift the limit, or has; empty where no parameter does."""
    widely: bool = False
    """Whether some of that holds for the whole machine."""
    held: bool = False
    """Whether the watch has set it itself."""

    def command(self, where: str | None) -> str:
        """What sets it on the command line; nothing where there is nothing to set."""
        if not self.setting:
            return ""
        place = ["--where", where] if where else []
        return shlex.join(
            ["netdyno", "tune", "apply", *arguments(self.setting), *place, *["--global"][: self.widely]]
        )


def arguments(setting: Mapping[str, Value]) -> list[str]:
    """Options of `netdyno tune apply` for a setting."""
    return [word for name, value in setting.items() for word in ("--set", f"{name}={value}")]


@dataclass(frozen=True)
class RunningWatch:
    """What its file says."""

    id: str
    pid: int
    began: float
    """Seconds since 1970."""
    where: str | None
    """The namespace; None is that of this machine."""
    called: str
    """The place as it was asked for."""
    dry: bool
    watched: list[str]
    """Parameters that it may set."""
    left_out: list[str]
    time: float = 0.0
    """Of the latest window, in seconds since 1970; 0 before the first."""
    traffic: str = ""
    load: float = 0.0
    """Packets a second that come."""
    findings: tuple[Finding, ...] = ()


def folder() -> Path:
    """Where their files are."""
    return files.own_folder(paths.runtime() / "watches")


class WatchFile:
    """The file of a watch while it runs."""

    def __init__(self, notes: Journal, where: str | None, called: str, dry: bool) -> None:
        self._notes, self._dry = notes, dry
        self._about: dict[str, object] = {
            "pid": os.getpid(), "start": proc.start_time(os.getpid()), "began": time.time(), "where": where,
            "called": called, "dry": dry, "watched": [], "left_out": [],
        }  # fmt: skip
        self._now: dict[str, object] = {}
        self._findings: deque[Finding] = deque(maxlen=KEPT)
        self._count = 0
        self._written = float("-inf")
        self._path = folder() / f"nd-{os.getpid()}-{time.monotonic_ns()}.json"
        self._noted = notes.write("path", path=str(self._path))

    def begin(self, watched: Iterable[str], left_out: Iterable[str]) -> None:
        """What it may set, and what it leaves alone."""
        self._about |= {"watched": sorted(watched), "left_out": list(left_out)}
        self._write()

    def tell(self, action: Logged) -> None:
        """A line of it."""
        setting: Mapping[str, Value] = {}
        if isinstance(action, Set):
            setting = {action.name: action.value}
        elif isinstance(action, Say):
            setting = action.setting
        known = registry()
        self._count += 1
        self._findings.append(
            Finding(
                self._count,
                round(time.time(), 3),
                document(action)["action"],
                words(action, self._dry),
                setting,
                any(host_state.scope(known.find(name)) is Scope.GLOBAL for name in setting),
                isinstance(action, Set) and not self._dry,
            )
        )
        self._write()

    def see(self, sample: Sample, traffic: str) -> None:
        """A window."""
        self._now = {"time": round(time.time(), 3), "traffic": traffic, "load": round(sample.load, 1)}
        if time.monotonic() - self._written >= EVERY:
            self._write()

    def close(self) -> None:
        """It is over."""
        self._notes.undo(self._noted)

    def _write(self) -> None:
        # a watch goes on where nobody can look at it
        with contextlib.suppress(Error):
            findings = [asdict(one) for one in self._findings]
            files.write(self._path, json.dumps({**self._about, **self._now, "findings": findings}))
        self._written = time.monotonic()


@contextlib.contextmanager
def published(notes: Journal, where: str | None, called: str, dry: bool) -> Iterator[WatchFile]:
    """Have a watch found by others while it runs."""
    one = WatchFile(notes, where, called, dry)
    try:
        yield one
    finally:
        one.close()


def running() -> list[RunningWatch]:
    """Those that run here; what a killed process left is removed."""
    found = []
    for path in sorted(folder().glob("*.json")):
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            about = json.loads(path.read_text(encoding="utf-8"))
            if not proc.alive(about["pid"], about.pop("start")):
                path.unlink(missing_ok=True)
                continue
            about["findings"] = tuple(Finding(**one) for one in about["findings"])
            found.append(RunningWatch(path.stem, **about))
    return found
