"""netdyno from a script or a notebook: what the verbs do, as functions that return what was found.

    import netdyno

    run = netdyno.run("mqtt://broker:1883", devices=100, duration="10s",
                      thresholds=["delay.publish.p99 <= 50ms"])
    run.verdict, run.valid, run.group("mqtt").delay("publish").p99
    run.series.to_pandas()

Times are seconds, rates are per second, shares are between 0 and 1. What goes wrong raises `netdyno.Error`,
which has a stable code, the place and what to do. Every run is kept as those of the command line are:
`netdyno runs list` shows it.
"""

from __future__ import annotations

import contextlib
import io
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape as quoted
from pathlib import Path
from typing import TYPE_CHECKING, Any

from netdyno import paths, units
from netdyno.core.address import Address
from netdyno.core.model import Distribution, Reason
from netdyno.core.result import GroupSummary, Leg, Result, ThresholdResult
from netdyno.core.search import SearchFinding, SearchReport
from netdyno.errors import Error
from netdyno.experiment import choose, quick, validation
from netdyno.experiment.runner import Campaign
from netdyno.experiment.schedule import Schedule
from netdyno.experiment.spec import Experiment
from netdyno.experiment.view import Plan, Silent
from netdyno.report.series import by_samples
from netdyno.store import Store
from netdyno.store.store import read_result
from netdyno.system import journal
from netdyno.system.interrupt import Interrupts

if TYPE_CHECKING:
    import pandas

    from netdyno.search.rfc2544 import Asked
    from netdyno.stats.comparison import Finding
    from netdyno.tuning.comparing import Compared

__all__ = [
    "Comparison", "Delay", "Error", "Group", "Run", "Search", "Series", "compare", "load", "run", "search",
]  # fmt: skip

Sampled = Callable[[Mapping[str, Any]], None]
"""Told each point of the series while a run goes on, as `stats.sample` of the RPC has it."""


def run(
    what: str | Path | Mapping[str, Any] | Sequence[str],
    *,
    devices: int | None = None,
    rate: str | float | None = None,
    interval: str | float | None = None,
    count: int | None = None,
    size: str | int | None = None,
    qos: int | None = None,
    insecure: bool = False,
    duration: str | float | None = None,
    warmup: str | float | None = None,
    load: float | None = None,
    repeat: int | None = None,
    targets: Mapping[str, str] | None = None,
    thresholds: Sequence[str] = (),
    capture: bool = False,
    socket: str | Path | None = None,
    runs: str | Path | None = None,
    store: bool = True,
    on_sample: Sampled | None = None,
) -> Run:
    """Run a load and judge what came of it, as `netdyno run` does.

    `what` is a URL or several, a profile or an experiment (its file, or the document itself), or the name of
    a preset. `devices` to `insecure` are for URLs; `thresholds` are like `"delay.response.p99 <= 50ms"`, of
    each group where none is named.
    """
    options = quick.Quick(
        devices=devices,
        rate=_said(units.RATE, rate, "rate"),
        interval=_said(units.TIME, interval, "interval"),
        count=count,
        qos=qos,
        size=_said(units.SIZE, size, "size"),
        insecure=insecure,
    )
    chosen = _chosen(what, options)
    trial = {
        "load": load,
        "measure": _said(units.TIME, duration, "duration"),
        "warmup": _said(units.TIME, warmup, "warmup"),
    }
    wanted = choose.adjust(chosen, trial, targets or {}, repeat, {} if capture else None, thresholds)
    address = Address.of(socket) if socket else None
    validation.refuse(wanted, chosen.folder, address)
    return Run(*_campaign(wanted, chosen.folder, runs, store, address, on_sample))


def load(name: str | Path = "latest") -> Run:
    """A run that was kept: by its id or a part of it, `latest`, its folder, or its `result.json`."""
    path = Path(name)
    if path.is_dir():
        path = path / "result.json"
    if path.is_file():
        return Run(read_result(path), path.parent)
    with Store() as store:
        identity = store.resolve(str(name))
        return Run(store.get(identity), store.folder(identity))


def compare(
    a: str | Mapping[str, int | str],
    b: str | Mapping[str, int | str],
    *,
    workload: str,
    options: Mapping[str, Any] | None = None,
    path: str | None = None,
    tuned: str = "server",
    pairs: int = 8,
    metrics: Sequence[str] = (),
    matters: float = 0.05,
    level: float = 0.05,
    seed: int = 1,
    name: str | None = None,
    fresh: bool = False,
    allow_global: bool = False,
    on_trial: Callable[[int, int], None] | None = None,
) -> Comparison:
    """Compare two kernel settings under a workload, in pairs of trials, as `netdyno tune compare` does.

    A setting is `"baseline"`, the name of a known one, a file, or parameters and values. Both hosts are
    namespaces that are made for each trial, so that nothing of the machine changes. Needs root. What was
    measured before is not measured again, unless `fresh`. `on_trial` is told how many trials are over, and of
    how many.
    """
    from netdyno.lab.topology import need_root
    from netdyno.tuning import benches, comparing

    texts = [f"{key}={value}" for key, value in (options or {}).items()]
    made = benches.spec(workload, texts, path, "client" if tuned == "client" else "server")
    wanted = comparing.Wanted(
        made, a, [b], pairs, metrics=tuple(metrics), matters=matters, level=level, seed=seed, name=name,
        fresh=fresh, allow_global=allow_global,
    )  # fmt: skip
    need_root()
    journal.restore()

    class Told(comparing.Silent):
        def trial(self, what: str, done: int, of: int, seen: Any) -> None:
            if on_trial and what == "compare":
                on_trial(done, of)

    with _interrupts() as interrupts:
        return Comparison(comparing.compare(wanted, Told(), interrupts))


def search(
    what: str | Path | Mapping[str, Any],
    how: Asked,
    *,
    topology: str | Path | None = None,
    load: float | None = None,
    duration: str | float | None = None,
    runs: str | Path | None = None,
    store: bool = True,
    on_sample: Sampled | None = None,
) -> Search:
    """Search for the load that a DUT bears, as `netdyno bench` does.

    `how` is what to look for, from `netdyno.search.rfc2544`: `throughput(loss=0.0)`, `mlrsearch()`, `loss()`,
    `back_to_back()`, `latency()`, `recovery()`, `reset()`, `rate()`. The load of the profile is the highest
    that is tried. `topology` is a file with topology, duts and targets; `duration` is that of each trial.
    """
    from netdyno.search.rfc2544 import prepare

    chosen = _chosen(what, quick.Quick())
    seconds = _said(units.TIME, duration, "duration")
    wanted, schedule, _ = prepare(
        how,
        chosen,
        topology=Path(topology) if topology else None,
        load=load,
        duration=units.seconds(seconds) if seconds else None,
    )
    validation.refuse(wanted, chosen.folder)
    return Search(*_campaign(wanted, chosen.folder, runs, store, None, on_sample, schedule))


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
        return _table(repr(self).strip("<>"), heads, cells)


@dataclass(frozen=True)
class Delay:
    """A delay over all repetitions; every figure in seconds."""

    count: int
    min: float
    mean: float
    sd: float
    p50: float
    p90: float
    p99: float
    p999: float
    max: float

    @classmethod
    def of(cls, found: Distribution) -> Delay:
        """From nanoseconds."""
        names = ("min", "mean", "sd", "p50", "p90", "p99", "p999", "max")
        return cls(found.count, *(float(getattr(found, name)) / 1e9 for name in names))


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
        try:
            return float(getattr(self.summary.measured, counter))
        except AttributeError:
            raise Error("ND-104-27", f"{self.name} counts no {counter!r}") from None

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
        try:
            import pandas as pd
        except ImportError as e:
            fix = "pip install pandas, or take .csv()"
            raise Error("ND-92-23", "pandas is not installed", fix=fix) from e

        frame = pd.read_csv(io.StringIO(self.csv()))
        of_time = [name for name in frame.columns if name.startswith(("delay.", "lateness."))]
        times = [name for name in of_time if not name.endswith(".count")]
        frame[times] = frame[times] / 1e9
        frame["offered"] = frame["messages_sent"] / frame["dt"]
        frame["delivered"] = frame["messages_delivered"] / frame["dt"]
        return frame


@dataclass(frozen=True)
class Comparison:
    """What is known of one setting beside another."""

    study: Compared

    @property
    def run(self) -> str:
        """Its run in the store."""
        return str(self.study.document["run"])

    @property
    def said(self) -> str:
        """What came of it, in a sentence."""
        return self.study.comparison.said

    @property
    def valid(self) -> bool:
        """Whether enough pairs count for anything to be shown."""
        return not self.study.comparison.too_few

    @property
    def findings(self) -> Sequence[Finding]:
        """By metric: effect, interval, corrected p, minimum detectable effect, verdict."""
        return self.study.comparison.findings

    def verdict(self, metric: str) -> str:
        """`better`, `worse`, `unexplained`, `no effect`, `not shown` or `too few pairs`."""
        return str(self.study.comparison.verdict(metric))

    def to_pandas(self) -> pandas.DataFrame:
        """A row for each metric: means of both sides, change with its interval, p, verdict."""
        import pandas as pd

        rows = []
        for one in self.findings:
            low, high = one.effect.interval or (float("nan"), float("nan"))
            rows.append(
                {
                    "metric": one.metric.name, "unit": one.metric.unit, "a": one.effect.a, "b": one.effect.b,
                    "change": one.effect.change, "low": low, "high": high, "p": one.p_holm,
                    "detectable": one.detectable, "verdict": str(one.verdict),
                }
            )  # fmt: skip
        return pd.DataFrame(rows).set_index("metric")

    def pairs(self, metric: str) -> list[tuple[float, float]]:
        """What A and B had in each pair that counts."""
        for one in self.study.document["result"]["metrics"]:
            if one["metric"]["name"] == metric:
                return [(a, b) for a, b in one["pairs"]]
        raise Error("ND-104-52", f"{metric!r} was not compared")

    def __repr__(self) -> str:
        return f"<netdyno comparison {self.run}: {self.said}>"

    def _repr_html_(self) -> str:
        heads = ("metric", self.study.a.name, self.study.b.name, "change", "interval", "verdict")
        rows = [
            (
                one.metric.name, f"{one.effect.a:.4g}", f"{one.effect.b:.4g}", one.shown(one.effect.change),
                " … ".join(one.shown(end) for end in one.effect.interval or ()), str(one.verdict),
            )
            for one in self.findings
        ]  # fmt: skip
        return _table(self.said, heads, rows)


@dataclass(frozen=True)
class Search(Run):
    """What a search found."""

    @property
    def found(self) -> SearchReport:
        """What it looked for, tried and found, by frame size."""
        assert self.result.search is not None, "it was a search"
        return self.result.search

    def finding(self, part: str | None = None, goal: str | None = None) -> SearchFinding:
        """Of one frame size and goal; of the first, where none is named."""
        of = next((one for one in self.found.parts if part in (None, one.name)), None)
        one = next((f for f in of.findings if goal in (None, f.goal)), None) if of else None
        if one is None:
            there = ", ".join(f"{p.name} {f.goal}" for p in self.found.parts for f in p.findings) or "nothing"
            raise Error("ND-104-27", f"nothing was found of {part} {goal}", at=self.id, fix=f"Found: {there}")
        return one

    def to_pandas(self) -> pandas.DataFrame:
        """A row for each trial: frame size, load, sent, lost, loss, whether it counts."""
        import pandas as pd

        rows = [
            {"part": part.name, **trial.model_dump()} for part in self.found.parts for trial in part.trials
        ]
        return pd.DataFrame(rows)

    def __repr__(self) -> str:
        found = "; ".join(
            f"{part.name} {one.goal} {one.load:.6g} {self.found.unit}"
            if one.load is not None
            else f"{part.name} {one.goal} none"
            for part in self.found.parts
            for one in part.findings
        )
        return f"<netdyno search {self.id}: {found}>"


def _campaign(
    wanted: Experiment,
    base: Path,
    runs: str | Path | None,
    store: bool,
    address: Address | None,
    on_sample: Sampled | None,
    schedule: Schedule | None = None,
) -> tuple[Result, Path]:
    """Put back what an earlier run left, run the trials, keep them."""
    journal.restore()
    with _interrupts() as interrupts, contextlib.ExitStack() as stack:
        campaign = Campaign(
            experiment=wanted,
            base=base,
            runs=Path(runs) if runs else paths.runs(),
            live=_Live(on_sample),
            interrupts=interrupts,
            store=stack.enter_context(Store()) if store else None,
            command=["netdyno (script)", *sys.argv[:1]],
            socket=address,
            schedule=schedule,
        )
        return campaign.run()


class _Live(Silent):
    """Hands samples on."""

    def __init__(self, told: Sampled | None) -> None:
        self._told = told

    def start(self, plan: Plan) -> None:
        """Nothing."""

    def sample(self, sample: dict[str, Any]) -> None:
        """A point of the series."""
        if self._told:
            self._told(sample)


def _chosen(what: str | Path | Mapping[str, Any] | Sequence[str], options: quick.Quick) -> choose.Chosen:
    if isinstance(what, Mapping):
        return choose.document(dict(what), "the document", Path())
    names = [str(what)] if isinstance(what, (str, Path)) else [str(one) for one in what]
    return choose.choose(names, options)


@contextlib.contextmanager
def _interrupts() -> Iterator[Interrupts]:
    """Ctrl-C ends a run in good order; only the main thread hears of it."""
    interrupts = Interrupts()
    if threading.current_thread() is threading.main_thread():
        with interrupts.installed():
            yield interrupts
    else:
        yield interrupts


def _said(unit: units.Kind, value: str | float | None, at: str) -> str | None:
    """A bare number means seconds, bytes or per second, as on the command line."""
    if value is None:
        return None
    return unit.text(f"{value:.12g}" if isinstance(value, float) else str(value), at)


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _share(value: float | None) -> str:
    return "–" if value is None else f"{value:.3%}"


def _quantiles(group: Group) -> tuple[str, str]:
    if not group.delays:
        return "–", "–"
    delay = group.delay()
    return f"{delay.p50 * 1e3:.3g} ms", f"{delay.p99 * 1e3:.3g} ms"


def _table(caption: str, heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    def cells(tag: str, row: Sequence[str]) -> str:
        return "<tr>" + "".join(f"<{tag}>{quoted(str(cell))}</{tag}>" for cell in row) + "</tr>"

    body = "".join(cells("td", row) for row in rows)
    return f"<table><caption>{quoted(caption)}</caption>{cells('th', heads)}{body}</table>"
