"""The page of two runs beside each other: each metric with its change, interval and what is known of it."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from netdyno import escape
from netdyno.core.result import Leg, Result
from netdyno.report import units
from netdyno.report.change import least, plot_position, ratio
from netdyno.report.comparison import Interval
from netdyno.report.page import Download, when
from netdyno.report.points import Trial, chart, points
from netdyno.report.quantity import scale, with_unit
from netdyno.report.render import one_file
from netdyno.report.search import UNITS
from netdyno.report.study import StudyPage
from netdyno.report.table import Cell, Column, Table, number
from netdyno.report.text import Data, M, Msg
from netdyno.report.verdict import name_of
from netdyno.stats.metric import GroupMetric
from netdyno.stats.runs import loads
from netdyno.stats.searches import FoundChange
from netdyno.stats.searches import document as document_of
from netdyno.stats.subject import Subject, subject
from netdyno.stats.unpaired import Difference

OURS = ("ns", "ratio", "/s", "count")
"""Units of what the core measures."""
CHARTS = 8
"""Plots of a leg: of what differs first."""


@dataclass(frozen=True)
class Part:
    """Rows of a leg under one drawing."""

    table: Table
    intervals: list[Interval | None]


@dataclass(frozen=True)
class Side:
    """One leg of both runs."""

    name: str
    title: Msg | Data
    differing: Part
    others: Part
    charts: str


@dataclass(frozen=True)
class Runs(StudyPage):
    """The template's context."""

    sides: list[Side] = field(default_factory=list)
    notices: list[Msg] = field(default_factory=list)
    searches: Table | None = None
    """What two searches found."""


LegPairs = Sequence[tuple[Leg, Leg, Sequence[Difference]]]


def render(
    a: Result,
    b: Result,
    legs: LegPairs,
    edges: Sequence[FoundChange],
    differences: Sequence[str],
    level: float,
) -> str:
    """The page as one file."""
    return one_file("runs.html.j2", build(a, b, legs, edges, differences, level))


def build(
    a: Result,
    b: Result,
    legs: LegPairs,
    edges: Sequence[FoundChange],
    differences: Sequence[str],
    level: float,
) -> Runs:
    """Its contents."""
    every = [(x, c) for x, _, found in legs for c in found]
    several = len(legs) > 1
    said = [_difference_line(x.name if several else "", c) for x, c in every if c.significant]
    invalid = [run.id for run in (a, b) if not run.valid]
    charts: dict[str, list[dict[str, Any]]] = {}
    sides = [_side(i, one, charts) for i, one in enumerate(legs)]
    document = {
        "a": a.id, "b": b.id, "level": level, "environment": list(differences), "invalid": invalid,
        "legs": {x.name: [asdict(c) for c in found] for x, _, found in legs},
        "searches": [document_of(one) for one in edges],
    }  # fmt: skip
    downloads = [
        Download("comparison.json", "application/json", json.dumps(document, indent=1) + "\n",
                 M("each metric with its test and interval")),
    ]  # fmt: skip
    if legs:
        values = _values(legs)
        downloads.append(Download("repetitions.csv", "text/csv", values, M("each metric in each repetition")))
    about = {"A": subject(a), "B": subject(b)}
    facts = [*_facts(M("A"), a, about["A"]), *_facts(M("B"), b, about["B"])]
    apart = _apart(a, b, legs)
    state, verdict, lead = (
        _verdict_of_searches(edges, bool(invalid))
        if edges
        else _verdict([c for _, c in every], bool(invalid))
    )
    if apart and not invalid:
        state, verdict = "invalid", M("Not comparable")
        lead = M("The intended loads of A and B differ, so neither run is ranked.")
    silent = [side for side, one in about.items() if one.silent]
    if silent == ["B"] and not invalid:
        state, verdict, lead = "fail", M("Worse"), M("{run} delivered nothing: all of it failed.", run="B")
    elif silent and not invalid:
        state, verdict = "invalid", M("Not comparable")
        lead = M("{run} delivered nothing: all of it failed.", run=silent[0])
    name = f"{a.name} / {b.name}" if a.name != b.name else a.name
    return Runs(
        name,
        facts,
        state,
        verdict,
        lead,
        said,
        charts,
        downloads,
        sides,
        [*apart, *_notices(a, b, invalid, differences), *_differing(about)],
        _searches(edges) if edges else None,
    )


def _facts(side: Msg, run: Result, about: Subject) -> list[tuple[Msg, str]]:
    """What a run is about, beside its id."""
    found = [(side, run.id), (M("Started"), when(run.started))]
    if about.target:
        found.append((M("Target"), about.target))
    if about.rate is not None:
        found.append((M("Load"), units.rate(about.rate)))
    if about.devices:
        found.append((M("Devices"), units.count(about.devices)))
    if about.duration:
        found.append((M("Duration"), units.exact(units.seconds(about.duration))))
    return found


def _differing(about: Mapping[str, Subject]) -> list[Msg]:
    """That two servers are compared, and what failed."""
    a, b = about["A"].target, about["B"].target
    said = (
        [M("The targets differ: A loads {a}, B loads {b}.", a=Data(a), b=Data(b))]
        if a and b and a != b
        else []
    )
    if about["A"].errors == about["B"].errors:
        return said
    return said + [
        M("{run}: {n} errors.", run=side, n=units.count(one.errors))
        for side, one in about.items()
        if one.errors
    ]


def _apart(a: Result, b: Result, legs: LegPairs) -> list[Msg]:
    """Legs whose intended loads differ, with both."""
    if "run" not in (a.kind, b.kind):
        return []
    found = [(x.name, both) for x, y, _ in legs if (both := loads(x, y))]
    return [
        M("{leg}: intended load of A {a}, of B {b}.", leg=Data(leg), a=Data(both[0]), b=Data(both[1]))
        for leg, both in found
    ]


def _verdict_of_searches(edges: Sequence[FoundChange], invalid: bool) -> tuple[str, Msg, Msg]:
    if invalid:
        return "invalid", M("Not valid"), M("One of the runs is not valid, so the change is not judged.")
    better, worse = (sum(one.better is way for one in edges) for way in (True, False))
    count = {"better": str(better), "worse": str(worse), "total": str(len(edges))}
    if better and worse:
        return (
            "invalid",
            M("A trade-off"),
            M("B carries more at {better} of {total} goals and less at {worse}.", **count),
        )
    if worse:
        return "fail", M("Worse"), M("B carries less at {worse} of {total} goals.", **count)
    if better:
        return "pass", M("Better"), M("B carries more at {better} of {total} goals.", **count)
    if not any(one.claimed for one in edges):
        return "invalid", M("No claim"), M("Neither search has an interval to judge by.")
    return "same", M("No difference shown"), M("The intervals of both searches overlap at every goal.")


def _searches(edges: Sequence[FoundChange]) -> Table:
    table = Table(
        M("What the searches found"),
        [
            Column(M("Frame size"), numeric=False), Column(M("Goal"), numeric=False), Column(M("A")),
            Column(M("B")), Column(M("Change")), Column(M("Interval of A")), Column(M("Interval of B")),
            Column(M("Finding"), numeric=False),
        ],
    )  # fmt: skip
    words = {True: M("better"), False: M("worse"), None: M("no difference shown")}
    for one in edges:
        unit = UNITS.get(one.unit, "count")
        mark = {True: "good", False: "bad", None: ""}[one.better]
        finding = words[one.better] if one.claimed else M("no interval: no claim")
        table.add(
            Cell(Data(one.part), one.part),
            Cell(Data(one.goal.upper()), one.goal),
            number(units.show(one.a, unit), one.a),
            number(units.show(one.b, unit), one.b),
            number(ratio(one.change) if one.change is not None else units.NONE, one.change),
            _edge(one.a_interval, unit),
            _edge(one.b_interval, unit),
            Cell(finding, mark, mark=mark),
        )
    return table


def _edge(interval: tuple[float, float] | None, unit: str) -> Cell:
    if interval is None:
        return Cell(units.NONE)
    low, high = interval
    if math.isinf(high):
        return number(f"≥ {units.show(low, unit)}", low)
    return number(units.span(units.show(low, unit), units.show(high, unit)), low)


def _notices(a: Result, b: Result, invalid: Sequence[str], differences: Sequence[str]) -> list[Msg]:
    said = [M("{run} is not valid: do not draw conclusions from it.", run=Data(run)) for run in invalid]
    if a.id == b.id:
        said.append(M("Both are the same run."))
    if differences:
        said.append(M("The environments differ in {what}.", what=Data(", ".join(differences))))
    return said


def _verdict(found: Sequence[Difference], invalid: bool) -> tuple[str, Msg, Msg]:
    better = sum(c.better is True for c in found)
    worse = sum(c.better is False for c in found)
    if invalid:
        return "invalid", M("Not valid"), M("One of the runs is not valid, so the change is not judged.")
    count = {"better": str(better), "worse": str(worse), "total": str(len(found))}
    if better and worse:
        lead = M("B is better in {better} of {total} metrics and worse in {worse}.", **count)
        return "invalid", M("A trade-off"), lead
    if worse:
        return "fail", M("Worse"), M("B is worse in {worse} of {total} metrics.", **count)
    if better:
        return "pass", M("Better"), M("B is better in {better} of {total} metrics.", **count)
    if any(c.significant for c in found):
        return "same", M("Different"), M("B differs in a metric without a better direction.")
    if all(c.p is None for c in found):
        lead = M("One trial per side cannot show the noise. Repeat both with --repeat 5.")
        return "invalid", M("No claim"), lead
    lead = M(
        "None of {total} metrics differs beyond its noise. Each row has its minimum detectable effect.",
        **count,
    )
    return "same", M("No difference shown"), lead


def _difference_line(leg: str, c: Difference) -> Msg:
    text = M("{metric}: {change} ({verdict})", metric=name_of(c.metric), change=_change(c), verdict=_word(c))
    return M("{leg}, {text}", leg=Data(leg), text=text) if leg else text


def _change(c: Difference) -> str:
    if c.change is not None:
        return ratio(c.change)
    return _value_text(c.b - c.a, c.unit)


def _value_text(value: float, unit: str) -> str:
    """In a unit of ours, or of whatever measured it."""
    return units.show(value, unit) if unit in OURS else with_unit(value, unit)


def _word(c: Difference) -> Msg:
    if c.p is None:
        return M("one trial: no claim")
    if not c.significant:
        return M("no difference shown")
    return {True: M("better"), False: M("worse"), None: M("different")}[c.better]


def _mark(c: Difference) -> str:
    return {True: "good", False: "bad", None: ""}[c.better] if c.significant else ""


def _side(place: int, one: tuple[Leg, Leg, Sequence[Difference]], charts: dict[str, Any]) -> Side:
    a, b, found = one
    order = {False: 0, True: 1, None: 2}
    differing = sorted((c for c in found if c.significant), key=lambda c: order[c.better])
    others = [c for c in found if not c.significant]
    reach = _reach(found)
    where = f"side-{place}"
    plotted = differing or others
    charts[where] = [_chart(f"{where}-{i}", c, a, b) for i, c in enumerate(plotted[:CHARTS])]
    return Side(f"leg-{place}", Data(a.name), _part(differing, reach), _part(others, reach), where)


def _part(found: Sequence[Difference], reach: float) -> Part:
    table = Table(
        M("Metrics of both runs"),
        [
            Column(M("Metric"), numeric=False), Column(M("A")), Column(M("B")), Column(M("Change")),
            Column(M("Interval of the difference")), Column(M("p (Holm)")),
            Column(M("Minimum detectable effect")), Column(M("Finding"), numeric=False),
            Column(M("Interval"), numeric=False),
        ],
    )  # fmt: skip
    for c in found:
        unit, name = c.unit, name_of(c.metric)
        interval = units.span(*(_value_text(x, unit) for x in c.interval)) if c.interval else units.NONE
        seen = c.detectable / c.a if c.detectable is not None and c.a > 0 else None
        table.add(
            Cell(name, c.metric, None if isinstance(name, Data) else Data(c.metric)),
            number(_value_text(c.a, unit), c.a, note=M("n = {n}", n=str(c.n[0]))),
            number(_value_text(c.b, unit), c.b, note=M("n = {n}", n=str(c.n[1]))),
            number(_change(c), c.change),
            number(interval, c.b - c.a),
            number(units.significant(c.p_holm, 2) if c.p_holm is not None else units.NONE, c.p_holm),
            number(least(seen), seen),
            Cell(_word(c), _mark(c), mark=_mark(c)),
            Cell("", None),
        )
    return Part(table, [_interval(c, reach) for c in found])


def _logs(c: Difference) -> tuple[float, float, float, float | None] | None:
    """Ends, middle and the least that would have shown, as they are drawn; nothing for a share of nothing."""
    if c.interval is None or c.a <= 0:
        return None
    seen = math.log1p(c.detectable / c.a) if c.detectable is not None else None
    return (
        plot_position(c.interval[0] / c.a),
        plot_position(c.interval[1] / c.a),
        plot_position((c.b - c.a) / c.a),
        seen,
    )


def _reach(found: Sequence[Difference]) -> float:
    logs = [one for c in found if (one := _logs(c))]
    return max([math.log(1.1), *(abs(x) for one in logs for x in one[:3])]) * 1.05


def _interval(c: Difference, reach: float) -> Interval | None:
    one = _logs(c)
    if one is None:
        return None

    def x(value: float) -> float:
        return round(50 + 50 * max(-1.0, min(1.0, value / reach)), 2)

    low, high, at, seen = one
    return Interval(
        x(low), x(high), x(at), (x(-seen), x(seen)) if seen is not None else None, _mark(c) or "doubt"
    )


def _chart(name: str, c: Difference, a: Leg, b: Leg) -> dict[str, Any]:
    """Each repetition of both runs."""
    factor, unit = (1.0, c.unit) if c.unit in OURS else scale(c.unit)
    found: list[Trial] = [
        (float(n), value * factor, side)
        for side, leg in (("a", a), ("b", b))
        for n, value in _each(c.metric, leg)
    ]
    kinds = {"a": (M("A"), 3), "b": (M("B"), 0)}
    title = name_of(c.metric)
    return chart(name, title, unit, [points(title, M("Repetition"), "id", found, kinds)])


def _each(name: str, leg: Leg) -> Iterator[tuple[int, float]]:
    """A metric in each repetition that counts, by its number."""
    for n, r in enumerate(leg.repetitions, 1):
        if r.metrics and not r.validity.valid:
            continue
        value = (
            r.metrics[name].value
            if name in r.metrics
            else GroupMetric.parse(name).of(r)
            if r.groups
            else None
        )
        if value is not None:
            yield n, value


def _values(legs: LegPairs) -> str:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(["leg", "metric", "unit", "run", "repetition", "value"])
    for a, b, found in legs:
        for c in found:
            for side, leg in (("A", a), ("B", b)):
                for n, value in _each(c.metric, leg):
                    row = [a.name, c.metric, c.unit, side, n, value]
                    writer.writerow([escape.cell(x) for x in row])
    return out.getvalue()
