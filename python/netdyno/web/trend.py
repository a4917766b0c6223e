"""One metric over runs that are alike: same target, and the same name if that is asked for."""

from __future__ import annotations

import asyncio
from typing import Any

from starlette.requests import Request

from netdyno.errors import Error
from netdyno.report import units
from netdyno.report.points import chart, points
from netdyno.report.text import M, label
from netdyno.report.verdict import name_of
from netdyno.store import Row, Store
from netdyno.store.store import Spread
from netdyno.web import run_views

MOST = 200
"""Runs of a trend, the latest."""
KINDS = {"valid": (M("Valid runs"), 0), "invalid": (M("Runs that are not valid"), 1)}


def trend(run: str, metric: str = "", named: bool = False, leg: str = "") -> dict[str, Any]:
    """The mean of a metric in each run that has the target of this one, the oldest first.

    `metric`: by default the first 99th percentile, else the first of all. `named`: those of its name alone.
    `leg`: by default the first. Trials of other legs are of another load or transport: they are left out.
    """
    with Store() as store:
        rows = store.rows()
        base = next((row for row in rows if row.id == run), None)
        every, legs = store.metrics(run), store.legs(run)
        if base is None or not every:
            what = f"the run {run[:80]!r} has no measured values" if base else f"there is no run {run[:80]!r}"
            raise Error("ND-104-25", what, fix="Choose a finished run of the list")
        for at, said, known in (("metric", metric, every), ("leg", leg, legs)):
            if said and said not in known:
                fix = f"There are {', '.join(known)}"
                raise Error("ND-104-25", f"the run has no {at} {said[:80]!r}", at=at, fix=fix)
        leg = leg or legs[0]
        metrics = store.metrics(run, leg)
        if metric not in metrics:
            metric = next((one for one in metrics if one.endswith(".p99")), metrics[0])
        values = store.spreads(metric, leg)
    found = [row for row in rows if _alike(row, base, named) and row.id in values][:MOST][::-1]
    return {
        "run": run,
        "name": base.name,
        "target": base.subject.target,
        "named": named,
        "metric": metric,
        "leg": leg,
        "legs": legs,
        "metrics": [{"id": one, "label": label(name_of(one))} for one in metrics],
        "runs": [_line(row, values[row.id], metric) for row in found],
        "chart": _chart(found, values, metric),
    }


def _alike(row: Row, base: Row, named: bool) -> bool:
    if row.state != "done" or row.kind != base.kind or (named and row.name != base.name):
        return False
    return row.subject.target == base.subject.target


def _line(row: Row, spread: Spread, metric: str) -> dict[str, Any]:
    unit = units.unit_of(metric)

    def show(x: float) -> str:
        # a mean of counts is no count
        return units.difference(x) if unit == "count" else units.show(x, unit)

    return run_views.row(row) | {
        "value": show(spread.mean),
        "spread": units.span(show(spread.least), show(spread.most)) if spread.trials > 1 else None,
    }


def _chart(rows: list[Row], values: dict[str, Spread], metric: str) -> dict[str, Any]:
    found = [
        (float(i), values[row.id].mean, "valid" if row.valid else "invalid") for i, row in enumerate(rows, 1)
    ]
    one = points(name_of(metric), M("Run"), "id", found, KINDS, joined=["valid"])
    unit = units.unit_of(metric)
    # a mean of counts is no count
    if unit == "value" or (unit == "count" and any(y % 1 for _, y, _ in found)):
        unit = "number"
    return chart("trend", name_of(metric), unit, [one])


async def _answer(request: Request) -> Any:
    run, query = str(request.path_params["run"]), request.query_params
    metric, named, leg = query.get("metric", ""), query.get("named") == "1", query.get("leg", "")
    return await asyncio.to_thread(trend, run, metric, named, leg)


ROUTES = (("/api/trend/{run}", _answer),)
"""Path, and what answers."""
