"""The metrics that thresholds and comparisons name, found in a result.

The names are the profile's: `GROUP.delay.NAME.STAT`, `GROUP.lateness.STAT`, `GROUP.loss`,
`GROUP.losses.noticeable`, `GROUP.losses.WHAT.STAT`, `GROUP.ipdv.NAME.STAT`, `GROUP.reordering.SHARE`,
`GROUP.reordering.WHAT.STAT`, `GROUP.stalls.WHAT`, `GROUP.errors[.KIND]`, `GROUP.counts.NAME[.rate]`,
`GROUP.index.NAME`, `GROUP.value.NAME.STAT`, `GROUP.COUNTER[.rate]`, and of DPDK ports `PORT.port.COUNTER`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from netdyno.core import models
from netdyno.core.result import MetricValue, Repetition
from netdyno.core.totals import COUNTERS
from netdyno.core.wire import Counter, Distribution, Index, Quantiles, TrialResult, Value
from netdyno.errors import Error
from netdyno.stats import percentile
from netdyno.stats.percentile import parts

THOUSAND = 1000
"""What values are kept in the thousandths of."""
STATS = ("min", "mean", "max")
"""Besides percentiles."""
VARIATION = ("pdv", "jitter")
"""Of delays besides: RFC 5481."""
ORDER_SHARES = ("ratio", "by_three", "displaced")
"""RFC 4737, the last RFC 5236."""
ORDER_SPREADS = ("extent", "late", "displacement", "waiting")
"""Two of each."""
LOSS_SPREADS = ("length", "distance", "between")
"""RFC 3357."""
STALLS = ("share", "time", "longest", "waiting")
"""Of waits for answers: share of the devices' time, that time, the longest, and who waits at the end."""

PORT_LOAD = (
    "rx_packets",
    "rx_bytes",
    "tx_packets",
    "tx_bytes",
    "tcp_segments_sent",
    "tcp_frames_segmented_by_port",
)
"""Counters of a DPDK port of which neither more nor less is better."""
STACK = "tcp_segments_sent"
"""Counted by each port with a stack."""

_NAME = re.compile(r"[a-z0-9_]+")


@dataclass(frozen=True)
class GroupMetric:
    """One number of one group."""

    group: str
    kind: str
    """`delay`, `ipdv`, `lateness`, `loss`, `losses`, `reordering`, `stalls`, `errors`, `counts`, `index`,
    `value`, `counter`; `port`: `group` is a DPDK port; `measured`: what a workload measured by itself, which
    no group has."""
    name: str = ""
    stat: str = ""
    said: MetricValue | None = field(default=None, compare=False)
    """Unit and direction of what was measured."""

    @classmethod
    def parse(cls, text: str) -> GroupMetric:
        """A metric's name, as it stands in a profile."""
        match parts(text):
            case [group, "delay", name, stat] if stat in VARIATION or _is_stat(stat):
                return cls(group, "delay", name, stat)
            case [group, "lateness", stat] if _is_stat(stat):
                return cls(group, "lateness", "", stat)
            case [group, "loss"]:
                return cls(group, "loss")
            case [group, "ipdv", name, stat] if _is_stat(stat):
                return cls(group, "ipdv", name, stat)
            case [group, "losses", "noticeable"]:
                return cls(group, "losses", "noticeable")
            case [group, "losses", name, stat] if name in LOSS_SPREADS and _is_stat(stat):
                return cls(group, "losses", name, stat)
            case [group, "reordering", share] if share in ORDER_SHARES:
                return cls(group, "reordering", share)
            case [group, "reordering", name, stat] if name in ORDER_SPREADS and _is_stat(stat):
                return cls(group, "reordering", name, stat)
            case [group, "stalls", what] if what in STALLS:
                return cls(group, "stalls", what)
            case [group, "errors", *kind] if len(kind) <= 1:
                return cls(group, "errors", kind[0] if kind else "")
            case [group, "counts", name] if _NAME.fullmatch(name):
                return cls(group, "counts", name)
            case [group, "counts", name, "rate"] if _NAME.fullmatch(name):
                return cls(group, "counts", name, "rate")
            case [port, "port", name] if _NAME.fullmatch(name):
                return cls(port, "port", name)
            case [group, "index", name] if _NAME.fullmatch(name):
                return cls(group, "index", name)
            case [group, "value", name, stat] if _NAME.fullmatch(name) and _is_stat(stat):
                return cls(group, "value", name, stat)
            case [group, name] if name in COUNTERS:
                return cls(group, "counter", name)
            case [group, name, "rate"] if name in COUNTERS:
                return cls(group, "counter", name, "rate")
        raise _unknown(text)

    @property
    def smaller_is_better(self) -> bool | None:
        """Which way is better; None when neither is."""
        if self.kind == "measured":
            return {"lower": True, "higher": False}.get(self.said.better if self.said else "")
        if self.kind == "losses":
            return self.name not in ("distance", "between")
        if self.kind == "port":
            return None if self.name in PORT_LOAD else True
        if self.kind not in ("counter", "counts", "index", "value"):
            return True
        return {"less": True, "more": False}.get(self._better)

    @property
    def _better(self) -> str:
        """As whoever counts it says; of models that have a counter of this name the first."""
        known = models.catalogue()
        listed: list[Counter | Index | Value] = list(known.counters)
        if self.kind == "value":
            listed = [value for model in known.models for value in model.values]
        elif self.kind != "counter":
            listed = []
            for model in known.models:
                listed += model.counters
                listed += model.indices
        return next((one.better for one in listed if one.name == self.name), "neither")

    @property
    def unit(self) -> str:
        """The unit of its values."""
        if self.kind == "measured":
            return self.said.unit if self.said else "count"
        if self.kind in ("delay", "ipdv", "lateness") or (self.kind, self.name) == ("reordering", "late"):
            return "ns"
        if self.kind == "stalls":
            return "ns" if self.name in ("longest", "time") else "ratio"
        if self.kind in ("loss", "index") or (self.kind in ("losses", "reordering") and not self.stat):
            return "ratio"
        return "/s" if self.stat == "rate" else "count"

    def of(self, trial: TrialResult) -> float | None:
        """Its value in one trial; None when nothing of it was measured."""
        if self.kind == "measured":
            told = trial.metrics.get(self.name) if isinstance(trial, Repetition) else None
            return told.value if told else None
        if self.kind == "port":
            return self._of_port(trial)
        group = next((g for g in trial.groups if g.name == self.group), None)
        if group is None:
            return None
        if self._is_distribution:
            found = _stat(self._distribution(trial), self.stat)
            return found / THOUSAND if self.kind == "value" and found is not None else found
        if self.kind == "loss":
            return group.loss
        if self.kind in ("losses", "reordering"):
            of = getattr(group, self.kind)
            return getattr(of, self.name) if of else None
        if self.kind == "stalls":
            stalls = group.stalls
            if stalls is None:
                return None
            # like every other time that a limit may be given for
            return stalls.time * 1e9 if self.name == "time" else float(getattr(stalls, self.name))
        if self.kind == "errors":
            failures = group.measured.failures
            return float(failures.get(self.name, 0) if self.name else sum(failures.values()))
        if self.kind == "index":
            return group.indices.get(self.name)
        if self.kind == "counts" and self.name not in group.measured.own:
            return None
        value = float(getattr(group.measured, self.name))
        if self.stat == "rate":
            if self.name in group.rates:
                return group.rates[self.name]
            return value / trial.phases.measure if trial.phases.measure else None
        return value

    def _of_port(self, trial: TrialResult) -> float | None:
        """Of the hosts of a fleet, which have a port of this name each, the sum."""
        ports = [one for name, one in trial.interfaces.items() if name.rpartition(":")[2] == self.group]
        # of what a stack counts besides its segments, zeros are left out
        counts = [one.get(self.name, 0) for one in ports if self.name in one or STACK in one]
        return float(sum(counts)) if counts else None

    @property
    def _is_distribution(self) -> bool:
        return self.kind not in ("counter", "counts") and self.stat != ""

    def _distribution(self, trial: TrialResult) -> Distribution | None:
        group = next((g for g in trial.groups if g.name == self.group), None)
        if group is None:
            return None
        if self.kind in ("losses", "reordering"):
            of = getattr(group, self.kind)
            return getattr(of, self.name) if of else None
        if self.kind == "ipdv":
            return group.ipdv.get(self.name)
        if self.kind == "value":
            return group.values.get(self.name)
        return group.lateness if self.kind == "lateness" else group.delays.get(self.name)

    def __str__(self) -> str:
        kind = "" if self.kind in ("counter", "measured") else self.kind
        parts = [self.group, kind, self.name, self.stat]
        return ".".join(part for part in parts if part)


def _stat(of: Quantiles | None, name: str) -> float | None:
    return percentile.of(of, name) if of is not None and of.count else None


def _is_stat(name: str) -> bool:
    return name in STATS or percentile.percent(name) is not None


def _unknown(text: str) -> Error:
    """That a text names no metric: which part of it is wrong where that can be told, and all there are."""
    match parts(text):
        case [_, "delay" | "ipdv", _, stat] | [_, "lateness", stat] | [_, "losses" | "reordering", _, stat]:
            what = f"{stat!r} in {text!r} is not a statistic"
            fix = f"Use {percentile.LISTED}" + ("; of delays pdv or jitter too" if ".delay." in text else "")
            meant = percentile.hint(stat)
            return Error("ND-104-04", what, fix=f"{fix}; {meant}" if meant else fix)
        case [_, "delay" | "ipdv", _] | [_, "lateness"]:
            what = f"{text!r} lacks a statistic"
            fix = f"Add {percentile.LISTED}, as in {text}.p99"
            return Error("ND-104-04", what, fix=fix)
    return Error(
        "ND-104-04",
        f"{text!r} is not a metric",
        fix="Use GROUP.delay.NAME.STAT, GROUP.lateness.STAT, GROUP.loss, GROUP.losses.noticeable, "
        f"GROUP.losses.{'|'.join(LOSS_SPREADS)}.STAT, GROUP.ipdv.NAME.STAT, "
        f"GROUP.reordering.{'|'.join(ORDER_SHARES)}, GROUP.reordering.{'|'.join(ORDER_SPREADS)}.STAT, "
        f"GROUP.stalls.{'|'.join(STALLS)}, GROUP.errors[.KIND], GROUP.counts.NAME[.rate], "
        f"GROUP.index.NAME, GROUP.value.NAME.STAT, GROUP.COUNTER[.rate] or PORT.port.COUNTER with STAT "
        f"{percentile.LISTED} (of delays pdv or jitter too) and COUNTER of a group one of "
        f"{', '.join(COUNTERS)}",
    )


def all_of(trial: TrialResult) -> Iterator[GroupMetric]:
    """The metrics worth comparing in a trial."""
    if isinstance(trial, Repetition):
        yield from (GroupMetric("", "measured", name, said=one) for name, one in trial.metrics.items())
    for group in trial.groups:
        yield GroupMetric(group.name, "counter", "messages_delivered", "rate")
        yield GroupMetric(group.name, "loss")
        if group.reordering:
            yield GroupMetric(group.name, "reordering", "ratio")
            yield GroupMetric(group.name, "reordering", "displaced")
        if group.losses and group.losses.length.count:
            yield GroupMetric(group.name, "losses", "length", "mean")
        yield GroupMetric(group.name, "errors")
        for name, delay in group.delays.items():
            if delay.count:
                yield from (
                    GroupMetric(group.name, "delay", name, stat)
                    for stat in ("mean", "p50", "p95", "p99", "p999")
                )
        for name, value in group.values.items():
            if value.count:
                yield from (GroupMetric(group.name, "value", name, stat) for stat in ("mean", "p50", "p5"))
