"""The contract of a workload: what serves, what loads it, and what comes out.

A workload starts servers of its own in one namespace and loads them from another. It changes nothing of the
kernel: that is for the bench. Adding one costs its file and a line in `__init__.py`.
"""

from __future__ import annotations

import contextlib
import logging
import math
import resource
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, ClassVar, Protocol

from netdyno import config
from netdyno.errors import Error
from netdyno.lab.dut.base import DutSite, Settings
from netdyno.lab.workload.slo import Slo
from netdyno.stats.observation import Metric
from netdyno.system.journal import Journal, journal
from netdyno.system.process import OutputReader, Process, find


class Guest(Protocol):
    """A machine on which programs of a workload run: a virtual one, or another over SSH."""

    def run(self, command: Sequence[str], seconds: float) -> tuple[int, str]:
        """Run a program to its end, at most so long: its exit status and what it printed."""

    def serve(
        self, command: Sequence[str], listens: Callable[[str], bool], stack: contextlib.ExitStack
    ) -> None:
        """A server until the stack closes. `listens` tells it from the machine's /proc/net/tcp."""


@dataclass(frozen=True)
class Site:
    """Where a workload runs: two namespaces joined by a path, or machines in place of them."""

    client: str | None
    server: str | None
    """Namespaces; None: the one that we are in."""
    address: str
    """Of the server."""
    folder: Path
    """For logs."""
    notes: Journal = field(default_factory=journal)
    patience: float = math.inf
    """Seconds after which a load generator is ended, whatever its own limit."""
    guests: tuple[Guest | None, Guest | None] = (None, None)
    """Machines that are client and server in place of the namespaces."""
    address6: str = ""
    """Of the server over IPv6; empty: it has none."""
    launchers: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """What goes before programs of `client` and `server` that run from a container's image."""
    fleet: Callable[[Callable[[str], None]], Any] | None = None
    """Connects to the hosts of a fleet that generate the load in place of a daemon on the client."""
    ports: Sequence[Mapping[str, Any]] = ()
    """DPDK ports of our own generator, as in a profile, in place of sockets: the client's, or both ends'."""

    def program(self, name: str, package: str) -> str:
        """How a program is called: by its path here, or by its name in an image. Raises Error."""
        return name if self.launchers else find(name, package)

    def site_of(self, name: str) -> DutSite:
        """For a server that is a device under test."""
        return DutSite(name, self.address, self.server, log=self.folder / f"{name}.log", notes=self.notes)


SEGMENTS, RETRANSMITTED = "sent.segments", "sent.again"
"""Counters of TCP segments with data that were sent in all, and of those that were sent again."""


@dataclass(frozen=True)
class WorkloadResult:
    """Metrics and counters of one trial."""

    metrics: Mapping[str, float]
    counters: Mapping[str, float] = field(default_factory=dict)
    """What it counted of the kernel's doings itself, as `tcp.cwnd_after_idle`."""
    wrong: str = ""
    """Why the trial does not count, if it does not."""
    series: Mapping[str, Sequence[float]] = field(default_factory=dict)
    """Of metrics, second by second."""


class Workload(ABC):
    """One kind of load."""

    name: ClassVar[str]
    about: ClassVar[str]
    """In a sentence."""
    Options: ClassVar[type[Settings]]
    metrics: Mapping[str, Metric]
    """By name; of one kind of load the same, unless its options define them."""
    slos: tuple[Slo, ...] = ()
    """Bounds on metrics that no setting may break."""
    in_guests: ClassVar[bool] = False
    """Whether its programs run in virtual machines and on other machines, too."""
    client_stays: ClassVar[bool] = False
    """Its client stays in a namespace where the server is a virtual machine."""
    in_containers: ClassVar[bool] = False
    """Whether its programs run with the files of a container's image, too."""
    from_fleet: ClassVar[bool] = False
    """Whether its load can come from the hosts of a fleet."""
    over_ports: ClassVar[bool] = False
    """Whether its load can come from DPDK ports of our generator."""
    needs_ports: ClassVar[tuple[tuple[str, int], ...]] = ()
    """Ports of the server that must be reached, by protocol: `("tcp", 5201)`."""
    programs: ClassVar[Mapping[str, str]] = {}
    """Programs that it needs, and the packages that they come from."""

    def __init__(self, options: Mapping[str, Any] | None = None) -> None:
        self.options: Any = config.check(
            self.Options, dict(options or {}), "ND-104-24", f"workload.{self.name}"
        )
        self._stack = contextlib.ExitStack()

    def serve(self, site: Site) -> None:
        """Start what serves. On failure nothing of it is left."""
        # in a machine, servers of ours take the place of others
        here = not (self.client_stays and site.guests[1])
        for program, package in self.programs.items() if here else ():
            site.program(program, package)
        raise_file_limit()
        with contextlib.ExitStack() as stack:
            self.open(site, stack)
            self._stack = stack.pop_all()

    @classmethod
    def in_machines(cls) -> list[str]:
        """Paths of the programs that virtual machines need. Raises Error where one is missing."""
        return [find(*one) for one in cls.programs.items()]

    @classmethod
    def on_other_machines(cls) -> list[str]:
        """Names of the programs that other machines need."""
        return list(cls.programs)

    @abstractmethod
    def open(self, site: Site, stack: contextlib.ExitStack) -> None:
        """Start servers, each with its end on the stack."""

    @abstractmethod
    def run(self, site: Site, seed: int) -> WorkloadResult:
        """Load it once."""

    def stop(self) -> None:
        """End what serves."""
        stack, self._stack = self._stack, contextlib.ExitStack()
        stack.close()

    @property
    def label(self) -> str:
        """What it is, with the options that are not the usual ones."""
        shown = [f"{k}={v}" for k, v in self.options.model_dump(exclude_defaults=True).items()]
        return " ".join([self.name, *shown])


def metric_table(*metrics: Metric) -> dict[str, Metric]:
    """By name."""
    return {one.name: one for one in metrics}


def start_server(site: Site, command: Sequence[str], name: str, stack: contextlib.ExitStack) -> Process:
    """A server that is a program, until the stack closes."""
    command = [*site.launchers.get("server", ()), *command]
    made = Process(command, log=site.folder / f"{name}.log", namespace=site.server, notes=site.notes)
    stack.callback(made.stop)
    return made


def run_generator(site: Site, command: Sequence[str], seconds: float) -> str:
    """Run a load generator to its end, at most so long; what it printed."""
    seconds = min(seconds, site.patience)
    if guest := site.guests[0]:
        code, text = guest.run(command, seconds)
        if code:
            raise _failed(command, code, text.strip()[-300:])
        return text
    name = Path(command[0]).name
    log = site.folder / f"{name}-client.log"
    started = [*site.launchers.get("client", ()), *command]
    process = Process(started, log=log, namespace=site.client, pipe_output=True, notes=site.notes)
    reader = OutputReader(process)
    try:
        status = process.wait(seconds)
        if status is None:
            what = f"it did not end within {seconds:g} s"
            raise Error("ND-91-25", what, at=" ".join(command), fix="Give it less to do, or more time")
        reader.wait()
    finally:
        process.stop()
        output, held = reader.finish()
    text = output.decode(errors="replace")
    if held:
        _tell_left(name)
    if status:
        raise _failed(command, status, process.tail(3) or text.strip()[-300:])
    return text


@cache
def _tell_left(program: str) -> None:
    """Once for each program: the next trial has it again."""
    logging.getLogger(__name__).warning("a child of %s still holds its output: left", program)


def _failed(command: Sequence[str], status: int, words: str) -> Error:
    return Error(
        "ND-91-25", f"it ended with status {status}: {words or 'it printed nothing'}", at=" ".join(command)
    )


def deaf(words: str, at: str, program: str = "iperf3 -s") -> Error:
    """That a server does not come up."""
    return Error("ND-92-25", f"{program} does not listen: {words}", at=at)


def unreadable(program: str, text: str) -> Error:
    """That a load generator printed something else than expected."""
    shown = " ".join(text.split())[-200:] or "nothing"
    return Error("ND-91-25", f"{program} printed no result: {shown}", fix="See its log in the run's folder")


def raise_file_limit(wanted: int = 1 << 20) -> None:
    """Let this process open as many files as it may: our own workloads hold thousands of sockets."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, wanted)), hard))
