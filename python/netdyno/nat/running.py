"""NATs that run on this machine: each listens on a socket that has its name."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from netdyno import files, paths
from netdyno.core.client import Client
from netdyno.errors import INTERRUPTED, Error
from netdyno.system.journal import journal

PREFIX = "nd-nat-"
"""Files of ours begin with `nd-`: by that `netdyno restore` knows what it may take away."""
PAGE = 1000
"""Entries that the daemon answers at once, at most."""
NONE = "ND-104-35"


def stem(name: str) -> str:
    """What the socket of a NAT is called, without `.sock`."""
    return f"{PREFIX}{name}"


def socket(name: str) -> Path:
    """Where a NAT listens."""
    return paths.runtime() / f"{stem(name)}.sock"


def candidates() -> dict[str, Path]:
    """Names and sockets, of which some may be of NATs that were killed."""
    return {path.stem.removeprefix(PREFIX): path for path in sorted(paths.runtime().glob(f"{PREFIX}*.sock"))}


def answers(path: Path) -> bool:
    """Whether a daemon is there."""
    try:
        Client(path, timeout=5.0).close()
    except Error as e:
        if e.exit_code == INTERRUPTED:
            raise
        return False
    return True


@contextmanager
def claimed(name: str) -> Iterator[None]:
    """A name that is this NAT's alone, from before it has a socket: of two that begin one is refused."""
    path = socket(name)
    if path.exists() and answers(path):
        raise _name_in_use(name)
    lock = path.with_suffix(".lock")
    paths.with_folder(lock)
    with files.open_private(lock, "w") as held:
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
            its = os.fstat(held.fileno()).st_ino == lock.stat().st_ino
        except (BlockingIOError, FileNotFoundError):
            its = False
        # who ended just now has removed the file that was opened
        if not its:
            raise _name_in_use(name)
        notes = journal()
        left = notes.write("path", path=str(lock))
        try:
            yield
        finally:
            notes.undo(left)


def _name_in_use(name: str) -> Error:
    fix = f"End that one, or give this one another name; `netdyno nat status {name}` shows what runs"
    return Error(NONE, f"a NAT named {name} runs already", at=str(socket(name)), fix=fix)


@dataclass(frozen=True)
class Running:
    """A NAT that runs, and how it is asked."""

    name: str
    client: Client
    graph: str

    @property
    def process(self) -> int:
        """Its daemon's, or 0 where that is not known."""
        return self.client.process

    def call(self, method: str, **params: Any) -> Any:
        """Ask its daemon about it."""
        return self.client.call(method, graph=self.graph, **params)

    def pages(self, method: str, key: str, most: int, **params: Any) -> tuple[list[dict[str, Any]], bool]:
        """The first `most` entries under a key, and whether there are more."""
        found: list[dict[str, Any]] = []
        cursor: str | None = None
        while True:
            # one more tells whether there is one more
            wanted = min(PAGE, most + 1 - len(found))
            answer = self.call(method, cursor=cursor, limit=wanted, **params)
            found += answer[key]
            cursor = answer["next"]
            if cursor is None or len(found) > most:
                return found[:most], len(found) > most

    def clear(self, **params: Any) -> int:
        """End the sessions that are meant: how many there were."""
        return clear(self.call, **params)


def clear(call: Callable[..., Any], **params: Any) -> int:
    """End sessions of the NAT that is asked so, in as many calls as that takes: how many there were."""
    ended, cursor = 0, None
    while True:
        answer = call("nat.clear", cursor=cursor, **params)
        ended, cursor = ended + int(answer["ended"]), answer["next"]
        if cursor is None:
            return ended


@contextmanager
def connected(name: str | None = None, timeout: float = 30.0) -> Iterator[Running]:
    """The NAT of a name, or the only one that runs here; an answer of its is waited for so many seconds."""
    chosen = _chosen(name)
    with Client(socket(chosen), timeout) as client:
        graphs = client.call("graph.list")
        if not graphs:
            what = f"the NAT {chosen} carries nothing: it is being started, or has failed"
            raise Error(NONE, what, at=str(socket(chosen)), fix="Ask again when its ports are open")
        yield Running(chosen, client, str(graphs[0]["run"]))


def _chosen(name: str | None) -> str:
    there = candidates()
    if name is not None:
        if name in there and answers(there[name]):
            return name
        # what is asked for may be another user's
        others = ", ".join(one for one, path in there.items() if answers(path))
        fix = f"There are: {others}" if others else "Start it with `netdyno nat run`; ask as the same user"
        raise Error(NONE, f"no NAT named {name} runs here", at=str(socket(name).parent), fix=fix)
    names = [one for one, path in there.items() if answers(path)]
    if len(names) == 1:
        return names[0]
    if not names:
        fix = "Start one with `netdyno nat run FILE`; ask as the same user"
        raise Error(NONE, "no NAT runs here", at=str(paths.runtime()), fix=fix)
    raise Error(NONE, f"{len(names)} NATs run here", fix=f"Choose one: {', '.join(names)}")
