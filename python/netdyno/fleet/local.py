"""The launcher `local`: agents are processes of this machine, each in a network namespace if need be."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from netdyno import paths
from netdyno.core.address import Address
from netdyno.core.client import Client
from netdyno.core.daemon import Daemon
from netdyno.errors import Error
from netdyno.experiment.measurer import LocalKernel
from netdyno.fleet.agents import Agent, Offset
from netdyno.fleet.hosts import HostSpec
from netdyno.system import namespace, proc
from netdyno.system.journal import Journal
from netdyno.system.proc import boot_id, start_time
from netdyno.system.undo import undo_dpdk, undo_process


@dataclass(frozen=True)
class Direct:
    """The agent's own socket; its clock is this machine's."""

    address: Address

    def offset(self, client: Client) -> Offset:
        """None: it is the same clock."""
        return Offset(0.0, 0.0)

    def close(self) -> None:
        """Nothing to do."""


class Local:
    """Starts agents on this machine."""

    remote = False

    def brings_files(self, _: HostSpec) -> bool:
        """It writes here."""
        return True

    def start(self, fleet: str, host: HostSpec, notes: Journal) -> Agent:
        """Start an agent. Raises `ND-92-90` where its namespace is missing or cannot be entered."""
        for good, what, fix in self.examine(host):
            if not good:
                raise Error("ND-92-90", what, at=host.name, fix=fix)
        socket = paths.runtime() / f"nd-fleet-{fleet}-{host.name}.agent"
        if socket.exists():
            fix = f"End what serves there, or run `netdyno fleet down {fleet}`"
            raise Error("ND-92-90", "another agent has its socket", at=str(socket), fix=fix)
        log = socket.with_suffix(".log")
        notes.write("path", path=str(log))
        daemon = Daemon(socket, log, namespace=host.namespace, notes=notes)
        return Agent(host, str(socket), daemon.pid, start_time(daemon.pid), boot_id())

    def connect(self, agent: Agent, token: str, notes: Journal) -> Direct:
        """Its socket."""
        return Direct(Address(Path(agent.socket)))

    def stop(self, agent: Agent) -> bool:
        """End its process, and remove its socket and log."""
        found = False
        if agent.boot == boot_id() and agent.start is not None:
            found = undo_process({"pid": agent.pid, "start": agent.start})
            undo_dpdk({"prefix": f"netdyno-{agent.pid}"})
        for path in (Path(agent.socket), Path(agent.socket).with_suffix(".log")):
            found |= path.exists()
            path.unlink(missing_ok=True)
        return found

    def kernel(self, host: HostSpec) -> LocalKernel:
        """That of its namespace."""
        return LocalKernel(host.namespace)

    def examine(self, host: HostSpec) -> Iterator[tuple[bool, str, str]]:
        """Whether its namespace is there, and its cores are."""
        if host.namespace is not None:
            if host.namespace not in namespace.names():
                yield False, f"there is no namespace {host.namespace}", f"ip netns add {host.namespace}"
                return
            if os.geteuid():
                yield False, "only root may enter a namespace", "Run it with sudo"
                return
            yield True, f"namespace {host.namespace} is there", ""
        here = os.sched_getaffinity(0)
        if away := [core for core in host.cores if core not in here]:
            yield False, f"there is no core {away[0]} here", "Use cores of this machine"
        else:
            yield True, f"{len(host.cores or here)} cores", ""

    def alive(self, agent: Agent) -> bool:
        """Whether its process lives."""
        return agent.boot == boot_id() and proc.alive(agent.pid, agent.start)
