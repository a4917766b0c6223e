"""Relays of a fleet as its controller sees them: which there are, and a process for each."""

from __future__ import annotations

import contextlib
import math
import os
import socket
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from netdyno.core.address import Address
from netdyno.core.client import Client
from netdyno.core.wire import SeriesPoint, Status, TrialResult
from netdyno.errors import Error
from netdyno.fleet import answers
from netdyno.fleet.agents import Agent, Offset
from netdyno.fleet.host import LOST, Host, lost
from netdyno.fleet.link import OVERDUE, SILENCE, Notes, Rates
from netdyno.fleet.relay import LOST as TOLD_LOST
from netdyno.fleet.shard import Shard
from netdyno.system import journal as journals
from netdyno.system import python
from netdyno.system.journal import Journal
from netdyno.system.proc import start_time

PATIENCE = 120.0
"""Seconds for an answer: behind it many agents are asked, each of which may take its time."""

OnLost = Callable[["RelayLink", Mapping[str, Error]], None]


def groups(agents: Sequence[Agent], most: int) -> list[Sequence[Agent]]:
    """Agents by relay, in their order and about as many for each; none where one process can do it."""
    if len(agents) <= most:
        return []
    count = math.ceil(len(agents) / most)
    edges = [len(agents) * i // count for i in range(count + 1)]
    return [agents[low:high] for low, high in pairwise(edges)]


@dataclass(frozen=True)
class Ours(Address):
    """An end of a pair of sockets."""

    end: socket.socket | None = None

    def connect(self) -> socket.socket:
        """It is connected."""
        assert self.end is not None
        return self.end


class RelayClient(Client):
    """A connection to a relay, which besides tells of hosts that it lost."""

    def __init__(self, address: Ours, on_lost: Callable[[Mapping[str, Error]], None]) -> None:
        self._on_lost = on_lost
        super().__init__(address, PATIENCE, SILENCE)

    def _sort(self, message: dict[str, Any]) -> None:
        if message.get("method") == TOLD_LOST:
            self._on_lost({host: Error.of(one) for host, one in message["params"].items()})
        else:
            super()._sort(message)


class RelayLink:
    """A relay that we started: a process of this machine that ends with us."""

    def __init__(
        self, name: str, agents: Sequence[Agent], token: str, notes: Journal, on_lost: OnLost
    ) -> None:
        """Start it and have it connect to its agents; those that do not answer are in `absent`."""
        self.name: str = name
        self.hosts: list[Host] = []
        self.status = Status()
        self.lost: Error | None = None
        self.elapsed = 0.0
        # it loses hosts of its own before
        self.overdue = 1.5 * OVERDUE
        self.absent: dict[str, Error] = {}
        self._journal: Path | None = None
        self._words = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the relay
        with ExitStack() as undo:
            undo.callback(self._words.close)
            ours, theirs = socket.socketpair()
            undo.callback(ours.close)
            with theirs:
                command = python.module("netdyno.fleet.relay", str(theirs.fileno()))
                self._process = subprocess.Popen(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=self._words,
                    stderr=self._words,
                    pass_fds=[theirs.fileno()],
                    start_new_session=True,
                )
            undo.callback(self._process.kill)
            pid = self._process.pid
            self._undo = notes.write("process", pid=pid, start=start_time(pid), program="relay")
            self._notes = notes
            address = Ours(Path(name), end=ours)
            self.client: Client = RelayClient(address, lambda hosts: on_lost(self, hosts))
            undo.pop_all()
        try:
            self._connect(agents, token)
        except BaseException:
            self.close()
            raise

    def _connect(self, agents: Sequence[Agent], token: str) -> None:
        told = self.client.call(
            "relay.connect", name=self.name, agents=[one.as_dict() for one in agents], token=token
        )
        self._journal = Path(told["journal"])
        self.absent = {host: Error.of(one) for host, one in told["absent"].items()}
        for agent in agents:
            if known := told["hosts"].get(agent.host.name):
                offset = Offset(known["offset"], known["error"])
                self.hosts.append(Host(agent.host, known["about"], offset))

    def load(self, **more: Any) -> dict[str, Any]:
        """The shards of its hosts."""
        shards = {
            host.name: {"profile": host.shard.profile, "devices": dict(host.shard.devices)}
            for host in self.hosts
        }
        names = dict.fromkeys(name for host in self.hosts for name in host.shard.devices)
        patience = PATIENCE + float(more.pop("timeout", None) or 0)
        loaded: dict[str, Any] = self.client.call(
            "run.load", shards=shards, groups=list(names), timeout=patience, **more
        )
        runs = loaded.pop("runs")
        for host in self.hosts:
            host.run = runs.get(host.name, "")
        return loaded

    def start(self, at: float, seconds: float, drain: float) -> None:
        """Its clock is ours, and it knows those of its hosts."""
        self.client.call("run.start", at=at, seconds=seconds, drain=drain)

    def point(self, sample: Mapping[str, Any]) -> SeriesPoint:
        """A sum of points that it has checked."""
        return answers.point(sample)

    def rate(self, shares: Mapping[str, Rates], timeout: float | None) -> list[dict[str, Any]]:
        """The shares of its hosts."""
        mine = {host.name: shares[host.name] for host in self.hosts if host.name in shares}
        changes: list[dict[str, Any]] = self.client.call("run.rate", shares=mine)["rates"]
        return changes

    def result(self) -> TrialResult:
        """Merged by it."""
        return self.client.result()

    def collect(self, noted: Notes) -> TrialResult | None:
        """Merged by it."""
        mine = {host.name: noted[host.name] for host in self.hosts}
        for host in self.hosts:
            host.shard = Shard({}, dict(mine[host.name]["devices"]))
        groups = list(dict.fromkeys(name for one in mine.values() for name in one["devices"]))
        told = self.client.call("run.collect", noted=mine, groups=groups)
        for host in self.hosts:
            if error := told["lost"].get(host.name):
                host.lost = Error.of(error)
        return TrialResult.model_validate(told["result"]) if told["result"] else None

    def loss(self, why: Error) -> tuple[Error, dict[str, Error]]:
        """All of its hosts are lost with it."""
        when = f"after {self.elapsed:.1f} s of the run"
        with contextlib.suppress(subprocess.TimeoutExpired):
            why = Error(LOST, f"its process ended with {self._process.wait(1.0)}{self._last_words()}")
        # its agents hear no more of us, else they might from one that only hangs
        self._process.kill()
        left = [host.name for host in self.hosts if not host.lost]
        hosts = {name: lost(name, f"{when}, with its relay {self.name}: {why.what}") for name in left}
        what = f"the relay {self.name} was lost {when}, and with it the hosts {', '.join(left)}: {why.what}"
        return Error(LOST, what, at=self.name, fix="What the other hosts measured is kept"), hosts

    def named(self, error: Error) -> Error:
        """It names its hosts by itself."""
        return error

    def close(self) -> None:
        """End it, and undo what it could not by itself."""
        with contextlib.suppress(Error, OSError):
            self.client.close()
        try:
            self._process.wait(5.0)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._notes.undo(self._undo)
        self._words.close()
        if self._journal and self._journal.exists():
            journals.restore(self._journal.parent, only=self._journal)

    def _last_words(self) -> str:
        size = os.fstat(self._words.fileno()).st_size
        said = os.pread(self._words.fileno(), 4096, max(0, size - 4096)).decode(errors="replace")
        lines = [line.strip() for line in said.splitlines() if line.strip()]
        return f": {lines[-1]}" if lines else ""


def start(parts: Sequence[Sequence[Agent]], token: str, notes: Journal, on_lost: OnLost) -> list[RelayLink]:
    """A relay for each part of the agents, all at once; an error ends those that were started."""
    made: list[RelayLink] = []
    with ThreadPoolExecutor(max_workers=min(32, len(parts))) as pool:
        tasks = [
            pool.submit(RelayLink, f"relay-{number}", part, f"{token}r{number}", notes, on_lost)
            for number, part in enumerate(parts, 1)
        ]
    error: Error | None = None
    for task in tasks:
        try:
            made.append(task.result())
        except Error as e:
            error = error or e
    if error:
        for one in made:
            one.close()
        raise error
    return made
