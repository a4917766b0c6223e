"""Merge what the hosts of a fleet measured into one trial: counts add up, histograms merge by bucket.

Percentiles of the result are those of one recording of all hosts. Percentiles of a point of the series come
from its buckets, those of lateness there are the worst host's, as points have no histogram of it.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from netdyno.core import totals
from netdyno.core.result import Repetition
from netdyno.core.wire import (
    BucketedQuantiles,
    Counts,
    GroupPoint,
    GroupResult,
    PausedInterval,
    PhaseLengths,
    Quantiles,
    Reason,
    SeriesPoint,
    StallResult,
    TrialResult,
    Validity,
    WorkerUsage,
)
from netdyno.fleet import rates
from netdyno.stats.summary import summarise

WORST = ("failed", "lease", "stopped")
"""Why trials end early, the most serious first."""


def trial(parts: Mapping[str, TrialResult], profile: dict[str, Any], started: str) -> TrialResult:
    """One trial of all hosts, which are the keys; `profile`: what was asked of all together.

    Each worker and each reason why the trial is invalid names its host, and each interface is `HOST:NAME`;
    parts that were merged before have these names, and keep them.
    """
    found = list(parts.values())
    first = found[0]
    return TrialResult(
        run=first.run,
        profile=profile,
        transport=first.transport,
        version=first.version,
        started=started,
        phases=PhaseLengths(
            warmup=max(one.phases.warmup for one in found),
            measure=max(one.phases.measure for one in found),
            drain=max(one.phases.drain for one in found),
        ),
        stopped=next((why for why in WORST if any(one.stopped == why for one in found)), None),
        error=next((one.error for one in found if one.error), None),
        changes=[{"host": host} | one for host, part in parts.items() for one in part.changes],
        paused=_paused([one.paused for one in found]),
        rates=rates.merged([one.rates for one in found]),
        validity=Validity(
            valid=all(one.validity.valid for one in found),
            reasons=[_reason(host, reason) for host, one in parts.items() for reason in one.validity.reasons],
        ),
        groups=_groups(found, profile),
        workers=_workers({host: one.workers for host, one in parts.items()}),
        interfaces=_interfaces({host: one.interfaces for host, one in parts.items()}),
        ports=_of_hosts({host: one.ports for host, one in parts.items()}),
        elements=_of_hosts({host: one.elements for host, one in parts.items()}),
        series=series({host: one.series for host, one in parts.items()}),
    )


def _paused(parts: Sequence[Sequence[PausedInterval]]) -> list[PausedInterval]:
    """Pauses of all hosts, which stand still together: each as long as the longest of a host."""
    several = (
        [part[number] for part in parts if number < len(part)] for number in range(max(map(len, parts)))
    )
    return [
        PausedInterval(t=max(one.t for one in each), seconds=max(one.seconds for one in each))
        for each in several
    ]


def _reason(host: str, reason: Reason) -> Reason:
    if (reason.model_extra or {}).get("host"):
        return reason
    return Reason.model_validate(reason.model_dump() | {"what": f"host {host}: {reason.what}", "host": host})


def _groups(found: Sequence[TrialResult], profile: Mapping[str, Any]) -> list[GroupResult]:
    """Groups in the order of the profile; what no host has run is not there."""
    summaries = {
        one.name: one for one in summarise([Repetition.model_validate(r.model_dump()) for r in found]).groups
    }
    names = dict.fromkeys(str(group.get("name")) for group in profile.get("groups") or ())
    return [
        _group([group for one in found for group in one.groups if group.name == name], summaries[name])
        for name in names
        if name in summaries
    ]


def _group(parts: Sequence[GroupResult], summary: Any) -> GroupResult:
    first = parts[0]
    merged = (
        "measured",
        "indices",
        "errors",
        "addresses",
        "delays",
        "values",
        "ipdv",
        "reordering",
        "losses",
        "slowdown",
    )
    sent = [(part.loss, part.measured.messages_sent) for part in parts if part.loss is not None]
    rates = dict.fromkeys(name for part in parts for name in part.rates)
    return GroupResult(
        name=first.name,
        protocol=first.protocol,
        target=first.target,
        devices=sum(part.devices for part in parts),
        tokens=[one for part in parts for one in part.tokens],
        total=totals.counts([part.total for part in parts]),
        rates={name: math.fsum(part.rates.get(name, 0.0) for part in parts) for name in rates},
        unit=first.unit,
        loss=_weighted(sent),
        verified=first.verified,
        lateness=summary.lateness,
        confirmed=None if first.confirmed is None else all(part.confirmed for part in parts),
        stalls=_stalls(parts),
        **{name: getattr(summary, name) for name in merged},
    )


def _weighted(pairs: Sequence[tuple[float, int]]) -> float | None:
    """The mean of shares, weighted by what they are shares of; of nothing, 0 where one is told."""
    whole = sum(weight for _, weight in pairs)
    if not whole:
        return 0.0 if pairs else None
    return math.fsum(value * weight for value, weight in pairs) / whole


def _stalls(parts: Sequence[GroupResult]) -> StallResult | None:
    told = [(part.stalls, part.devices) for part in parts if part.stalls]
    if not told:
        return None
    return StallResult(
        limit=told[0][0].limit,
        time=math.fsum(one.time for one, _ in told),
        share=_weighted([(one.share, devices) for one, devices in told]) or 0.0,
        longest=max(one.longest for one, _ in told),
        busy=_weighted([(one.busy, devices) for one, devices in told]) or 0.0,
        waiting=_weighted([(one.waiting, devices) for one, devices in told]) or 0.0,
    )


def _workers(parts: Mapping[str, Sequence[WorkerUsage]]) -> list[WorkerUsage]:
    """Workers of all hosts, numbered through."""
    every = [(host, worker) for host, workers in parts.items() for worker in workers]
    return [
        WorkerUsage.model_validate({"host": host} | worker.model_dump() | {"worker": number})
        for number, (host, worker) in enumerate(every)
    ]


def _interfaces(parts: Mapping[str, Mapping[str, dict[str, int]]]) -> dict[str, dict[str, int]]:
    # no interface has a colon in its name
    return {
        name if ":" in name else f"{host}:{name}": counts
        for host, there in parts.items()
        for name, counts in there.items()
    }


def _of_hosts(parts: Mapping[str, Sequence[dict[str, Any]]]) -> list[dict[str, Any]]:
    """Ports or elements of all hosts, `HOST:NAME`."""
    return [
        one if ":" in str(one.get("name", "")) else one | {"name": f"{host}:{one.get('name', '')}"}
        for host, there in parts.items()
        for one in there
    ]


def begin(point: SeriesPoint) -> int:
    """When an interval began, in ms since the start; points of hosts with the same belong together."""
    return round((point.t - point.dt) * 1000)


def series(parts: Mapping[str, Sequence[SeriesPoint]]) -> list[SeriesPoint]:
    """The points of all hosts, added up by when they began."""
    found: dict[int, dict[str, SeriesPoint]] = {}
    for host, points in parts.items():
        for one in points:
            found.setdefault(begin(one), {})[host] = one
    return [point(found[at]) for at in sorted(found)]


def point(parts: Mapping[str, SeriesPoint]) -> SeriesPoint:
    """One point of all hosts, of intervals that began together; the last of a drain may differ in length."""
    every = list(parts.values())
    longest = max(every, key=lambda one: one.dt)
    names = dict.fromkeys(name for one in every for name in one.groups)
    return SeriesPoint(
        t=longest.t,
        dt=longest.dt,
        phase=longest.phase,
        elapsed=max(one.elapsed for one in every),
        left=max(one.left for one in every),
        groups={
            name: _group_point([one.groups[name] for one in every if name in one.groups]) for name in names
        },
        workers=_workers({host: one.workers for host, one in parts.items()}),
        interfaces=_interfaces({host: one.interfaces for host, one in parts.items()}),
    )


def thinned(one: SeriesPoint, relay: str) -> SeriesPoint:
    """A point as a relay tells it: of workers the busiest and the most starved, of interfaces the sum."""
    told = {
        id(worker): worker
        for key in ("cpu", "starved")
        for worker in [max(one.workers, key=lambda w: float(getattr(w, key)), default=None)]
        if worker is not None
    }
    sums: Counter[str] = Counter()
    for counts in one.interfaces.values():
        sums.update(counts)
    interfaces = {f"{relay}:all": dict(sums)} if one.interfaces else {}
    return one.model_copy(update={"workers": list(told.values()), "interfaces": interfaces})


def _group_point(parts: Sequence[GroupPoint]) -> GroupPoint:
    if len(parts) == 1:
        return parts[0]
    waiting = [part.waiting for part in parts if part.waiting is not None]
    causes: dict[str, dict[str, int]] = {}
    for kind, cause, count in (
        (kind, cause, count)
        for part in parts
        for kind, known in part.causes.items()
        for cause, count in known.items()
    ):
        of_kind = causes.setdefault(kind, {})
        of_kind[cause] = of_kind.get(cause, 0) + count
    names = dict.fromkeys(name for part in parts for name in part.delays)
    return GroupPoint(
        counts=_counts([part.counts for part in parts]),
        devices_active=sum(part.devices_active for part in parts),
        waiting=sum(waiting) if waiting else None,
        delays={
            name: bucketed([part.delays[name] for part in parts if name in part.delays]) for name in names
        },
        lateness=worst([part.lateness for part in parts]),
        causes=causes,
    )


def _counts(parts: Sequence[Counts]) -> Counts:
    return totals.counts(parts)


QUANTILES = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99, "p999": 0.999}


def bucketed(parts: Sequence[BucketedQuantiles]) -> BucketedQuantiles:
    """Delays of an interval: counts of buckets added, percentiles as upper bounds of their buckets."""
    given = [part for part in parts if part.count]
    if len(given) <= 1:
        return given[0] if given else BucketedQuantiles()
    counts: dict[int, int] = {}
    for upper, count in (pair for part in given for pair in part.buckets):
        counts[upper] = counts.get(upper, 0) + count
    buckets = sorted(counts.items())
    largest = max(part.max for part in given)
    whole = sum(part.count for part in given)
    return BucketedQuantiles(
        **_plain(given, lambda name: _quantile(buckets, whole, largest, QUANTILES[name])), buckets=buckets
    )


def _quantile(buckets: Sequence[tuple[int, int]], whole: int, largest: int, share: float) -> int:
    rank = max(1, math.ceil(share * whole))
    seen = 0
    for upper, count in buckets:
        seen += count
        if seen >= rank:
            return min(upper, largest)
    return largest


def worst(parts: Sequence[Quantiles]) -> Quantiles:
    """Lateness of an interval: its percentiles are those of the latest host."""
    given = [part for part in parts if part.count]
    if len(given) <= 1:
        return given[0] if given else Quantiles()
    return Quantiles(**_plain(given, lambda name: max(int(getattr(part, name) or 0) for part in given)))


def _plain(given: Sequence[Quantiles], quantile: Callable[[str], int]) -> dict[str, Any]:
    """What two kinds of quantiles have alike: count, extremes and mean are exact."""
    whole = sum(part.count for part in given)
    return {
        "count": whole,
        "min": min(part.min for part in given),
        "max": max(part.max for part in given),
        "mean": math.fsum(part.mean * part.count for part in given) / whole,
        **{name: quantile(name) for name in QUANTILES},
    }
