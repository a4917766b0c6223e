"""What the API returns: a run, its groups and delays, comparisons and searches."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from netdyno.api.tables import pandas_module, table
from netdyno.core.result import GroupSummary, Leg, Result, ThresholdResult
from netdyno.core.search import SearchFinding, SearchReport
from netdyno.core.totals import COUNTERS
from netdyno.core.wire import Distribution, Reason
from netdyno.errors import Error
from netdyno.experiment.spec import Experiment
from netdyno.report.series import by_samples
from netdyno.stats import percentile
from netdyno.stats.runs import RunDifferences

if TYPE_CHECKING:
    import pandas

    from netdyno.stats.searches import FoundChange
    from netdyno.stats.unpaired import Difference


@dataclass(frozen=True)
class Valid:
    """What can be run as it is."""

    experiment: Experiment | None
    """A profile is an experiment of one leg. None: it is a graph, a NAT or tables of tuning."""
    profiles: Mapping[str, dict[str, Any]]
    """The effective profile of each variant: presets and files read, targets bound, lengths changed."""
    advice: Sequence[Error]
    """What is allowed and seldom meant."""

    @property
    def profile(self) -> dict[str, Any]:
        """Of the first variant."""
        return next(iter(self.profiles.values()))


@dataclass(frozen=True)
class Run:
    """What a run found."""

    result: Result
    """Everything, as in `result.json`: delays there are nanoseconds."""
    folder: Path
    """Where it lies, with its report and capture."""

    @property
    def id(self) -> str:
        """Its name in the store."""
        return self.result.id

    @property
    def verdict(self) -> str:
        """`pass`, `fail`, or `none` where there was nothing to judge by."""
        return self.result.verdict

    @property
    def valid(self) -> bool:
        """Whether the measurement can be trusted."""
        return self.result.valid

    @property
    def reasons(self) -> list[Reason]:
        """Why it cannot."""
        return self.result.reasons

    @property
    def thresholds(self) -> list[ThresholdResult]:
        """Each condition, judged."""
        return self.result.thresholds

    @property
    def error(self) -> Error | None:
        """What ended it early."""
        return Error.of(self.result.error) if self.result.error else None

    @property
    def legs(self) -> list[str]:
        """Names of its legs: one for a profile, more for an experiment."""
        return [leg.name for leg in self.result.legs]

    def group(self, name: str | None = None, leg: str | None = None) -> Group:
        """A group over all repetitions of a leg; the first of either, where none is named."""
        found = self._leg(leg)
        groups = found.summary.groups
        one = next((g for g in groups if name in (None, g.name)), None)
        if one is None:
            there = ", ".join(g.name for g in groups) or "none"
            raise Error("ND-104-27", f"the run has no group {name!r}", at=self.id, fix=f"It has: {there}")
        return Group(one)

    @property
    def series(self) -> Series:
        """What was counted in each interval."""
        return Series(self.result)

    @property
    def report(self) -> Path:
        """Its page, to open in a browser."""
        return self.folder / (self.result.files.report or "report.html")

    def _leg(self, name: str | None) -> Leg:
        found = next((leg for leg in self.result.legs if name in (None, leg.name)), None)
        if found is None:
            there = ", ".join(self.legs) or "none"
            raise Error("ND-104-27", f"the run has no leg {name!r}", at=self.id, fix=f"It has: {there}")
        return found

    def __repr__(self) -> str:
        valid = "valid" if self.valid else "INVALID"
        return f"<netdyno run {self.id}: verdict {self.verdict}, {valid}>"

    def _repr_html_(self) -> str:
        rows = [(leg.name, Group(group)) for leg in self.result.legs for group in leg.summary.groups]
        heads = ("leg", "group", "delivered/s", "loss", "p50", "p99")
        cells = [
            (leg, g.name, _number(g.rate("messages_delivered")), _share(g.loss), *_quantiles(g))
            for leg, g in rows
        ]
        return table(repr(self).strip("<>"), heads, cells)


@dataclass(frozen=True)
class Delay:
    """A delay over all repetitions; every figure in seconds."""

    count: int
    min: float
    mean: float
    sd: float
    p50: float
    p90: float
    p95: float
    p99: float
    p999: float
    max: float
    distribution: Distribution = field(repr=False, compare=False, default_factory=Distribution)
    """All of it, in nanoseconds."""

    @classmethod
    def of(cls, found: Distribution) -> Delay:
        """From nanoseconds."""
        names = ("min", "mean", "sd", *percentile.SHOWN, "max")
        figures = {name: (percentile.of(found, name) or 0.0) / 1e9 for name in names}
        return cls(count=found.count, distribution=found, **figures)

    def percentile(self, percent: float) -> float:
        """Any percentile, as `delay.percentile(99.99)`; from the histogram of the result."""
        if not 0 < percent < 100:
            what = f"{percent!r} is not a percentile"
            raise Error("ND-104-05", what, fix="Use a number above 0 and below 100, such as 99.9")
        value = percentile.of(self.distribution, percentile.name(percent))
        if value is None:
            fix = "Use p50, p90, p95, p99 or p999"
            raise Error("ND-104-27", "the result kept no histogram of this delay", fix=fix)
        return value / 1e9


@dataclass(frozen=True)
class Group:
    """A group of devices over all repetitions."""

    summary: GroupSummary
    """Everything, as in `result.json`."""

    @property
    def name(self) -> str:
        """As in the profile."""
        return self.summary.name

    @property
    def devices(self) -> int:
        """Virtual devices."""
        return self.summary.devices

    @property
    def loss(self) -> float | None:
        """Share of the messages that were not delivered; None where nobody confirms them."""
        return self.summary.loss.mean if self.summary.loss else None

    @property
    def errors(self) -> dict[str, int]:
        """Failures by kind."""
        return dict(self.summary.measured.failures)

    @property
    def delays(self) -> dict[str, Delay]:
        """By name: `connect`, `publish`, `response` …"""
        return {name: Delay.of(found) for name, found in self.summary.delays.items()}

    def delay(self, name: str | None = None) -> Delay:
        """One of them; the one with most samples, where none is named."""
        delays = self.delays
        if name is None and delays:
            name = by_samples({key: one.count for key, one in delays.items()})[0]
        if name is None or name not in delays:
            there = ", ".join(delays) or "none"
            raise Error("ND-104-27", f"{self.name} has no delay {name!r}", fix=f"It has: {there}")
        return delays[name]

    def rate(self, counter: str = "messages_delivered") -> float:
        """A counter per second, the mean over the repetitions."""
        if counter not in self.summary.rates:
            there = ", ".join(self.summary.rates) or "none"
            raise Error("ND-104-27", f"{self.name} has no rate of {counter!r}", fix=f"It has: {there}")
        return self.summary.rates[counter].mean

    def count(self, counter: str) -> float:
        """A counter over the measure phases of all repetitions."""
        measured = self.summary.measured
        if counter in COUNTERS:
            return float(getattr(measured, counter))
        if counter in measured.own:
            return float(measured.own[counter])
        there = ", ".join((*COUNTERS, *measured.own))
        fix = f"It counts: {there}; failures by kind are in .errors"
        raise Error("ND-104-27", f"{self.name} counts no {counter!r}", fix=fix)

    @property
    def lateness(self) -> Delay:
        """How late the generator itself was."""
        return Delay.of(self.summary.lateness)


@dataclass(frozen=True)
class Series:
    """A row for each group in each interval."""

    result: Result

    def csv(self) -> str:
        """As `series.csv`: delays are nanoseconds there."""
        from netdyno.report.series_csv import series_csv

        return series_csv(self.result)

    def to_pandas(self) -> pandas.DataFrame:
        """As a data frame. Delays and lateness are seconds; `offered` and `delivered` are per second."""
        pd = pandas_module(", or take .csv()")
        frame = pd.read_csv(io.StringIO(self.csv()))
        of_time = [name for name in frame.columns if name.startswith(("delay.", "lateness."))]
        times = [name for name in of_time if not name.endswith(".count")]
        frame[times] = frame[times] / 1e9
        frame["offered"] = frame["messages_sent"] / frame["dt"]
        frame["delivered"] = frame["messages_delivered"] / frame["dt"]
        return frame  # type: ignore[no-any-return]


@dataclass(frozen=True)
class RunComparison:
    """What is known of two kept runs."""

    found: RunDifferences

    @property
    def valid(self) -> bool:
        """Whether the measurements of both can be trusted."""
        return not self.found.invalid

    @property
    def environment(self) -> Sequence[str]:
        """In what the machines differ."""
        return self.found.environment

    @property
    def searches(self) -> Sequence[FoundChange]:
        """Of two searches: the loads that were found, goal by goal."""
        return self.found.searches

    def differences(self, leg: str | None = None) -> Sequence[Difference]:
        """By metric: both means, change, interval, corrected p; of the first leg, where none is named."""
        for name, rows in self.found.legs.items():
            if leg in (None, name):
                return rows
        there = ", ".join(self.found.legs) or "none: two searches are compared by .searches"
        raise Error("ND-104-27", f"no leg {leg!r} was compared", fix=f"There are: {there}")

    def to_pandas(self) -> pandas.DataFrame:
        """A row for each metric of each leg, or for each goal of two searches."""
        pd = pandas_module()
        document = self.found.document()
        rows = [{"leg": leg, **row} for leg, rows in document["legs"].items() for row in rows]
        return pd.DataFrame(rows or document["searches"])  # type: ignore[no-any-return]

    def __repr__(self) -> str:
        many = len(self.searches) or sum(map(len, self.found.legs.values()))
        valid = "valid" if self.valid else "INVALID"
        return f"<netdyno comparison of {self.found.a.id} and {self.found.b.id}: {many} differences, {valid}>"


@dataclass(frozen=True)
class Search(Run):
    """What a search found."""

    @property
    def search(self) -> SearchReport:
        """What it looked for, tried and found, by frame size."""
        assert self.result.search is not None, "it was a search"
        return self.result.search

    def finding(self, part: str | None = None, goal: str | None = None) -> SearchFinding:
        """Of one frame size and goal; of the first, where none is named."""
        of = next((one for one in self.search.parts if part in (None, one.name)), None)
        one = next((f for f in of.findings if goal in (None, f.goal)), None) if of else None
        if one is None:
            there = (
                ", ".join(f"{p.name} {f.goal}" for p in self.search.parts for f in p.findings) or "nothing"
            )
            raise Error("ND-104-27", f"nothing was found of {part} {goal}", at=self.id, fix=f"Found: {there}")
        return one

    def to_pandas(self) -> pandas.DataFrame:
        """A row for each trial: frame size, load, sent, lost, loss, whether it counts."""
        pd = pandas_module()
        rows = [
            {"part": part.name, **trial.model_dump()} for part in self.search.parts for trial in part.trials
        ]
        return pd.DataFrame(rows)  # type: ignore[no-any-return]

    def __repr__(self) -> str:
        found = "; ".join(
            f"{part.name} {one.goal} {one.load:.6g} {self.search.unit}"
            if one.load is not None
            else f"{part.name} {one.goal} none"
            for part in self.search.parts
            for one in part.findings
        )
        return f"<netdyno search {self.id}: {found}>"


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _share(value: float | None) -> str:
    return "–" if value is None else f"{value:.3%}"


def _quantiles(group: Group) -> tuple[str, str]:
    if not group.delays:
        return "–", "–"
    delay = group.delay()
    return f"{delay.p50 * 1e3:.3g} ms", f"{delay.p99 * 1e3:.3g} ms"
