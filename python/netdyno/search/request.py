"""What somebody asks of a search, and what a kind of search is."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from netdyno.core.result import Repetition
from netdyno.core.search import SearchFinding
from netdyno.experiment.measurer import Action
from netdyno.experiment.spec import LegSpec
from netdyno.search.axes import Fits
from netdyno.search.load import Axis
from netdyno.search.mlr import RelevantBounds
from netdyno.search.trial import Goal, LoadTrial, Space, Strategy, TrialRequest


@dataclass(frozen=True)
class Baseline:
    """The highest load that the tester carries against itself."""

    load: float
    open: bool
    """It is the highest that was tried: the tester may carry more."""


@dataclass(frozen=True)
class SearchRequest:
    """A load search: goals, strategy, resolution and trial length."""

    goals: tuple[Goal, ...]
    kind: str = "throughput"
    strategy: str = "binary"
    """`binary`, or `mlr` (RFC 9971)."""
    resolution: float = 0.005
    """Distance between the bounds at which a search ends, as a share."""
    sizes: str | None = None
    """Frame sizes: `rfc2544`, `rfc5180`, `imix`, or a list like `64,512`; none: as the profile has them."""
    seconds: float = 10.0
    """Length of a trial."""
    repeat: int = 12
    """Trials near the edge, for each goal; of latency and the like, how often each is measured."""
    step: float = 0.1
    """Of a loss curve, as a share of the highest load."""
    at: float | None = None
    """Latency, recovery and reset: the load as a share of the highest, in place of a search for it."""
    messages: bool = False
    """Rate: loads are messages per second of devices that send at an interval, and not their number."""
    objects: str | None = None
    """Of applications: sizes of what is asked for, `1KiB,mixed` or `rfc9411`; none: as the profile has it."""
    per_connection: tuple[int, ...] = ()
    """Of applications: transactions of each connection, one search for each; none: the kind's own."""
    shares: tuple[float, ...] = ()
    """Latency: shares of the load that was found, at which it is measured; none: at that load itself."""
    confirm: float = 0.0
    """Rate: flows of a last trial, at the load that was found; 0: there is none."""
    baseline: Baseline | None = None
    """Rate: what the tester carries without a DUT, where that was measured."""


@dataclass
class PartSearch:
    """A running search at one frame size."""

    name: str
    axis: Axis
    space: Space
    unit: str
    strategy: Strategy
    planned: int
    trials: list[LoadTrial] = field(default_factory=list)
    checks: list[LoadTrial] = field(default_factory=list)
    """Trials that only told whether the DUT still answered."""
    legs: dict[int, str] = field(default_factory=dict)
    """Which leg has a trial, by the trial's number."""
    repetitions: dict[int, Repetition] = field(default_factory=dict)
    """Kept where a kind needs more of a trial than strategies do."""
    relevant: dict[str, RelevantBounds] = field(default_factory=dict)
    """What MLRsearch reports."""
    leg: str = ""
    """Of which leg it is, where several are searched."""
    size: str = ""
    """At which frame size, where these are named."""
    ask: TrialRequest | None = None
    """The trial that its strategy waits for."""
    stop: str = ""
    """Why it ended; empty: it did not."""


class Kind(Protocol):
    """A kind of search: which loads it tries, how it offers one, and what it makes of the trials."""

    name: str
    rfc: str
    """The section that it follows."""
    exact: bool
    """Whether how much is lost matters, and not only whether it is more than a goal allows."""
    by_loss: bool
    """Whether trials are judged by what they lost; if not, a generator that was late disturbs none."""
    timed: bool
    """Whether delays are taken from its trials of full length."""
    several: bool
    """Whether it is made over several legs: whether a DUT is after it as it was."""

    def parts(
        self, legs: Sequence[LegSpec], request: SearchRequest, fits: Fits
    ) -> Iterator[tuple[str, str, Axis]]:
        """What is searched: name, leg where there are several, and axis."""

    def space(self, axis: Axis, request: SearchRequest) -> tuple[Space, str]:
        """Where it looks, and the unit of its loads."""

    def strategy(
        self, axis: Axis, space: Space, request: SearchRequest, relevant: dict[str, RelevantBounds]
    ) -> Strategy:
        """What it tries."""

    def leg(self, axis: Axis, ask: TrialRequest, request: SearchRequest) -> LegSpec:
        """The leg that offers a load."""

    def actions(self, axis: Axis, ask: TrialRequest) -> tuple[Action, ...]:
        """What is done to the DUT during a trial."""

    def judge(
        self, part: PartSearch, request: SearchRequest
    ) -> tuple[Sequence[SearchFinding], Mapping[str, float]]:
        """Findings, and further figures."""

    def missing(self, part: PartSearch, request: SearchRequest) -> Sequence[str]:
        """What no trial that counts says anything of, in words; then the result is not valid."""
