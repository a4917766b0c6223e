"""Agents: `netdynod` on the hosts of a fleet. How each is started, reached and ended is a launcher's."""

from __future__ import annotations

import fcntl
import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol

from netdyno import config, files, paths, reading
from netdyno.core.address import Address
from netdyno.core.client import Client
from netdyno.errors import Error
from netdyno.experiment.measurer import LocalKernel
from netdyno.fleet.hosts import PER_RELAY, HostSpec, read
from netdyno.system.journal import Journal
from netdyno.system.ssh import SshHost

FORMAT = "netdyno-fleet-state/1"
PROBES = 9
"""Measurements of a clock; the one with the shortest round trip counts."""


@dataclass(frozen=True)
class Agent:
    """An agent that was started."""

    host: HostSpec
    socket: str
    """Path of its Unix socket, on its host; of an agent that we did not start, none is known."""
    pid: int = 0
    """Its process, on its host; 0: not known yet."""
    start: int | None = None
    """local: when the process started, in ticks after boot."""
    boot: str = ""
    """local: the boot in which it did."""
    folder: str = ""
    """ssh: its folder on the host."""
    identity: str = ""
    """mutual TLS: folder on this machine with our certificate and the agent's CA."""
    port: int = 0
    """mutual TLS: where it listens."""
    address: str = ""
    """ray: its node's."""
    actor: str = ""
    """ray: name of the actor that started it."""

    def as_dict(self) -> dict[str, Any]:
        """Plain data, for the journal and the state."""
        return asdict(self) | {"host": self.host.model_dump(mode="json")}

    @classmethod
    def of(cls, plain: dict[str, Any]) -> Agent:
        """What `as_dict` wrote."""
        host = config.check(HostSpec, plain["host"], "ND-104-91", "fleet state")
        return cls(**(plain | {"host": host}))


@dataclass(frozen=True)
class Offset:
    """How far the clock of a host is ahead of ours."""

    seconds: float
    error: float
    """Half of the round trip by which it was measured, s: the true offset is at most this far away."""


def measured(ask: Callable[[], float]) -> Offset:
    """The offset of a clock that `ask` reads, by the shortest of some round trips."""
    found: list[Offset] = []
    for _ in range(PROBES):
        sent = time.time()
        there = ask()
        back = time.time()
        found.append(Offset(there - (sent + back) / 2, (back - sent) / 2))
    return min(found, key=lambda one: one.error)


class Connection(Protocol):
    """A way to an agent, from when it is entered until it is left."""

    @property
    def address(self) -> Address:
        """Where the agent is reached from this machine."""

    def offset(self, client: Client) -> Offset:
        """Measure its clock against ours; `client` speaks with the agent."""

    def close(self) -> None:
        """End it."""


class Launcher(Protocol):
    """Places agents on hosts and supervises them; it is never in the way of measurement."""

    remote: bool
    """Whether an agent may run on another machine, which does not see files of this one."""

    def brings_files(self, host: HostSpec) -> bool:
        """Whether a file that the agent writes comes to this machine, as captures must."""

    def start(self, fleet: str, host: HostSpec, notes: Journal) -> Agent:
        """Start an agent, noted in the journal before; raises when it does not come up."""

    def connect(self, agent: Agent, token: str, notes: Journal) -> Connection:
        """A way to an agent, noted in the journal; `token` tells it from other runs'."""

    def stop(self, agent: Agent) -> bool:
        """End an agent and remove all that was made for it; whether there was any of it."""

    def kernel(self, host: HostSpec) -> LocalKernel | SshHost | None:
        """Where kernel parameters of a host are set; None: nowhere that is reached."""

    def examine(self, host: HostSpec) -> Iterator[tuple[bool, str, str]]:
        """What `fleet doctor` says of a host: whether it is good, what was found, what to do."""


@dataclass(frozen=True)
class Fleet:
    """A fleet that is up."""

    name: str
    agents: tuple[Agent, ...]
    agents_per_relay: int = PER_RELAY
    """A fleet of more is reached through relays."""


def folder() -> Path:
    """Where fleets that are up are noted."""
    return paths.state() / "fleet"


def state_file(name: str) -> Path:
    """The file of one fleet."""
    return folder() / f"{name}.json"


def save(fleet: Fleet) -> None:
    """Note that a fleet is up."""
    files.own_folder(folder())
    plain = {
        "format": FORMAT,
        "name": fleet.name,
        "agents_per_relay": fleet.agents_per_relay,
        "agents": [one.as_dict() for one in fleet.agents],
    }
    files.write(state_file(fleet.name), json.dumps(plain, indent=2) + "\n")


@contextmanager
def coming_up(name: str) -> Iterator[None]:
    """While a fleet is brought up, none of the same name can be.

    Raises `ND-104-90` where another process, or thread, is bringing it up.
    """
    files.own_folder(folder())
    with files.open_private(folder() / f"{name}.lock", "w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            fix = "Wait until it is up, or give the file another `name:`"
            raise Error("ND-104-90", f"a fleet {name!r} is coming up", at=name, fix=fix) from None
        yield


def load(name: str) -> Fleet:
    """A fleet that is up, by its name or its hosts.yaml. Raises `ND-104-90` when there is none."""
    # no name of a fleet has a dot
    if name.endswith((".yaml", ".yml", ".json")):
        name = read(Path(name)).name
    if name not in names():
        up = ", ".join(names())
        fix = f"These are up: {up}" if up else "Start one with `netdyno fleet up hosts.yaml`"
        raise Error("ND-104-90", f"no fleet {name[:80]!r} is up", at="--fleet", fix=fix)
    path = state_file(name)
    try:
        plain = reading.record(path)
        most = int(plain.get("agents_per_relay", PER_RELAY))
        return Fleet(str(plain["name"]), tuple(Agent.of(one) for one in plain["agents"]), most)
    except (ValueError, LookupError, TypeError) as e:
        fix = "Remove the file, then run `netdyno restore`"
        raise Error(
            "ND-104-90", f"what is noted of the fleet is damaged: {e!r}", at=str(path), fix=fix
        ) from e


def names() -> list[str]:
    """Fleets that are up."""
    where = files.trusted_folder(folder())
    return sorted(path.stem for path in where.glob("*.json")) if where.is_dir() else []


def forget(name: str) -> bool:
    """A fleet is down; whether it was noted."""
    path = state_file(name)
    found = path.is_file()
    path.unlink(missing_ok=True)
    return found
