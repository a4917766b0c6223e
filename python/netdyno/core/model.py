"""What the core says, typed: samples, status and the trial result of `docs/reference/rpc.md`.

Unknown keys are kept, so that an older application can store what a newer core reports.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
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
    "corrupted",
    "receive_drops",
    "bytes_sent",
    "bytes_received",
)
"""The plain counters of a group, in the order of the core's meter."""


class Model(BaseModel):
    """Base of everything that comes over the wire."""

    # made ready on first use: a command starts sooner
    model_config = ConfigDict(extra="allow", populate_by_name=True, defer_build=True)


class Counts(Model):
    """Counts of one group over some time; those of its own that its [model](models.md) has stand beside."""

    flows_intended: int = 0
    """Flows that an open loop asked for."""
    flows_started: int = 0
    """Flows begun."""
    flows_completed: int = 0
    """Flows that ended in good order."""
    flows_failed: int = 0
    """Flows that ended otherwise."""
    messages_intended: int = 0
    """Messages that fell due: the intended load."""
    messages_sent: int = 0
    """Messages handed to the transport: the offered load."""
    messages_delivered: int = 0
    """Messages whose delivery was confirmed."""
    messages_received: int = 0
    """Messages that came unasked, like those of subscriptions."""
    duplicates: int = 0
    """Messages that arrived again."""
    reordered: int = 0
    """Datagrams that arrived after a later one (RFC 4737)."""
    corrupted: int = 0
    """Replies that were not what was sent; they count as lost as well."""
    receive_drops: int = 0
    """Datagrams that our own receive queue had no room for: no loss of the network's."""
    bytes_sent: int = 0
    """Payload bytes that have left this host; on datagrams, that were given to it."""
    bytes_received: int = 0
    """Payload bytes received."""
    failures: dict[str, int] = Field(default_factory=dict)
    """Failures by kind; only kinds that occurred."""

    @property
    def own(self) -> dict[str, int]:
        """What the model counts of its own, by name."""
        extra = self.model_extra or {}
        return {name: count for name, count in extra.items() if type(count) is int}

    @classmethod
    def total(cls, parts: Sequence[Counts]) -> Counts:
        """All of them added up."""
        names = dict.fromkeys((*COUNTERS, *(name for part in parts for name in part.own)))
        failures: Counter[str] = Counter()
        for part in parts:
            failures.update(part.failures)
        counted = {name: sum(int(getattr(part, name, 0)) for part in parts) for name in names}
        return cls(**counted, failures=dict(failures))


class Quantiles(Model):
    """A distribution in a few numbers; nanoseconds for delays."""

    count: int = 0
    """How many values."""
    min: float = 0
    """Smallest."""
    mean: float = 0
    """Mean."""
    p50: float = 0
    """Median."""
    p90: float = 0
    """90th percentile."""
    p95: float | None = None
    """95th percentile; None in results of a former version, whose histogram knows it."""
    p99: float = 0
    """99th percentile."""
    p999: float = 0
    """99.9th percentile."""
    max: float = 0
    """Largest."""


class Spread(Quantiles):
    """A distribution of delays in a point of a series."""

    buckets: list[tuple[int, int]] = Field(default_factory=list)
    """Counts by upper bound in ns, of bounds that have any; beyond the last they are in `count` alone."""


class Distribution(Quantiles):
    """A distribution with everything needed to merge it with others."""

    sd: float = 0
    """Standard deviation."""
    pdv: float | None = None
    """99.9th percentile less the smallest (RFC 5481 §4.2); delays only."""
    jitter: float | None = None
    """Mean change from one message of a device to its next (RFC 5481 §4.1)."""
    hdr: str = ""
    """HdrHistogram V2, deflated, base64."""


class Phases(Model):
    """How long each phase really took, in seconds."""

    warmup: float = 0
    """Load on, not counted."""
    measure: float = 0
    """What the result is made of."""
    drain: float = 0
    """Nothing new; answers awaited."""


class GroupSample(Model):
    """One group within one point of the series."""

    counts: Counts = Field(default_factory=Counts)
    """Of this interval."""
    causes: dict[str, dict[str, int]] = Field(default_factory=dict)
    """Its failures by kind and cause, where more is known than the kind."""
    devices_active: int = 0
    """Devices with a flow under way at its end."""
    waiting: int | None = None
    """Devices that had been waiting for an answer longer than `stall` then; None where none is waited for."""
    delays: dict[str, Spread] = Field(default_factory=dict)
    """Delays by name, of messages answered in it."""
    lateness: Quantiles = Field(default_factory=Quantiles)
    """How late the generator was."""


class PauseLength(Model):
    """Those of about one length."""

    from_ns: int
    """What they last at least, ns; the next length is twice that."""
    count: int = 0
    """How many."""
    ns: int = 0
    """Their time, ns."""


class Pauses(Model):
    """Times in a row in which a worker had no CPU, or a turn of its took long."""

    count: int = 0
    """How many."""
    ns: int = 0
    """Their time, ns."""
    longest_ns: int = 0
    """The longest, ns."""
    lengths: list[PauseLength] = Field(default_factory=list)
    """By length, the shortest first; only those that occurred."""


class WorkerSample(Model):
    """One worker: the share of the time it ran, and the share it waited for its CPU."""

    worker: int = 0
    """Its number."""
    core: int | None = None
    """The core it is pinned to."""
    cpu: float = 0
    """Share of the time that it ran."""
    starved: float = 0
    """Share of the time that it waited for its CPU."""
    pauses: Pauses | None = None
    """DPDK: times of 0.1 ms and more in which it wanted a CPU and had none."""
    long_turns: Pauses | None = None
    """DPDK: turns that took 1 ms and more by its own work, or by a host that does not tell what it takes."""


class Sample(Model):
    """One point of the series; counts are of the interval that ends at `t`."""

    t: float
    """End of the interval, seconds since the start."""
    dt: float = 1.0
    """Its length, seconds."""
    phase: str = ""
    """Phase at its end."""
    elapsed: float = 0
    """Seconds since the start."""
    left: float = 0
    """Seconds to go at most."""
    groups: dict[str, GroupSample] = Field(default_factory=dict)
    """By name."""
    workers: list[WorkerSample] = Field(default_factory=list)
    """Workers of the generator."""
    interfaces: dict[str, dict[str, int]] = Field(default_factory=dict)
    """Counters by interface, of this interval."""


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
    """`ND-90-…`."""
    group: str | None = None
    """The group it is about; none: the whole run."""
    what: str = ""
    """In words."""
    value: float | None = None
    """What was found."""
    limit: float | None = None
    """What was allowed."""


class Validity(Model):
    """Whether the generator did what was asked."""

    valid: bool = True
    """Whether the measurement can be trusted."""
    reasons: list[Reason] = Field(default_factory=list)
    """Why not."""


class CauseCount(Model):
    """One cause of failures of a kind."""

    cause: str
    """A status of HTTP (`404`) or CoAP (`4.04`), a packet of MQTT with its reason code
    (`CONNACK 0x05 not authorized`), a fault of TLS (`certificate expired`, `alert handshake_failure`),
    another by its name."""
    count: int = 0
    """How often in the measure phase."""
    total: int | None = None
    """How often in the whole run."""
    example: str | None = None
    """What the first one looked like: the server's own words among it, up to 300 characters."""


class ErrorCount(Model):
    """One kind of failure, how often, and what it looked like."""

    kind: str
    """`refused`, `timeout`, `unanswered`, `protocol`, …."""
    count: int = 0
    """How often in the measure phase, draining included: what thresholds judge."""
    total: int | None = None
    """How often in the whole run; None in results of a former version, whose `count` is that."""
    example: str | None = None
    """What the first one looked like."""
    causes: list[CauseCount] = Field(default_factory=list)
    """By cause, the most frequent first, up to 16; failures of which nothing more is known are in none."""
    other: int = 0
    """In the measure phase: those for whose causes there was no room."""

    @classmethod
    def merged(cls, parts: Sequence[ErrorCount]) -> list[ErrorCount]:
        """Those of several trials by kind and cause, counts added; the first example of each stays."""
        found: dict[str, ErrorCount] = {}
        for part in parts:
            one = found.setdefault(part.kind, cls(kind=part.kind, total=0))
            one.count += part.count
            one.total = (one.total or 0) + (part.count if part.total is None else part.total)
            one.example = one.example or part.example
            one.other += part.other
            known = {cause.cause: cause for cause in one.causes}
            for cause in part.causes:
                if cause.cause not in known:
                    known[cause.cause] = CauseCount(cause=cause.cause, total=0)
                    one.causes.append(known[cause.cause])
                same = known[cause.cause]
                same.count += cause.count
                same.total = (same.total or 0) + (cause.total or 0)
                same.example = same.example or cause.example
        for one in found.values():
            one.causes.sort(key=lambda cause: (-cause.count, -(cause.total or 0)))
        return list(found.values())


class Density(Model):
    """Reorder density and reorder buffer-occupancy density (RFC 5236), as frequencies."""

    threshold: int = 0
    """DT and BT: what is later is taken for lost (§3.4, §3.9)."""
    displaced: dict[int, int] = Field(default_factory=dict)
    """FD (§3.5): how many came so many places late; early is negative."""
    displaced_beyond: int = 0
    """How many came farther from their place than the threshold, or after it was given up."""
    waiting: dict[int, int] = Field(default_factory=dict)
    """FB (§3.10): after how many arrivals so many waited for one expected."""
    waited_beyond: int = 0
    """How many came after the buffer that waited for them was given up."""


class Disorder(Model):
    """What came out of order (RFC 4737, RFC 5236)."""

    ratio: float = 0
    """Share of the delivered messages that came after a later one (§4.1)."""
    by_three: float = 0
    """Share of them that came after three later ones in a row: what TCP takes for lost (§5, 3-reordering)."""
    extent: Distribution = Field(default_factory=Distribution)
    """By how many arrivals they were late (§4.2, reordering extent); messages, not nanoseconds."""
    late: Distribution = Field(default_factory=Distribution)
    """By how much time (§4.3, late time offset)."""
    displaced: float = 0
    """Share of the delivered messages that did not come at their place (RFC 5236 §3.2)."""
    displacement: Distribution = Field(default_factory=Distribution)
    """How far from their places all came, early or late (§3.3); messages."""
    waiting: Distribution = Field(default_factory=Distribution)
    """How many waited for one expected when each had come (§3.8); messages."""
    density: Density = Field(default_factory=Density)
    """The densities themselves."""


class Losses(Model):
    """How what was lost lay in the streams (RFC 3357)."""

    delta: int = 0
    """The loss constraint: a loss is noticeable if it comes no more messages after the one before."""
    noticeable: float | None = None
    """Share of the losses that are noticeable (§6.1); None when nothing was lost."""
    length: Distribution = Field(default_factory=Distribution)
    """How many were lost in a row, by loss period (§6.3)."""
    distance: Distribution = Field(default_factory=Distribution)
    """Messages from each loss to the one before (§5.4.1); a stream's first has none."""
    between: Distribution = Field(default_factory=Distribution)
    """Messages from the first loss of a period to the last of the one before (§6.4)."""

    @property
    def lost(self) -> int:
        """How many losses these are."""
        return round(self.length.mean * self.length.count)


class Stalls(Model):
    """Waits for answers, or for connections, that were longer than the group's `stall`."""

    limit: int = 0
    """What a wait must be longer than, ns."""
    time: float = 0
    """Device time of the measure phase spent in such waits, seconds."""
    share: float = 0
    """The same as share of all device time."""
    longest: int = 0
    """The longest wait that reached into the measure phase, answered or not, ns; maybe within the limit."""
    waiting: float = 0
    """Share of the devices that were in such a wait when the measure phase ended."""


class AddressReach(Model):
    """One address of a group's target."""

    address: str
    """With its port."""
    used: bool = False
    """Whether load went to it."""
    opened: int = 0
    """Connections that came up, or sockets of datagrams opened to it; 0 where the transport opens none."""
    failed: int = 0
    """Times that it could not be reached."""
    error: str | None = None
    """Why, the last time."""


class GroupResult(Model):
    """What one group did in a trial."""

    name: str
    """Name in the profile."""
    protocol: str = ""
    """Its model."""
    target: str = ""
    """The URL it was pointed at."""
    addresses: list[AddressReach] = Field(default_factory=list)
    """The addresses that the name in the target stands for, in the order in which they are tried."""
    devices: int = 0
    """Virtual devices."""
    measured: Counts = Field(default_factory=Counts)
    """Of messages meant for the measure phase."""
    total: Counts = Field(default_factory=Counts)
    """Of all phases."""
    indices: dict[str, float | None] = Field(default_factory=dict)
    """Figures that follow from the measured counters, by the names that the [model](models.md) gives them;
    None where nothing was counted that one is a share of."""
    rates: dict[str, float] = Field(default_factory=dict)
    """Per second of the measure phase."""
    loss: float | None = None
    """Share of sent messages that were not delivered, without those that our own receive queue dropped; None
    when none was sent, or none is ever confirmed."""
    verified: str | None = None
    """How much of a reply was compared with what was sent: every byte of its `payload`, or the `signature`
    alone, of frames that are the user's own. None: replies are not what was sent, or there are none."""
    delays: dict[str, Distribution] = Field(default_factory=dict)
    """By name, of messages meant for the measure phase."""
    ipdv: dict[str, Distribution] = Field(default_factory=dict)
    """Magnitude of the change in delay from one message of a device to its next, by name (RFC 5481 §4.1)."""
    reordering: Disorder | None = None
    """What came out of order; None where messages have no order, or none was delivered."""
    losses: Losses | None = None
    """How what was lost lay; None likewise."""
    lateness: Distribution = Field(default_factory=Distribution)
    """How late the generator was: actual minus intended send time."""
    confirmed: bool | None = None
    """Whether every message asks for an answer, so that silence is loss; None in older results."""
    stalls: Stalls | None = None
    """Waits that were too long; None where nothing is waited for, or the transport does not know (DPDK)."""
    errors: list[ErrorCount] = Field(default_factory=list)
    """Failures by kind, with an example."""


class Trial(Model):
    """The result of one trial, as `run.result` gives it."""

    run: str
    """The core's name for it."""
    profile: dict[str, Any] = Field(default_factory=dict)
    """As it was run, with targets filled in."""
    transport: str = "sockets"
    """`sockets` or `dpdk`."""
    version: str = ""
    """Of the core."""
    started: str = ""
    """UTC."""
    phases: Phases = Field(default_factory=Phases)
    """What really took place, seconds."""
    stopped: str | None = None
    """Why it ended early: `stopped`, `lease` or `failed`."""
    error: dict[str, Any] | None = None
    """{code, at, what, fix} when it failed."""
    changes: list[dict[str, Any]] = Field(default_factory=list)
    """DPDK: paths changed by hand, `{t, port, impair, impair_timeline?}`: from `t` seconds on."""
    validity: Validity = Field(default_factory=Validity)
    """Whether the generator did what was asked."""
    groups: list[GroupResult] = Field(default_factory=list)
    """In the order of the profile."""
    workers: list[WorkerSample] = Field(default_factory=list)
    """Over the measure phase."""
    interfaces: dict[str, dict[str, int]] = Field(default_factory=dict)
    """Counters by interface, over the run."""
    ports: list[dict[str, Any]] = Field(default_factory=list)
    """DPDK: what each port is, and who does which work, as `graph.describe` of the [RPC](rpc.md) has it."""
    elements: list[dict[str, Any]] = Field(default_factory=list)
    """DPDK: packets in and out, cycles, drops by reason."""
    series: list[Sample] = Field(default_factory=list)
    """A point for each interval."""
