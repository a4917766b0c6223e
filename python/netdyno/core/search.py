"""The section `search` of a result: what a search looked for, tried and found."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from netdyno.core.model import Model


class SearchTrial(Model):
    """One trial of a search."""

    number: int
    """Its place among all trials of the run."""
    leg: str
    """The leg that has all that was measured."""
    load: float
    """Intended load, in the unit of the search."""
    seconds: float
    """Length of its measure phase."""
    sent: int
    """What was offered in it."""
    lost: int
    """What of it did not arrive."""
    loss: float
    """As a share."""
    met: list[str] = Field(default_factory=list)
    """Goals that it met."""
    broken: list[str] = Field(default_factory=list)
    """Thresholds of the profile, and criteria of RFC 9411 in words, that did not hold."""
    counts: bool = True
    """Whether it is evidence."""
    why: str = ""
    """Why it is not: what disturbed it, or which end of ours did not carry the load."""


class SearchFinding(Model):
    """What was found of one goal."""

    goal: str
    """Its name."""
    words: str = ""
    """What it asks for."""
    loss_ratio: float | None = None
    """The loss that it allows; None where it is of another kind."""
    load: float | None
    """The highest load that met the goal in every trial, with none failing below; None: there is none."""
    bits: float | None = None
    """The same in bits per second of frames with FCS; of applications, of payload that was received."""
    line: float | None = None
    """The same as a share of what the link carries, where its speed is known."""
    interval: tuple[float, float] | None = None
    """Of the load at which half of the trials meet the goal, at the search's confidence; None where nothing
    failed, or nothing passed."""
    bounds: tuple[float | None, float | None] | None = None
    """MLRsearch: relevant lower and upper bound (RFC 9971)."""
    conditional: float | None = None
    """MLRsearch: conditional throughput (RFC 9971)."""
    limit: Literal["dut", "offered", "generator", "connections", "lowest", "lost"]
    """What bounds it: the DUT; the highest load that was to be offered; our own tester; too few connections
    for the DUT's answer times; even the lowest load failed; or the DUT was lost before it was known."""
    stop: str
    """Why the search ended: `resolution`, `trials`, `disturbed`, `interrupted`; `lost`: the DUT stopped
    answering; `never`: it never did."""
    trials: int
    """That count."""
    disturbed: int = 0
    """Measured again, as something disturbed them."""
    short: int = 0
    """In which our generator did not offer the load, or our receiver did not take all that reached it."""
    failed_near: tuple[int, int] = (0, 0)
    """Trials at the interval that failed the goal, and all there."""
    notes: list[str] = Field(default_factory=list)
    """What could not be told apart, in words."""


class SearchLoadShare(Model):
    """What was measured at a share of the load that was found."""

    share: float
    """Of the load that was found."""
    load: float
    """That share of it."""
    trials: int
    """That count."""
    loss: float
    """What of all that was sent there did not arrive, as a share."""
    delays: dict[str, dict[str, float]] = Field(default_factory=dict)
    """By group and delay: `min`, `mean`, `p50`, `p99`, `p999`, `max` and `pdv` in nanoseconds, each the mean
    over the trials."""
    late: dict[str, dict[str, float]] = Field(default_factory=dict)
    """By group and delay the percentiles of which more than a fifth is the generator's own lateness: how
    much, as a share, in the trial with the most."""


class SearchPart(Model):
    """A search at one frame size, or of a profile as it is."""

    name: str
    """The frame size, or the leg."""
    leg: str = ""
    """The leg of the experiment that it is of; empty where only one is searched."""
    size: str = ""
    """The frame size as it was asked for; empty where none was."""
    frame: float | None = None
    """Mean bytes of its frames, with FCS."""
    object: float | None = None
    """Mean bytes of the objects that are asked for, where these are named."""
    per_connection: int | None = None
    """Transactions of each connection, of an application; 0: connections are kept."""
    most: float
    """The highest load that was to be tried."""
    line: float | None = None
    """The highest load that the link carries, where its speed is known."""
    findings: list[SearchFinding] = Field(default_factory=list)
    """By goal."""
    figures: dict[str, float] = Field(default_factory=dict)
    """What else was found, by name: delays in nanoseconds, `…_time` in seconds, `…_rate` per second, `…_bits`
    in bits per second, `…_share` and `rate_deviation` as shares, `concurrent_…` connections."""
    held: list[SearchLoadShare] = Field(default_factory=list)
    """What was measured at shares of the load that was found, where such were asked for."""
    trials: list[SearchTrial] = Field(default_factory=list)
    """In the order in which they ran."""
    checks: list[SearchTrial] = Field(default_factory=list)
    """Trials at a light load, made where nobody answered any more: they tell whether the DUT was lost."""


UNITS = {"back-to-back": "frames", "tear-down": "sessions/s"}
"""Of findings whose load is in another unit than what was tried, by goal."""


FIGURES = {"_rate": "/s", "_bits": "bit/s", "_share": "ratio", "_deviation": "ratio"}
"""Units of figures by how their names end."""


def figure_unit(name: str) -> str:
    """The unit of a figure of a part: `ns` of delays."""
    if name.startswith("concurrent_"):
        return "count"
    if name.endswith(("_time", "_time.max")):
        return "s"
    return next((unit for end, unit in FIGURES.items() if name.endswith(end)), "ns")


class SearchReport(Model):
    """A search and what it found."""

    kind: str
    """throughput, loss, back-to-back, latency, recovery, reset, rate, connections, concurrent, transactions,
    object-throughput, transaction-latency, capacity or teardown."""
    strategy: str
    """How loads were chosen: `binary`, `mlr`, `exponential`, `steps` of a curve, or `none` where the load was
    given."""
    unit: str
    """Of loads: `frames/s`, `frames` (of a burst), `flows/s`, `devices`, `sessions`,
    `connections/s`, `connections`, `transactions/s`, `x` (times the profile's load)."""
    resolution: float
    """How far apart bounds were to be, as a share."""
    confidence: float
    """Of the intervals."""
    seconds: float
    """Length of a trial's measure phase."""
    planned: int
    """Trials that were expected."""
    valid: bool
    """Whether every part ended with trials that count."""
    parts: list[SearchPart] = Field(default_factory=list)
    """By frame size."""
    notes: list[str] = Field(default_factory=list)
    """What differs from the standards, and why."""

    def unit_of(self, finding: SearchFinding) -> str:
        """The unit of a finding's load."""
        return UNITS.get(finding.goal, self.unit)
