"""A trial's points as columns for charts, fewer of them when there are very many."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import accumulate
from math import isfinite
from statistics import median
from typing import Any

from netdyno.core import totals
from netdyno.core.wire import BucketedQuantiles, GroupPoint, Quantiles, SeriesPoint, WorkerUsage
from netdyno.stats import pauses, percentile

#: More points than this are merged before they are drawn; the downloads keep them all.
POINTS = 2000


SETUP = ("resolve", "connect", "tls", "connack")
"""Delays of coming to talk at all."""


def by_samples(counts: Mapping[str, float]) -> list[str]:
    """The delays that anything was recorded of: those of messages, most samples first, then of setting up.

    Of two with as many samples the later one is the whole of what the earlier is a part of.
    """
    place = {name: i for i, name in enumerate(counts)}
    recorded = [name for name, count in counts.items() if count]
    return sorted(recorded, key=lambda n: (n in SETUP, -counts[n], -place[n]))


def coarsen(samples: Sequence[SeriesPoint], limit: int = POINTS) -> list[SeriesPoint]:
    """At most `limit` points. Counts add up exactly; of percentiles the worst of an interval stays."""
    if len(samples) <= limit:
        return list(samples)
    step = -(-len(samples) // limit)
    return [_join(samples[i : i + step]) for i in range(0, len(samples), step)]


def without_stubs(samples: Sequence[SeriesPoint]) -> list[SeriesPoint]:
    """Intervals that end early, as those of a run that was stopped do, are joined with the one before: a rate
    of a few milliseconds is a peak that never was."""
    usual = median(point.dt for point in samples) if samples else 0.0
    kept: list[SeriesPoint] = []
    for point in samples:
        if kept and point.dt < usual / 4:
            phase = kept[-1].phase
            kept[-1] = _join([kept[-1], point])
            kept[-1].phase = phase
        else:
            kept.append(point)
    return kept


def in_order(samples: Sequence[SeriesPoint], names: Sequence[str]) -> list[SeriesPoint]:
    """The same with the groups of each point in the order of the profile."""
    place = {name: i for i, name in enumerate(names)}

    def groups(s: SeriesPoint) -> dict[str, GroupPoint]:
        return dict(sorted(s.groups.items(), key=lambda g: place.get(g[0], len(place))))

    return [s.model_copy(update={"groups": groups(s)}) for s in samples]


def _join(points: Sequence[SeriesPoint]) -> SeriesPoint:
    last = points[-1]
    names = dict.fromkeys(name for p in points for name in p.groups)
    interfaces = dict.fromkeys(name for p in points for name in p.interfaces)
    cores = dict.fromkeys(w.worker for p in points for w in p.workers)
    return SeriesPoint(
        t=last.t,
        dt=sum(p.dt for p in points),
        phase=last.phase,
        groups={n: _join_group([p.groups[n] for p in points if n in p.groups]) for n in names},
        workers=[
            _join_worker([(p.dt, w) for p in points for w in p.workers if w.worker == c]) for c in cores
        ],
        interfaces={n: _add(p.interfaces.get(n, {}) for p in points) for n in interfaces},
    )


def _join_group(parts: Sequence[GroupPoint]) -> GroupPoint:
    delays = dict.fromkeys(name for p in parts for name in p.delays)
    return GroupPoint(
        counts=totals.counts([p.counts for p in parts]),
        devices_active=parts[-1].devices_active,
        waiting=max((p.waiting for p in parts if p.waiting is not None), default=None),
        delays={n: _bucketed([p.delays[n] for p in parts if n in p.delays]) for n in delays},
        lateness=_worst([p.lateness for p in parts]),
    )


def _bucketed(parts: Sequence[Quantiles]) -> BucketedQuantiles:
    return BucketedQuantiles(**_worst(parts).model_dump())


def _join_worker(parts: Sequence[tuple[float, WorkerUsage]]) -> WorkerUsage:
    time = sum(dt for dt, _ in parts) or 1.0
    cpu, starved = (sum(dt * getattr(w, what) for dt, w in parts) / time for what in ("cpu", "starved"))
    update: dict[str, Any] = {"cpu": cpu, "starved": starved}
    for what in ("pauses", "long_turns"):
        known = [one for _, w in parts if (one := getattr(w, what)) is not None]
        update[what] = pauses.total(known) if known else None
    return parts[-1][1].model_copy(update=update)


def _worst(parts: Sequence[Quantiles]) -> Quantiles:
    known = {k: [v for p in parts if (v := getattr(p, k)) is not None] for k in Quantiles.model_fields}
    worst = {k: max(values) for k, values in known.items() if values}
    return Quantiles(**worst | {"count": sum(p.count for p in parts), "min": min(p.min for p in parts)})


def _add(parts: Iterable[dict[str, int]]) -> dict[str, int]:
    total: dict[str, int] = {}
    for part in parts:
        for key, n in part.items():
            total[key] = total.get(key, 0) + n
    return total


def rounded(x: float | None) -> float | None:
    """Six digits: more than a chart shows, fewer than a float writes."""
    return None if x is None or not isfinite(x) else float(f"{x:.6g}")


def per_second(
    samples: Sequence[SeriesPoint], value: Callable[[GroupPoint], float], group: str | None
) -> list[float | None]:
    """A count of one group, or of all, per second in each interval."""
    return [rounded(_pick(s, value, group) / s.dt) if s.dt > 0 else None for s in samples]


def running(
    samples: Sequence[SeriesPoint], value: Callable[[GroupPoint], float], group: str | None
) -> list[float]:
    """The same, added up since the start; every digit, as differences of these matter."""
    return list(accumulate(_pick(s, value, group) for s in samples))


def _pick(sample: SeriesPoint, value: Callable[[GroupPoint], float], group: str | None) -> float:
    if group is None:
        return sum(value(g) for g in sample.groups.values())
    return value(sample.groups[group]) if group in sample.groups else 0


def quantile(
    samples: Sequence[SeriesPoint], of: Callable[[GroupPoint], Quantiles | None], stat: str, group: str
) -> list[float | None]:
    """One number of a distribution in each interval; nothing where nothing was recorded."""
    column: list[float | None] = []
    for s in samples:
        found = of(s.groups[group]) if group in s.groups else None
        column.append(rounded(percentile.of(found, stat)) if found is not None and found.count else None)
    return column
