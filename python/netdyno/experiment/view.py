"""How a run is watched: what a live view, a log or a stream of JSON implements."""

from __future__ import annotations

from typing import Any, Protocol, TypedDict

from netdyno.core.wire import Status

SHORT = 0.1
"""A point so much shorter than the others, as the last of a drain is, counts but tells no rate and no CPU."""


class Plan(TypedDict, total=False):
    """What is about to run: one trial of an experiment."""

    id: str
    title: str
    """Name of the experiment."""
    target: str
    """Addresses under test, as a person would name them."""
    description: str
    """What the profile says of itself."""
    leg: str
    transport: str
    trial: int
    """Its place in the order, from 1."""
    trials: int
    """How many there are in all."""
    repetition: int
    """Which repetition of its leg, from 1."""
    repetitions: int
    duration: float
    """Seconds of warm-up, measure and drain together."""
    phases: dict[str, float]
    """warmup, measure, drain in seconds."""
    daemon: str
    """Where the core that runs it listens."""
    links: dict[str, Any] | None
    """Where impaired links are asked for their counters: `{daemon, links: [{link, a, b}]}`."""
    groups: list[dict[str, Any]]
    """As `run.load` answers: name, protocol, target, devices, delays."""
    thresholds: list[dict[str, Any]]
    """Of the profile."""
    lateness_p99: float
    """Limits of validity: nanoseconds, then two ratios."""
    offered: float
    starved: float


class Live(Protocol):
    """A view of a run. Calls come from one thread, in order; a view must never make the run fail."""

    def start(self, plan: Plan) -> None:
        """A trial begins; comes again for the next one."""

    def sample(self, sample: dict[str, Any]) -> None:
        """A point of the series, as the core sends it."""

    def dut(self, name: str, cpu: float) -> None:
        """CPU of a device under test over the last interval; 1.0 is one core."""

    def state(self, status: dict[str, Any]) -> None:
        """The run's state changed; as `run.status` has it."""

    def log(self, line: str) -> None:
        """Something worth a line: set-up, a warning, where the result is."""

    def close(self) -> None:
        """The experiment is over; the terminal belongs to others again."""


class NullView:
    """Shows nothing; also the base of views that need only some of the calls."""

    def start(self, plan: Plan) -> None:
        """A trial begins."""

    def sample(self, sample: dict[str, Any]) -> None:
        """A point of the series."""

    def state(self, status: dict[str, Any]) -> None:
        """The run's state changed."""

    def dut(self, name: str, cpu: float) -> None:
        """CPU of a device under test."""

    def log(self, line: str) -> None:
        """A line."""

    def close(self) -> None:
        """The end."""


def plain(status: Status) -> dict[str, Any]:
    """A status as views get it."""
    return status.model_dump(mode="json")
