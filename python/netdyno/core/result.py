"""`result.json`: everything one experiment found, in one document (`netdyno-result/1`).

The report, the store, `--json` and every later reader build on this shape. Delays are nanoseconds.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from netdyno.core.model import Model
from netdyno.core.search import SearchReport
from netdyno.core.wire import (
    Counts,
    Distribution,
    FailureCount,
    LoadUnit,
    LossPattern,
    Pauses,
    Reason,
    Reordering,
    SlowdownResult,
    StallResult,
    TargetAddress,
    TrialResult,
)

FORMAT = "netdyno-result/1"


class CpuPoint(Model):
    """CPU of a DUT over the interval that ends at `t` seconds after the start of the load.

    1.0 is one core; a DUT with several processes can use more.
    """

    t: float
    """End of the interval, seconds."""
    cpu: float
    """Cores in use."""


class DutWorker(Model):
    """A worker of a DUT that a daemon of ours runs, over the measure phase."""

    worker: int
    """Its number."""
    core: int | None = None
    """The core it is pinned to."""
    pauses: Pauses = Field(default_factory=Pauses)
    """Times of 0.1 ms and more in which it wanted a CPU and had none."""
    long_turns: Pauses = Field(default_factory=Pauses)
    """Turns that took 1 ms and more by its own work, or by a host that does not tell what it takes."""


class DutReport(Model):
    """What was seen of a DUT from outside the load."""

    driver: str = ""
    """Its driver."""
    version: str = ""
    """Of its program."""
    host: str = ""
    """Where it stood in the topology."""
    cpu_series: list[CpuPoint] = Field(default_factory=list)
    """Its CPU over time."""
    counters_before: dict[str, float] = Field(default_factory=dict)
    """What it had counted before the load."""
    counters_after: dict[str, float] = Field(default_factory=dict)
    """And after it."""
    workers: list[DutWorker] = Field(default_factory=list)
    """Pauses of its workers; none where it is no program of ours, of which they are not known."""
    died: str | None = None
    """Why it ended by itself, with its last words."""


class Witness(Model):
    """One thing counted by us and by somebody else."""

    what: str
    """What was counted, and by whom: `broker: PUBLISH received ($SYS)`."""
    ours: float
    """Our count."""
    theirs: float
    """Theirs."""
    agree: bool
    """Whether they are equal."""


class CaptureReport(Model):
    """How the capture of a trial went."""

    path: str = ""
    """The file."""
    interface: str = ""
    """Where it listened."""
    packets: int = 0
    """Packets written."""
    bytes: int = 0
    """Bytes of the file."""
    dropped: int = 0
    """Packets that passed and could not be taken."""
    state: str = "stopped"
    """`stopped` at the end of the run, `full` at its limit, or `failed`."""
    error: str | None = None
    """Why it failed."""
    secrets: list[str] = Field(default_factory=list)
    """Places in the profile of secrets that it holds as they went over the network."""


class LinkReport(Model):
    """What an impaired link of the topology did, in packets as they are on the wire."""

    a: str
    """One end: the host and its interface."""
    b: str
    """The other."""
    a_to_b: dict[str, int] = Field(default_factory=dict)
    """Counters from a to b, as `impair.stats` of the [RPC](rpc.md) has them."""
    b_to_a: dict[str, int] = Field(default_factory=dict)
    """Counters from b to a."""
    seed: int | None = None
    """That its losses and delays were drawn with: of the trial, unless the link names one."""


class HostReport(Model):
    """A host of a fleet, which generated a part of the load."""

    name: str
    """Its name in hosts.yaml."""
    launcher: str = "local"
    """How its agent was started or is reached: `local`, `ssh`, `address` or `ray`."""
    version: str = ""
    """Version of its agent."""
    cores: list[int] = Field(default_factory=list)
    """Cores that generated load."""
    devices: dict[str, int] = Field(default_factory=dict)
    """Its devices by group; none: it had no part of the load."""
    clock_offset: float = 0
    """How far its clock was ahead of the controller's, seconds; the common start allows for it."""
    clock_error: float = 0
    """The true offset is at most this far away, seconds."""
    start_delay: float | None = None
    """How late its part began after the common start, seconds, in whole milliseconds; null: not known."""
    measured: dict[str, Counts] = Field(default_factory=dict)
    """What it counted, by group."""
    valid: bool | None = None
    """Whether its part can be trusted; null: there is no result of it."""
    capture: str | None = None
    """File of the run's folder with its packets; null: there is none."""
    lost: str | None = None
    """When and why it was lost; its part is then in no figure."""


class MetricValue(Model):
    """One figure of a trial, from whatever measured it."""

    value: float
    """In `unit`."""
    unit: str = ""
    """`s`, `bit/s`, `1/s`, `ratio`, `count` …"""
    better: Literal["higher", "lower", "neither"] = "neither"
    """Which way is better."""


class Repetition(TrialResult):
    """A trial, and what was seen around it."""

    index: int = 0
    """Place of this trial in the order they were run."""
    dut: dict[str, DutReport] = Field(default_factory=dict)
    """Devices under test by name."""
    witnesses: list[Witness] = Field(default_factory=list)
    """Counts held against those of others."""
    capture: CaptureReport | None = None
    """How its capture went; none: nothing was captured."""
    links: list[LinkReport] = Field(default_factory=list)
    """Impaired links of the topology."""
    hosts: list[HostReport] = Field(default_factory=list)
    """Hosts of the fleet that generated the load; none: one daemon did."""
    metrics: dict[str, MetricValue] = Field(default_factory=dict)
    """What a workload or a simulation measured by itself; what the core measured is in `groups`."""
    counters: dict[str, float] = Field(default_factory=dict)
    """Of studies: by how much counters of the kernel moved."""
    steal: float | None = None
    """Share of the processors' time that the hypervisor gave to others during the trial; None: not known."""
    digest: str = ""
    """Of what was run: trials with the same digest had the same load on the same hosts."""
    taken_over: bool = False
    """Whether it was measured in the run that this one resumed."""


class Estimate(Model):
    """A mean over repetitions, with its interval when there are at least two."""

    n: int
    """Repetitions."""
    mean: float
    """Mean."""
    sd: float | None = None
    """Standard deviation."""
    interval: tuple[float, float] | None = None
    """Of the mean; none with fewer than two."""


class GroupSummary(Model):
    """A group over all repetitions of a leg: histograms merged, counts added, rates averaged."""

    name: str
    """Name in the profile."""
    protocol: str = ""
    """Its model."""
    target: str = ""
    """The URL it was pointed at."""
    addresses: list[TargetAddress] = Field(default_factory=list)
    """The addresses that the name in it stands for: added up."""
    devices: int = 0
    """Virtual devices."""
    measured: Counts = Field(default_factory=Counts)
    """Added up."""
    errors: list[FailureCount] = Field(default_factory=list)
    """Failures by kind and cause, added up, with an example of each; none in results of a former version."""
    indices: dict[str, float | None] = Field(default_factory=dict)
    """Of the counters added up, by the names that the [model](models.md) gives them."""
    rates: dict[str, Estimate] = Field(default_factory=dict)
    """Averaged, per second."""
    unit: LoadUnit | None = None
    """What its load is counted in; none in older results: messages."""
    loss: Estimate | None = None
    """Averaged."""
    delays: dict[str, Distribution] = Field(default_factory=dict)
    """Merged."""
    values: dict[str, Distribution] = Field(default_factory=dict)
    """What the model measures that is no time, in thousandths, merged."""
    ipdv: dict[str, Distribution] = Field(default_factory=dict)
    """Merged."""
    reordering: Reordering | None = None
    """Merged; shares are of all delivered messages."""
    losses: LossPattern | None = None
    """Merged."""
    lateness: Distribution = Field(default_factory=Distribution)
    """Merged."""
    stalls: StallResult | None = None
    """Time added, shares averaged, the longest of all."""
    slowdown: SlowdownResult | None = None
    """Of the repetition in which it was most."""


class Summary(Model):
    """A leg over all its repetitions."""

    n: int = 0
    """Repetitions."""
    confidence: float = 0.95
    """Of the intervals."""
    groups: list[GroupSummary] = Field(default_factory=list)
    """In the order of the profile."""
    metrics: dict[str, Estimate] = Field(default_factory=dict)
    """Of studies: each metric over the trials that count."""


class Leg(Model):
    """One profile in one topology, repeated."""

    name: str
    """With its levels."""
    transport: str = "sockets"
    """`sockets` or `dpdk`; of studies the bench."""
    levels: dict[str, Any] = Field(default_factory=dict)
    """Levels of the experiment's factors that this leg stands for; of studies the parameters set."""
    repetitions: list[Repetition] = Field(default_factory=list)
    """In the order in which they ran."""
    summary: Summary = Field(default_factory=Summary)
    """Over all of them."""


class ThresholdResult(Model):
    """One condition, judged over the repetitions of its leg."""

    leg: str = ""
    """Where it was judged."""
    metric: str
    """What was judged."""
    bound: float
    """In the metric's unit."""
    kind: Literal["max", "min"]
    """Which side is good."""
    strict: bool = False
    """Whether the bound itself fails too."""
    value: float | None
    """Over all repetitions: of times the geometric mean of each one's figure, of `min` and `max` the extreme
    of all, else the mean. None: nothing was measured."""
    interval: tuple[float, float] | None = None
    """Of that value at `confidence`; None with fewer than two repetitions, and for `min` and `max`."""
    confidence: float = 0.95
    """Of the interval."""
    passed: bool
    """Whether it holds. Without a value it neither holds nor fails: it is not judged."""
    n: int = 0
    """Repetitions."""

    @property
    def failed(self) -> bool:
        """Whether what was measured does not hold."""
        return not self.passed and self.value is not None

    @property
    def unshown(self) -> bool:
        """Whether it fails although its value is within the bound: the trials do not show that it holds."""
        if self.value is None or self.passed:
            return False
        if self.value == self.bound:
            return not self.strict
        return (self.value < self.bound) == (self.kind == "max")

    @property
    def outcome(self) -> Literal["pass", "FAIL", "not shown", "not judged"]:
        """Whether it holds, in a word."""
        if self.value is None:
            return "not judged"
        if self.passed:
            return "pass"
        return "not shown" if self.unshown else "FAIL"

    @property
    def side(self) -> str:
        """The bound's side in a word: `max 50 ms`, `below 50 ms`."""
        if self.strict:
            return "below" if self.kind == "max" else "above"
        return self.kind


class CheckResult(Model):
    """A condition that every group is held to without being asked; it can fail a run, never pass one."""

    leg: str = ""
    """Where it was judged."""
    group: str
    """The group."""
    check: Literal["delivery", "stalls", "load"]
    """`delivery`: something was delivered; `stalls`: devices did not wait for answers that do not come;
    `load`: the server did not keep devices from offering the load."""
    value: float | None
    """Of the worst repetition. Delivery: messages delivered and flows completed in the measure phase; stalls:
    share of the time spent in stalls; load: share of the intended load that was offered."""
    limit: float
    """Delivery and load: at least; stalls: at most."""
    passed: bool
    """Whether it holds."""
    what: str = ""
    """What was seen, in words."""


class FigureWarning(Model):
    """A figure that is not to be taken as it stands."""

    leg: str = ""
    """Where it stands."""
    group: str = ""
    """The group."""
    metric: str
    """Which figure, as thresholds name it."""
    value: float
    """The figure; nanoseconds."""
    limit: float
    """The generator's lateness at the same percentile, above a fifth of the figure; nanoseconds."""
    what: str
    """In words."""


class Files(Model):
    """Names of what lies beside `result.json`."""

    capture: str | None = None
    """Packets, pcapng."""
    flows: str | None = None
    """A row for each device."""
    series: str | None = None
    """A row for each group and interval."""
    profile: str | None = None
    """As it was given."""
    study: str | None = None
    """Of a study: its document, with every trial and counter."""
    log: str | None = None
    """Of the core, a JSON object a line."""
    report: str | None = None
    """To open in a browser."""


class Remark(Model):
    """What a system says of a group beside thresholds and checks."""

    leg: str
    """Of this leg."""
    group: str
    """And this group."""
    name: str
    """What it is about."""
    verdict: Literal["pass", "fail", "none"] | None = None
    """What it comes to, where it judges; the verdict of the whole stands apart."""
    value: float | None = None
    """The figure, where it is one."""
    message: str = ""
    """In words, with names in braces for `args`; empty where another remark says it."""
    args: dict[str, str] = Field(default_factory=dict)
    """What stands in place of these names."""

    @property
    def text(self) -> str:
        """In words."""
        return self.message.format(**self.args)


class Result(Model):
    """The whole result of an experiment."""

    format: str = FORMAT
    """Which format this is."""
    id: str
    """Name of the run and of its folder."""
    kind: str = "run"
    """`run`; a study of settings: `compare`, `screen`, `search`, `reproduce`, `learn`."""
    finding: str = ""
    """Of a study: what came of it, in a sentence."""
    name: str
    """Of the experiment."""
    started: str
    """UTC."""
    finished: str = ""
    """UTC."""
    valid: bool = False
    """Whether every trial can be trusted."""
    verdict: Literal["pass", "fail", "none"] = "none"
    """`pass`: there are thresholds, and they and all checks hold; `fail`: one does not; `none`, no verdict:
    nothing was judged, or the environment or the user ended the experiment early."""
    interrupted: bool = False
    """Whether the user ended it early."""
    aborted: str = ""
    """The metric whose threshold had failed for good when `--abort-on-fail` ended the experiment."""
    error: dict[str, Any] | None = None
    """What ended the experiment early: {code, at, what, fix}."""
    reasons: list[Reason] = Field(default_factory=list)
    """Why it is not valid."""
    thresholds: list[ThresholdResult] = Field(default_factory=list)
    """Each one, judged."""
    checks: list[CheckResult] = Field(default_factory=list)
    """What is judged without being asked for."""
    warnings: list[FigureWarning] = Field(default_factory=list)
    """Figures that are not to be taken as they stand."""
    remarks: list[Remark] = Field(default_factory=list)
    """What systems say of groups besides."""
    legs: list[Leg] = Field(default_factory=list)
    """What was run."""
    search: SearchReport | None = None
    """What a search looked for and found: then a leg is a load. None: all that was run was known before."""
    resumed: str = ""
    """Run whose valid trials were taken over; their captures and flows lie in its folder."""
    environment: dict[str, Any] = Field(default_factory=dict)
    """The machine, its kernel and versions."""
    files: Files = Field(default_factory=Files)
    """What lies beside this file."""
    command: list[str] = Field(default_factory=list)
    """How it was called."""

    @property
    def unmeasured(self) -> list[ThresholdResult]:
        """Limits for which nothing was measured, where that is why there is no verdict."""
        undecided = self.verdict == "none" and self.valid and not self.interrupted and not self.error
        return [one for one in self.thresholds if one.value is None] if undecided else []

    @property
    def no_verdict(self) -> str:
        """Why there is no verdict; empty where there is one."""
        if self.verdict != "none" or self.kind != "run":
            return ""
        if self.interrupted:
            return "no verdict: the run was interrupted"
        if self.error:
            return f"no verdict: the run ended early ({self.error.get('code')})"
        if not self.valid and self.thresholds:
            return "no verdict: the measurement is not valid"
        if names := [one.metric for one in self.unmeasured]:
            return f"no verdict: nothing was measured for {', '.join(names)} (ND-90-10)"
        if self.search:
            return "no verdict: a search finds a figure and judges none"
        return "no verdict: there are no thresholds to judge by"
