"""A plot for each factor: a metric over its levels, a line for each combination of the other factors."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from netdyno import units as quantities
from netdyno.core.result import Result, ThresholdResult
from netdyno.errors import Error
from netdyno.report import charts
from netdyno.report.factors import Factors, Variant, level_text
from netdyno.report.points import chart
from netdyno.report.text import Data, M, Msg, label
from netdyno.report.thresholds import limit
from netdyno.report.verdict import name_of
from netdyno.stats.metric import GroupMetric

MOST = 24
"""Lines that can be told apart; the downloads have all."""


def factor_charts(found: Factors, result: Result) -> list[dict[str, Any]]:
    """One for each factor; the metric is chosen in the plot, what was judged first."""
    limits = {t.metric: t for t in result.thresholds}
    return [_factor(i, path, found, limits) for i, path in enumerate(found.levels)]


def notes(found: Factors) -> list[Msg | None]:
    """What the plots leave out."""
    return [_cut(found), _left_out(found)]


def _cut(found: Factors) -> Msg | None:
    most = max(len(_series(found, path)) for path in found.levels)
    if most <= MOST:
        return None
    return M("The plot shows {n} of {total} lines; factors.csv has all.", n=str(MOST), total=str(most))


def _left_out(found: Factors) -> Msg | None:
    gone = sum(v.invalid for v in found.variants)
    total = gone + sum(v.valid for v in found.variants)
    if not gone:
        return None
    return M("{n} of {total} repetitions are not valid and left out.", n=str(gone), total=str(total))


def short(path: str, among: Iterable[str]) -> str:
    """The end of a factor's path, as long as it takes to tell it from the others."""
    parts = path.split(".")
    for size in range(1, len(parts)):
        end = ".".join(parts[-size:])
        if sum(one == end or one.endswith("." + end) for one in among) == 1:
            return end
    return path


def words(path: str) -> str:
    """A factor's name in words: `http.keep_alive` is `http keep alive`."""
    return path.replace("_", " ").replace(".", " ")


def _factor(place: int, path: str, found: Factors, limits: Mapping[str, ThresholdResult]) -> dict[str, Any]:
    axis = places(found.levels[path])
    series = list(_series(found, path).items())[:MOST]
    views = [v for m in found.metrics if (v := _view(m, path, found, series, axis, limits))]
    return chart(
        f"factor-{place}", M("Over {factor}", factor=Data(words(short(path, found.levels)))), "count", views
    )


def _series(found: Factors, path: str) -> dict[str, list[Variant]]:
    """Variants by what they have beside this factor's level."""
    several = len({v.leg for v in found.variants}) > 1
    series: dict[str, list[Variant]] = {}
    for variant in found.variants:
        if path in variant.levels:
            others = [
                f"{words(p.rsplit('.', 1)[-1])} {level_text(variant.levels.get(p))}"
                for p in found.levels
                if p != path
            ]
            series.setdefault(", ".join(([variant.leg] if several else []) + others), []).append(variant)
    return series


def _view(
    metric: GroupMetric,
    path: str,
    found: Factors,
    series: Sequence[tuple[str, list[Variant]]],
    axis: Axis,
    limits: Mapping[str, ThresholdResult],
) -> dict[str, Any] | None:
    xs, ticks = axis.at, axis.ticks
    order = sorted(range(len(xs)), key=lambda i: xs[i])
    levels = [found.levels[path][i] for i in order]
    lines = []
    for number, (name, variants) in enumerate(series):
        cells = [next((v.cells[str(metric)] for v in variants if v.levels[path] == x), None) for x in levels]
        if not any(cell and cell.values for cell in cells):
            continue
        lines.append(
            charts.line(
                Data(name) if name else M("Mean and interval; points are repetitions"),
                [cell.mean if cell else None for cell in cells],
                number % 6,
                number // 6,
                points=True,
                joined=True,
                low=[cell.interval[0] if cell and cell.interval else None for cell in cells],
                high=[cell.interval[1] if cell and cell.interval else None for cell in cells],
                dots=[[v for _, v in cell.values] if cell else [] for cell in cells],
            )
        )
    if not lines:
        return None
    every = [v for one in lines for dots in one["dots"] for v in dots]
    named = words(short(path, found.levels))
    view = charts.view(name_of(str(metric)), lines) | {
        "x": [xs[i] for i in order], "ticks": [ticks[i] for i in order], "xlabel": label(Data(named)),
        "xunit": "number", "xlog": axis.log, "even": axis.even, "unit": metric.unit,
        "log": min(every) > 0 and max(every) > 20 * min(every),
    }  # fmt: skip
    if t := limits.get(str(metric)):
        view["limit"] = {"value": t.bound, "label": M("limit {limit}", limit=limit(t)).json()}
    return view


@dataclass(frozen=True)
class Axis:
    """Where each level stands and what is written there."""

    at: list[float]
    ticks: list[str]
    log: bool = False
    even: bool = False
    """Beside each other, as what is no number."""


def places(levels: Sequence[Any]) -> Axis:
    """The axis of a factor.

    Numbers and quantities stand where they are; anything else has places beside each other.
    """
    ticks = [level_text(level) for level in levels]
    numbers = [_number(level) for level in levels]
    at = [n for n in numbers if n is not None]
    if len(at) < len(numbers) or len(set(at)) < len(at):
        return Axis([float(i) for i in range(len(levels))], ticks, even=True)
    return Axis(at, ticks, log=_factors(sorted(at)))


def _number(level: Any) -> float | None:
    if isinstance(level, bool) or not isinstance(level, (int, float, str)):
        return None
    try:
        value = quantities.bound(level)
    except Error:
        return None
    return value if math.isfinite(value) else None


def _factors(at: Sequence[float]) -> bool:
    """Whether the steps are more alike as factors than as differences."""
    if at[0] <= 0 or len(at) < 3:
        return at[0] > 0 and at[-1] > 10 * at[0]
    steps = [b - a for a, b in pairwise(at)]
    ratios = [math.log(b / a) for a, b in pairwise(at)]
    return max(ratios) / min(ratios) < max(steps) / min(steps)
