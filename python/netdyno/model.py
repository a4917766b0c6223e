"""What the core says, typed: samples, status and the trial result of `docs/reference/rpc.md`.

Unknown keys are kept, so that an older application can store what a newer core reports.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

COUNTERS = (
    "flows_intended",
    "flows_started",
    "flows_completed",
    "flows_failed",
    "messages_intended",
    "messages_sent",
    "messages_delivered",
    "messages_received",
    "duplicates",
    "reordered",
    "bytes_sent",
    "bytes_received",
)
"""The plain counters of a group, in the order of the core's meter."""


class Model(BaseModel):
    """Base of everything that comes over the wire."""

    model_config = ConfigDict(extra="allow", populate_by_name=True)


class Counts(Model):
    """Counts of one group over some time."""

    flows_intended: int = 0
    flows_started: int = 0
    flows_completed: int = 0
    flows_failed: int = 0
    messages_intended: int = 0
    messages_sent: int = 0
    messages_delivered: int = 0
    messages_received: int = 0
    duplicates: int = 0
    reordered: int = 0
    bytes_sent: int = 0
    bytes_received: int = 0
    failures: dict[str, int] = Field(default_factory=dict)


class Quantiles(Model):
    """A distribution in a few numbers; nanoseconds for delays."""

    count: int = 0
    min: float = 0
    mean: float = 0
    p50: float = 0
    p90: float = 0
    p99: float = 0
    p999: float = 0
    max: float = 0


class Distribution(Quantiles):
    """A distribution with everything needed to merge it with others."""

    sd: float = 0
    jitter: float | None = None
    hdr: str = ""
    """HdrHistogram V2, deflated, base64."""


class Phases(Model):
    """How long each phase really took, in seconds."""

    warmup: float = 0
    measure: float = 0
    drain: float = 0


class GroupSample(Model):
    """One group within one point of the series."""

    counts: Counts = Field(default_factory=Counts)
    devices_active: int = 0
    delays: dict[str, Quantiles] = Field(default_factory=dict)
    lateness: Quantiles = Field(default_factory=Quantiles)


class WorkerSample(Model):
    """One worker: the share of the time it ran, and the share it waited for its CPU."""

    worker: int = 0
    core: int | None = None
    cpu: float = 0
    starved: float = 0


class Sample(Model):
    """One point of the series; counts are of the interval that ends at `t`."""

    t: float
    dt: float = 1.0
    phase: str = ""
    elapsed: float = 0
    left: float = 0
    groups: dict[str, GroupSample] = Field(default_factory=dict)
    workers: list[WorkerSample] = Field(default_factory=list)
    interfaces: dict[str, dict[str, int]] = Field(default_factory=dict)


State = Literal["idle", "loaded", "running", "paused", "draining", "done", "failed"]


class Status(Model):
    """Where a run is."""

    run: str | None = None
    state: str = "idle"
    phase: str | None = None
    elapsed: float = 0
    left: float = 0
    error: Any = None

    @property
    def ended(self) -> bool:
        """Whether there is nothing more to wait for."""
        return self.state in ("done", "failed")


class Reason(Model):
    """Why a trial cannot be trusted."""

    code: str
    group: str | None = None
    what: str = ""
    value: float | None = None
    limit: float | None = None


class Validity(Model):
    """Whether the generator did what was asked."""

    valid: bool = True
    reasons: list[Reason] = Field(default_factory=list)


class ErrorCount(Model):
    """One kind of failure, how often, and what it looked like."""

    kind: str
    count: int = 0
    example: str | None = None


class GroupResult(Model):
    """What one group did in a trial."""

    name: str
    protocol: str = ""
    target: str = ""
    devices: int = 0
    measured: Counts = Field(default_factory=Counts)
    total: Counts = Field(default_factory=Counts)
    rates: dict[str, float] = Field(default_factory=dict)
    loss: float | None = None
    """Share of sent messages that were not delivered; None when none was sent, or none is ever confirmed."""
    delays: dict[str, Distribution] = Field(default_factory=dict)
    lateness: Distribution = Field(default_factory=Distribution)
    errors: list[ErrorCount] = Field(default_factory=list)


class WorkerResult(WorkerSample):
    """One worker over a whole trial."""

    intervals: Any = None


class Trial(Model):
    """The result of one trial, as `run.result` gives it."""

    run: str
    profile: dict[str, Any] = Field(default_factory=dict)
    transport: str = "sockets"
    version: str = ""
    started: str = ""
    phases: Phases = Field(default_factory=Phases)
    stopped: str | None = None
    error: dict[str, Any] | None = None
    validity: Validity = Field(default_factory=Validity)
    groups: list[GroupResult] = Field(default_factory=list)
    workers: list[WorkerResult] = Field(default_factory=list)
    interfaces: dict[str, dict[str, int]] = Field(default_factory=dict)
    elements: list[dict[str, Any]] = Field(default_factory=list)
    series: list[Sample] = Field(default_factory=list)
