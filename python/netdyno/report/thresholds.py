"""The table of thresholds: what fails first, what passes folded, and each value drawn beside its limit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from netdyno.core.result import Result, ThresholdResult
from netdyno.report import units
from netdyno.report.table import Cell, Column, Table, number
from netdyno.report.text import Data, M, Msg
from netdyno.report.verdict import margin, name_of
from netdyno.stats import percentile
from netdyno.stats.metric import GroupMetric


@dataclass(frozen=True)
class JudgedThresholds:
    """Thresholds of one kind: all that do not pass, or all that do."""

    table: Table
    bullets: list[Bullet | None]


@dataclass(frozen=True)
class Bullet:
    """A value against its bound, in units of the drawing's width (0 to 100)."""

    value: float
    bound: float
    low: float | None
    high: float | None
    kind: str
    passed: bool


def bullet(t: ThresholdResult) -> Bullet | None:
    """The drawing of a threshold; the bound stands at two thirds, what is beyond the end is cut there."""
    if t.value is None or t.value == t.bound == 0:
        return None
    span = t.bound * 1.5 if t.bound > 0 else max(t.value * 1.2, 1.0)

    def at(x: float) -> float:
        return round(min(100.0, max(0.0, 100 * x / span)), 2)

    low, high = t.interval or (None, None)
    return Bullet(
        at(t.value),
        at(t.bound),
        None if low is None else at(low),
        None if high is None else at(high),
        t.kind,
        t.passed,
    )


def judged(result: Result) -> tuple[JudgedThresholds, JudgedThresholds]:
    """Thresholds that fail, followed by those that are not judged, and those that pass."""
    failed = sorted((t for t in result.thresholds if not t.passed), key=lambda t: not t.failed)
    passed = [t for t in result.thresholds if t.passed]
    return (
        JudgedThresholds(_table(M("Thresholds that do not pass"), failed), [bullet(t) for t in failed]),
        JudgedThresholds(_table(M("Thresholds that pass"), passed), [bullet(t) for t in passed]),
    )


def limit(t: ThresholdResult) -> str:
    """A limit as people write it: `≤ 5 ms`."""
    signs = ("<", ">") if t.strict else ("≤", "≥")
    sign = signs[t.kind == "min"]
    return f"{sign}\u00a0{units.exact(units.show(t.bound, units.unit_of(t.metric)))}"


def so_far(thresholds: Sequence[ThresholdResult]) -> Table:
    """Each condition with its value in the trial under way; percentiles are estimates."""
    whole = _table(M("Thresholds so far"), thresholds)
    # an interval takes repetitions
    table = whole.keep(True, True, True, True, False, False, True)
    for t, cells in zip(thresholds, table.rows, strict=True):
        if t.value is None:
            cells[-1] = Cell(M("not known yet"), None)
        elif percentile.percent(GroupMetric.parse(t.metric).stat) is not None:
            cells[3] = replace(cells[3], text=f"≈\u00a0{cells[3].text}")
    return table


def _table(caption: Msg, thresholds: Sequence[ThresholdResult]) -> Table:
    """Each condition with its value, interval and number of repetitions."""
    table = Table(
        caption,
        [
            Column(M("Pass"), numeric=False),
            Column(M("Condition"), numeric=False),
            Column(M("Limit")),
            Column(M("Value")),
            Column(M("Interval over the repetitions")),
            Column(M("n")),
            Column(M("Margin"), numeric=False),
        ],
    )
    for t in thresholds:
        unit = units.unit_of(t.metric)
        name = name_of(t.metric)
        passes = Cell(M("yes"), 1, mark="good") if t.passed else Cell(M("no"), 0, mark="bad")
        if t.unshown:
            passes = Cell(M("not shown"), 0, mark="bad")
        if t.value is None:
            passes = Cell(M("not judged"), 0)
        interval = Cell(units.NONE)
        if t.interval is not None:
            low, high = (units.show(max(0.0, x), unit) for x in t.interval)
            interval = number(
                units.span(low, high),
                t.interval[0],
                note=M("{confidence} confidence", confidence=units.exact(units.percent(t.confidence))),
            )
        code = f"{t.leg} / {t.metric}" if t.leg else t.metric
        table.add(
            passes,
            Cell(name, t.metric, Data(code) if not isinstance(name, Data) else None),
            number(limit(t), t.bound),
            number(units.show(t.value, unit), t.value),
            interval,
            number(str(t.n), t.n),
            Cell(margin(t) or "", None),
        )
    return table
