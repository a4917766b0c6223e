"""`result.json`: everything one experiment found, in one document (`netdyno-result/1`).

The report, the store, `--json` and every later reader build on this shape. Delays are nanoseconds.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from netdyno.model import Counts, Distribution, Model, Reason, Trial

FORMAT = "netdyno-result/1"


class CpuPoint(Model):
    """CPU of a DUT over the interval that ends at `t` seconds after the start of the load.

    1.0 is one core; a DUT with several processes can use more.
    """

    t: float
    cpu: float


class DutReport(Model):
    """What was seen of a DUT from outside the load."""

    driver: str = ""
    version: str = ""
    host: str = ""
    cpu_series: list[CpuPoint] = Field(default_factory=list)
    counters_before: dict[str, float] = Field(default_factory=dict)
    counters_after: dict[str, float] = Field(default_factory=dict)
    died: str | None = None
    """Why it ended by itself, with its last words."""


class Witness(Model):
    """One thing counted by us and by somebody else."""

    what: str
    """What was counted, and by whom: `broker: PUBLISH received ($SYS)`."""
    ours: float
    theirs: float
    agree: bool


class CaptureReport(Model):
    """How the capture of a trial went."""

    path: str = ""
    interface: str = ""
    packets: int = 0
    bytes: int = 0
    dropped: int = 0
    """Packets that passed and could not be taken."""
    state: str = "stopped"
    """`stopped` at the end of the run, `full` at its limit, or `failed`."""
    error: str | None = None


class Repetition(Trial):
    """A trial, and what was seen around it."""

    index: int = 0
    """Place of this trial in the order they were run."""
    dut: dict[str, DutReport] = Field(default_factory=dict)
    witnesses: list[Witness] = Field(default_factory=list)
    capture: CaptureReport | None = None


class Estimate(Model):
    """A mean over repetitions, with its interval when there are at least two."""

    n: int
    mean: float
    sd: float | None = None
    interval: tuple[float, float] | None = None


class GroupSummary(Model):
    """A group over all repetitions of a leg: histograms merged, counts added, rates averaged."""

    name: str
    protocol: str = ""
    target: str = ""
    devices: int = 0
    measured: Counts = Field(default_factory=Counts)
    rates: dict[str, Estimate] = Field(default_factory=dict)
    loss: Estimate | None = None
    delays: dict[str, Distribution] = Field(default_factory=dict)
    lateness: Distribution = Field(default_factory=Distribution)


class Summary(Model):
    """A leg over all its repetitions."""

    n: int = 0
    confidence: float = 0.95
    groups: list[GroupSummary] = Field(default_factory=list)


class Leg(Model):
    """One profile in one topology, repeated."""

    name: str
    transport: str = "sockets"
    levels: dict[str, Any] = Field(default_factory=dict)
    """Levels of the experiment's factors that this leg stands for."""
    repetitions: list[Repetition] = Field(default_factory=list)
    summary: Summary = Field(default_factory=Summary)


class ThresholdResult(Model):
    """One condition, judged over the repetitions of its leg."""

    leg: str = ""
    metric: str
    bound: float
    kind: Literal["max", "min"]
    value: float | None
    """Over all repetitions: from merged histograms for delays, else the mean. None: nothing was measured."""
    interval: tuple[float, float] | None = None
    """Of the repetitions' mean at `confidence`; None with fewer than two repetitions."""
    confidence: float = 0.95
    passed: bool
    n: int = 0


class Files(Model):
    """Names of what lies beside `result.json`."""

    capture: str | None = None
    flows: str | None = None
    series: str | None = None
    profile: str | None = None
    log: str | None = None
    report: str | None = None


class Result(Model):
    """The whole result of an experiment."""

    format: str = FORMAT
    id: str
    name: str
    started: str
    finished: str = ""
    valid: bool = False
    verdict: Literal["pass", "fail"] = "fail"
    interrupted: bool = False
    error: dict[str, Any] | None = None
    """What ended the experiment early: {code, at, what, fix}."""
    reasons: list[Reason] = Field(default_factory=list)
    thresholds: list[ThresholdResult] = Field(default_factory=list)
    legs: list[Leg] = Field(default_factory=list)
    environment: dict[str, Any] = Field(default_factory=dict)
    files: Files = Field(default_factory=Files)
    command: list[str] = Field(default_factory=list)
