"""What measures a trial, behind one interface: our daemon, an external tool or a simulation.

Of a load the trial is asked for as a variant of an experiment, and what comes back is a repetition with all
that was seen around it. Of a setting it is asked for as a difference from the baseline, and what comes back
are the metrics of a workload, which may be any tool's.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, TypeVar

from netdyno.core.address import Address
from netdyno.core.client import Subscription
from netdyno.core.result import Repetition
from netdyno.core.wire import Status, TrialResult
from netdyno.errors import Error
from netdyno.experiment.spec import Variant
from netdyno.experiment.view import Live, Plan
from netdyno.lab.dut import Dut
from netdyno.stats.observation import Metric, Observation, Setting
from netdyno.system.interrupt import Interrupts
from netdyno.system.ssh import SshHost

Request = TypeVar("Request", contravariant=True)
Result = TypeVar("Result", covariant=True)


class Measurer(Protocol[Request, Result]):
    """Measures what it is asked for. What chooses trials, repeats, keeps and judges them drives one."""

    def measure(self, asked: Request, seed: int) -> Result:
        """One trial; what of it is left to chance follows from the seed."""


class SettingMeasurer(Measurer[Setting, Observation], Protocol):
    """Measures settings; a setting with nothing in it is the baseline itself."""

    @property
    def metrics(self) -> Mapping[str, Metric]:
        """What it measures, by name."""


@dataclass(frozen=True)
class Action:
    """Something that is done to a DUT while a trial runs."""

    after: float
    """Seconds after the load began."""
    dut: str
    do: Callable[[Dut], None]
    deadline: float = math.inf
    """Seconds after the load began by which it must have ended for the trial to be valid."""
    steady: float = math.inf
    """How late the generator may be meanwhile for the trial to be valid, as a share of the action's time."""


class Core(Protocol):
    """What a trial needs of what generates its load: a daemon's client, or several of them as one."""

    @property
    def address(self) -> Address:
        """Where it is."""

    def call(self, method: str, *, timeout: float | None = None, **params: Any) -> Any:
        """A request, and its answer."""

    def acquire(self) -> None:
        """Become the writer, and keep the lease."""

    def release(self) -> None:
        """Let another write."""

    def subscribe(self) -> Subscription:
        """Samples and changes of state from now on."""

    def status(self) -> Status:
        """Where the run is."""

    def result(self) -> TrialResult:
        """What the trial found."""

    def flows(self) -> Iterator[list[Any]]:
        """The summary of each device."""

    def close(self) -> None:
        """Hang up."""


Connect = Callable[[Callable[[str], None]], Core]
"""Connects to a core; gets what takes lines for the user."""


@dataclass(frozen=True)
class FleetCore:
    """A fleet that generates the load of a leg."""

    name: str
    connect: Connect


@dataclass(frozen=True)
class LocalKernel:
    """The kernel here, as a network namespace sees it; None: the namespace that we are in."""

    namespace: str | None


@dataclass(frozen=True)
class FleetHost:
    """A host of a fleet by itself."""

    name: str
    connect: Connect
    """To the load that it alone generates."""
    kernel: LocalKernel | SshHost | None
    """Where its parameters are set; None: nothing but its agent is reached."""
    ports: tuple[Mapping[str, Any], ...] = ()
    """Its DPDK ports, as a profile has them."""


@dataclass
class TrialContext:
    """Context of a trial: folder, view, interrupts, plan."""

    token: str
    """Short name of the run, for namespaces and sockets."""
    folder: Path
    live: Live
    interrupts: Interrupts
    plan: Plan
    capture: Path | None = None
    socket: Address | None = None
    """A daemon that already runs; none: one is started for the trial."""
    connect: Connect | None = None
    """Connects to what generates the load in place of one daemon; none: a daemon does."""
    each: Callable[[dict[str, Any]], None] = lambda _: None
    """Told every sample as it comes."""
    actions: tuple[Action, ...] = ()
    """What is done while it runs, in the order of time."""
    abort_on_fail: bool = False
    """Whether it is stopped when a threshold has failed for good."""
    aborted: str = ""
    """The metric for which it was."""
    confined: bool = False
    """Whether the profile may name what a client over TCP may: no files, no driver's arguments."""


@dataclass(frozen=True)
class Load:
    """A load that is to be measured."""

    variant: Variant
    context: TrialContext


@dataclass
class TrialOutcome:
    """A repetition if the trial ended normally, else the error that ended it."""

    repetition: Repetition | None = None
    error: Error | None = None
    flows: list[list[Any]] = field(default_factory=list)
    captured: bool = False
    interfaces: list[dict[str, Any]] = field(default_factory=list)
    versions: dict[str, str] = field(default_factory=dict)


LoadMeasurer = Measurer[Load, TrialOutcome]
"""Measures loads: topology and devices under test included. What goes wrong is in the outcome."""
