"""The raw series of a result as one CSV: a row for each group in each interval."""

from __future__ import annotations

import csv
import io
from typing import Any

from netdyno import escape
from netdyno.core.result import Result
from netdyno.core.totals import COUNTERS
from netdyno.core.wire import Quantiles

STATS = tuple(Quantiles.model_fields)


def series_csv(result: Result) -> str:
    """Counts of each interval, failures by kind, delays in nanoseconds; empty where nothing was recorded."""
    points = [
        (leg.name, rep.index, s, name, g)
        for leg in result.legs
        for rep in leg.repetitions
        for s in rep.series
        for name, g in s.groups.items()
    ]
    kinds = sorted({k for *_, g in points for k in g.counts.failures})
    own = sorted({c for *_, g in points for c in g.counts.own})
    delays = sorted({d for *_, g in points for d in g.delays})
    out = io.StringIO()

    def add(row: list[Any]) -> None:
        writer.writerow([escape.cell(value) for value in row])

    writer = csv.writer(out, lineterminator="\n")
    add(
        ["leg", "repetition", "t", "dt", "phase", "group", "devices_active", "devices_waiting", *COUNTERS]
        + [f"failures.{k}" for k in kinds]
        + [f"counts.{c}" for c in own]
        + [f"{d}.{s}" for d in (*(f"delay.{d}" for d in delays), "lateness") for s in STATS]
    )
    for leg, index, s, name, g in points:
        quantiles = [g.delays.get(d) for d in delays] + [g.lateness]
        add(
            [leg, index, s.t, s.dt, s.phase, name, g.devices_active, "" if g.waiting is None else g.waiting]
            + [getattr(g.counts, c) for c in COUNTERS]
            + [g.counts.failures.get(k, 0) for k in kinds]
            + [g.counts.own.get(c, "") for c in own]
            + [getattr(q, stat) if q is not None and q.count else "" for q in quantiles for stat in STATS]
        )
    return out.getvalue()
