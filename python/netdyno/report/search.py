"""The section of a search: what was found at each frame size, the trials, and their plots."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from netdyno.core.result import Result
from netdyno.core.search import SearchFinding, SearchPart, SearchReport, SearchTrial, figure_unit
from netdyno.report import latency_at_load, leg_comparison, units
from netdyno.report.points import chart, points
from netdyno.report.table import Cell, Column, Table, data, number
from netdyno.report.text import Data, M, Msg

LIMITS: Mapping[str, Msg] = {
    "dut": M("the DUT"),
    "offered": M("the load offered"),
    "generator": M("the tester"),
    "connections": M("the connections"),
    "lowest": M("fails at the lowest load"),
    "lost": M("the DUT was lost"),
}
UNITS = {"frames/s": "/s", "flows/s": "/s", "messages/s": "/s", "sessions/s": "/s"} | {
    "connections/s": "/s",
    "transactions/s": "/s",
}
"""Of loads, as charts and tables write them; others are counts."""
OWN = {"back-to-back", "capacity", "tear-down"}
"""Findings that are no goals of trials."""


@dataclass(frozen=True)
class SearchView:
    """What the template shows."""

    kind: str
    legs: Table
    found: Table
    held: Table
    figures: Table
    trials: Table
    notes: list[Data] = field(default_factory=list)
    charts: list[dict[str, Any]] = field(default_factory=list)


def search_view(result: Result) -> SearchView | None:
    """The section; none where nothing was searched."""
    search = result.search
    if search is None:
        return None
    said = [Data(f"{part.name}: {note}") for part in search.parts for f in part.findings for note in f.notes]
    return SearchView(
        search.kind,
        leg_comparison.table(search, _first_unit(search)),
        _findings_table(search),
        latency_at_load.table(search, _unit(search)),
        _figures(search),
        _trials(search),
        [*said, *map(Data, search.notes)],
        _charts(search),
    )


def _unit(search: SearchReport, finding: SearchFinding | None = None) -> str:
    return UNITS.get(search.unit if finding is None else search.unit_of(finding), "count")


def _first_unit(search: SearchReport) -> str:
    """Of what legs are held beside each other by: the first finding."""
    return _unit(search, next((one for part in search.parts for one in part.findings), None))


def _findings_table(search: SearchReport) -> Table:
    heads = [M("Found"), M("bit/s"), M("Of line rate"), M("Interval of the edge")]
    table = Table(
        M("What was found"),
        [
            Column(leg_comparison.size_head(search), numeric=False),
            Column(M("Goal"), numeric=False),
            *map(Column, heads),
            Column(M("Bounded by"), numeric=False),
            Column(M("Trials")),
        ],
    )
    for part in search.parts:
        for one in part.findings:
            table.add(*_row(search, part, one))
    found = [one for part in search.parts for one in part.findings]
    has = [any(one.bits for one in found), any(one.line for one in found)]
    return table.keep(_sized(search), True, True, *has, *[True] * 3)


def _sized(search: SearchReport) -> bool:
    """Whether parts differ in their frames, or are of several legs: elsewhere their names say nothing."""
    return len(search.parts) > 1 or any(part.frame or part.object for part in search.parts)


def _row(search: SearchReport, part: SearchPart, one: SearchFinding) -> list[Cell]:
    unit = _unit(search, one)
    interval = Cell(units.NONE)
    if one.interval:
        low, high = (units.show(x, unit) for x in one.interval)
        note = M("{confidence} confidence", confidence=units.exact(units.percent(search.confidence)))
        interval = number(units.span(low, high), one.interval[0], note=note)
    apart = None
    if one.disturbed or one.short:
        apart = M("{n} more did not count", n=str(one.disturbed + one.short))
    return [
        data(part.name),
        data(one.goal.upper() if one.loss_ratio is not None else one.goal),
        number(
            units.show(one.load, unit),
            one.load,
            mark="good" if one.limit == "dut" and one.load is not None else "",
        ),
        number(units.show(one.bits, "bit/s"), one.bits),
        number(units.percent(one.line) if one.line else units.NONE, one.line),
        interval,
        Cell(LIMITS[one.limit], one.limit),
        number(str(one.trials), one.trials, note=apart),
    ]


def _figures(search: SearchReport) -> Table:
    table = Table(
        M("What was measured there"),
        [
            Column(leg_comparison.size_head(search), numeric=False),
            Column(M("Figure"), numeric=False),
            Column(M("Value")),
        ],
    )
    for part in search.parts:
        for name, value in part.figures.items():
            if name in ("trials", "load"):
                continue
            table.add(data(part.name), data(name), number(_figure(name, value), value))
    return table.keep(_sized(search), True, True)


def _figure(name: str, value: float) -> str:
    unit = figure_unit(name)
    return units.duration(value * 1e9) if unit == "s" else units.show(value, unit)


def _trials(search: SearchReport) -> Table:
    unit = UNITS.get(search.unit, "count")
    table = Table(
        M("Trials of the search"),
        [
            Column(M("Trial")),
            Column(leg_comparison.size_head(search), numeric=False),
            Column(M("Load")),
            Column(M("Sent")),
            Column(M("Lost")),
            Column(M("Loss")),
            Column(M("Goals met"), numeric=False),
            Column(M("Left out"), numeric=False),
        ],
    )
    for part in search.parts:
        for one in part.trials:
            table.add(
                number(str(one.number), one.number),
                data(part.name),
                number(units.show(one.load, unit), one.load),
                number(units.count(one.sent), one.sent),
                number(units.count(one.lost), one.lost),
                number(units.percent(one.loss), one.loss),
                data(", ".join(one.met) or units.NONE),
                data(one.why),
            )
    left_out = any(one.why for part in search.parts for one in part.trials)
    return table.keep(True, _sized(search), *[True] * 5, left_out)


def _charts(search: SearchReport) -> list[dict[str, Any]]:
    """Loss over load of a curve; else what was found over frame size; and the search, trial by trial."""
    unit = UNITS.get(search.unit, "count")
    kinds = {
        "met": (M("Every goal met"), 0),
        "failed": (M("A goal not met"), 1),
        "out": (M("Left out"), 3),
    }
    made = []
    if search.kind == "loss":
        views = [
            points(
                Data(part.name),
                M("Load"),
                unit,
                [(one.load, one.loss, "loss") for one in part.trials if one.counts],
                {"loss": (M("Loss"), 0)},
                joined=["loss"],
            )
            for part in search.parts
        ]
        made.append(chart("loss-curve", M("Loss over load"), "ratio", views))
    elif leg_comparison.legs(search):
        if plot := leg_comparison.plot(search, _first_unit(search)):
            made.append(plot)
    elif sum(bool(part.frame and part.findings) for part in search.parts) > 1:
        made.append(_over_size(search, unit))
    if len({part.object for part in search.parts if part.object}) > 1:
        made.append(_over_objects(search))
    if plot := latency_at_load.plot(search):
        made.append(plot)
    views = [
        points(
            Data(part.name),
            M("Trial"),
            "id",
            [(one.number, one.load, _kind(part, one)) for one in part.trials],
            kinds,
        )
        for part in search.parts
    ]
    made.append(chart("search-trials", M("The search, trial by trial"), unit, views))
    return [one for one in made if one["views"]]


def _kind(part: SearchPart, one: SearchTrial) -> str:
    if not one.counts:
        return "out"
    wanted = {found.goal for found in part.findings} - OWN
    return "met" if one.met and wanted <= set(one.met) else "failed"


def _over_objects(search: SearchReport) -> dict[str, Any]:
    """Throughput over the size of objects, of each leg and number of transactions of a connection."""
    shown = [
        (part.object, one.bits, _line(part))
        for part in search.parts
        for one in part.findings
        if part.object and one.bits is not None
    ]
    names = list(dict.fromkeys(name for *_, name in shown))
    kinds = {name: (Data(name), place) for place, name in enumerate(names)}
    view = points(M("Object size"), M("Object size"), "bytes", sorted(shown), kinds, joined=names)
    return chart("over-objects", M("Throughput over object size"), "bit/s", [view])


def _line(part: SearchPart) -> str:
    """What a part belongs to, but for its object."""
    return ", ".join(filter(None, (part.leg, f"{part.per_connection} × /connection")))


def _over_size(search: SearchReport, unit: str) -> dict[str, Any]:
    goals = list(dict.fromkeys(f.goal for part in search.parts for f in part.findings))
    kinds = {goal: (Data(goal.upper()), place) for place, goal in enumerate(goals)}
    shown = [
        (part.frame, one.load, one.goal)
        for part in search.parts
        for one in part.findings
        if part.frame and one.load is not None
    ]
    view = points(M("Frame size"), M("Frame size"), "count", shown, kinds, joined=goals)
    return chart("over-size", M("Found over frame size"), unit, [view])
