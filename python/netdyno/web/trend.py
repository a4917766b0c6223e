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


def trend(run: str, metric: str = "", named: bool = False) -> dict[str, Any]:
    """The mean of a metric in each run that has the target of this one, the oldest first.

    `metric`: by default the first 99th percentile, else the first of all. `named`: those of its name alone.
    """
    with Store() as store:
        rows = store.rows()
        base = next((row for row in rows if row.id == run), None)
        metrics = store.metrics(run)
        if base is None or not metrics:
            what = f"the run {run[:80]!r} has no measured values" if base else f"there is no run {run[:80]!r}"
            raise Error("ND-104-25", what, fix="Choose a finished run of the list")
        metric = metric or next((one for one in metrics if one.endswith(".p99")), metrics[0])
        if metric not in metrics:
            fix = f"There are {', '.join(metrics)}"
            raise Error("ND-104-25", f"the run has no metric {metric[:80]!r}", at="metric", fix=fix)
        values = store.spreads(metric)
    found = [row for row in rows if _alike(row, base, named) and row.id in values][:MOST][::-1]
    return {
        "run": run,
        "name": base.name,
        "target": base.subject.target,
        "named": named,
        "metric": metric,
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
    return run_views.row(row) | {
        "value": units.show(spread.mean, unit),
        "spread": units.span(units.show(spread.least, unit), units.show(spread.most, unit))
        if spread.trials > 1
        else None,
    }


def _chart(rows: list[Row], values: dict[str, Spread], metric: str) -> dict[str, Any]:
    found = [
        (float(i), values[row.id].mean, "valid" if row.valid else "invalid") for i, row in enumerate(rows, 1)
    ]
    one = points(name_of(metric), M("Run"), "id", found, KINDS, joined=["valid"])
    return chart("trend", name_of(metric), units.unit_of(metric), [one])


async def _answer(request: Request) -> Any:
    run, query = str(request.path_params["run"]), request.query_params
    return await asyncio.to_thread(trend, run, query.get("metric", ""), query.get("named") == "1")


ROUTES = (("/api/trend/{run}", _answer),)
"""Path, and what answers."""
