"""Two sides over pairs of trials: effects with their intervals, counters, what was lost, every pair."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from netdyno.report import units
from netdyno.report.change import MARKS, ends, least, measured, plot_position, shift, words
from netdyno.report.metric_names import metric_name
from netdyno.report.page import Download
from netdyno.report.points import Trial, chart, points
from netdyno.report.quantity import scale, with_unit
from netdyno.report.table import Cell, Column, Table, data, number
from netdyno.report.text import Data, M, Msg


@dataclass(frozen=True)
class Interval:
    """Places on a line whose middle is no change and whose ends are 0 and 100; logarithmic."""

    low: float
    high: float
    at: float
    unseen: tuple[float, float] | None
    """What so many pairs could not have told from nothing."""
    mark: str


@dataclass(frozen=True)
class Block:
    """One comparison: a table whose last column is drawn, the counters of its mechanism, its pairs."""

    name: str
    title: Msg | Data
    about: Msg | Data
    table: Table
    intervals: list[Interval | None]
    counters: Table
    charts: str
    """Where its charts stand in the page's data."""


@dataclass(frozen=True)
class Row:
    """One metric on one bench, as both documents have it."""

    bench: str
    metric: str
    found: Mapping[str, Any] | None
    pairs: Sequence[Sequence[float]]
    paper: str = ""
    inside: bool | None = None
    """Whether the paper's change lies inside the interval."""

    @property
    def label(self) -> str:
        """What it is called."""
        return f"{self.bench} {self.metric}".strip()

    @property
    def title(self) -> Msg | Data:
        """The same in the page's language, where the metric alone says it."""
        return Data(self.label) if self.bench else metric_name(self.metric)


def lost(found: Mapping[str, Any]) -> list[Msg]:
    """What became of the pairs that do not count, and what was measured again."""
    gone = [
        M("{n} pair lost to {what}.", n="1", what=Data(what))
        if count == 1
        else M("{n} pairs lost to {what}.", n=str(count), what=Data(what))
        for what, count in found.get("lost", {}).items()
    ]
    return (
        unequal(found)
        + gone
        + [
            M("{n} trial measured again, lost to {what}.", n="1", what=Data(what))
            if count == 1
            else M("{n} trials measured again, lost to {what}.", n=str(count), what=Data(what))
            for what, count in found.get("again", {}).items()
        ]
    )


def mechanism(found: Mapping[str, Any]) -> list[Msg]:
    """Whether counters tell how a difference came about."""
    names = [c["name"] for c in found["counters"] if c["moved"]] or [c["name"] for c in found["counters"]]
    what = Data(", ".join(names))
    said = {
        "observed": M("Mechanism observed: {counters} moved.", counters=what),
        "not observable": M(
            "Mechanism not observable: no counter of it is known or was read, or too few pairs tell."
        ),
        "contradicted": M(
            "Mechanism contradicted: its counters moved alike with A and B, or the wrong way ({counters}).",
            counters=what,
        )
        if any(c["a"] or c["b"] for c in found["counters"])
        else M("Mechanism contradicted: none of its counters moved ({counters}).", counters=what),
    }
    one = said.get(str(found.get("mechanism")))
    return [one] if one else []


def unequal(found: Mapping[str, Any]) -> list[Msg]:
    """How many trials each setting lost, where that makes a comparison invalid."""
    if not found.get("unequal"):
        return []
    (a, b), (of_a, of_b) = found["discards"]["discarded"], found["discards"]["trials"]
    return [
        M("{b} of {of_b} trials with the setting were discarded, {a} of {of_a} without it.",
          b=str(b), of_b=str(of_b), a=str(a), of_a=str(of_a))
    ]  # fmt: skip


def effects(
    place: int,
    title: Msg | Data,
    about: Msg | Data,
    rows: Sequence[Row],
    sides: tuple[str, str],
    counters: Sequence[Mapping[str, Any]],
    charts: dict[str, list[dict[str, Any]]],
    noise: Mapping[str, Mapping[str, Any]] | None = None,
) -> Block:
    """A comparison; its charts go to those of the page."""
    table = Table(
        M("Effect on each metric"),
        [
            Column(M("Metric"), numeric=False), Column(Data(sides[0])), Column(Data(sides[1])),
            Column(M("Change")), Column(M("p (Holm)")), Column(M("Noise")),
            Column(M("Minimum detectable effect")),
            Column(M("Finding"), numeric=False), Column(M("In the paper"), numeric=False),
            Column(M("Paper's change inside our interval"), numeric=False),
            Column(M("Interval"), numeric=False),
        ],
    )  # fmt: skip
    for row in rows:
        table.add(*_cells(row, (noise or {}).get(row.metric)))
    papers = any(row.paper for row in rows)
    table = table.keep(*[True] * 5, bool(noise), True, True, papers, papers, True)
    where = f"pairs-{place}"
    charts[where] = [_pairs(f"{where}-{i}", row, sides) for i, row in enumerate(rows) if row.pairs]
    name = f"block-{place}"
    return Block(name, title, about, table, _intervals(rows), _mechanism(counters, sides), where)


def _cells(row: Row, noise: Mapping[str, Any] | None) -> list[Cell]:
    first = Cell(row.title, row.label)
    inside = Cell(units.NONE) if row.inside is None else Cell(M("yes") if row.inside else M("no"), row.inside)
    paper = [Cell(Data(row.paper), row.paper), inside]
    if row.found is None:
        none = number(units.NONE, None)
        return [first, *[none] * 6, Cell(M("too few pairs"), 0), *paper, Cell("", None)]
    e, unit = row.found["effect"], row.found["metric"]["unit"]
    spread, seen = noise["spread"] if noise else None, row.found["detectable"]
    few = row.found.get("least_count")
    return [
        first,
        number(measured(e["a"], e["a_sd"], unit), e["a"]),
        number(measured(e["b"], e["b_sd"], unit), e["b"]),
        Cell(shift(row.found), e["change"], ends(row.found) or None),
        number(units.significant(row.found["p_holm"], 2), row.found["p_holm"]),
        number(units.percent(spread) if spread is not None else units.NONE, spread),
        number(least(seen) if few is None else f"±{units.THIN}{units.significant(few, 2)}", few or seen),
        Cell(words(row.found["verdict"]), row.found["verdict"], mark=MARKS.get(row.found["verdict"], "")),
        *paper,
        Cell("", None),
    ]


def _intervals(rows: Sequence[Row]) -> list[Interval | None]:
    """All of a table on one scale; what is no share of anything is not drawn."""
    found = [_logs(row.found) for row in rows]
    reach = max([math.log(1.1), *(abs(x) for one in found if one for x in one[:3])]) * 1.05

    def x(value: float) -> float:
        return round(50 + 50 * max(-1.0, min(1.0, value / reach)), 2)

    drawn: list[Interval | None] = []
    for row, one in zip(rows, found, strict=True):
        if one is None or row.found is None:
            drawn.append(None)
            continue
        low, high, at, unseen = one
        band = (x(-unseen), x(unseen)) if unseen is not None else None
        drawn.append(Interval(x(low), x(high), x(at), band, MARKS.get(row.found["verdict"], "doubt")))
    return drawn


def _logs(found: Mapping[str, Any] | None) -> tuple[float, float, float, float | None] | None:
    if found is None or not (e := found["effect"])["interval"] or (e["absolute"] and e["a"] <= 0):
        return None
    per = e["a"] if e["absolute"] else 1.0

    low, high = e["interval"]
    seen = found["detectable"]
    return (
        plot_position(low / per),
        plot_position(high / per),
        plot_position(e["change"] / per),
        None if seen is None else math.log1p(seen),
    )


def _mechanism(counters: Sequence[Mapping[str, Any]], sides: tuple[str, str]) -> Table:
    table = Table(
        M("Counters of the mechanism"),
        [
            Column(M("Counter"), numeric=False), Column(Data(sides[0])), Column(Data(sides[1])),
            Column(M("p")), Column(M("Moved"), numeric=False),
        ],
        note=M(
            "Means of a trial. The effect decides the finding; a counter that moved shows how it came about."
        ),
    )  # fmt: skip
    for one in counters:
        if not (one["a"] or one["b"]):
            continue
        # that a counter moved is neither good nor bad
        moved = Cell(M("yes"), 1) if one["moved"] else Cell(M("no"), 0)
        table.add(
            data(f"{one.get('bench', '')} {one['name']}".strip()),
            number(with_unit(one["a"], ""), one["a"]),
            number(with_unit(one["b"], ""), one["b"]),
            number(units.significant(one["p"], 2), one["p"]),
            moved,
        )
    return table


def _pairs(name: str, row: Row, sides: tuple[str, str]) -> dict[str, Any]:
    """Both trials of each pair, in the order of the pairs."""
    unit = row.found["metric"]["unit"] if row.found else ""
    factor, own = scale(unit)
    kinds = {"a": (Data(sides[0]), 3), "b": (Data(sides[1]), 0)}
    found: list[Trial] = [
        (float(i), value * factor, side)
        for i, pair in enumerate(row.pairs, 1)
        for side, value in zip("ab", pair, strict=True)
    ]
    return chart(name, row.title, own, [points(row.title, M("Pair"), "id", found, kinds)])


def pairs_csv(name: str, sides: tuple[str, str], rows: Sequence[Row]) -> Download:
    """Every pair as a line, for other programs."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["bench", "metric", "unit", "pair", *sides])
    for row in rows:
        unit = row.found["metric"]["unit"] if row.found else ""
        for i, (a, b) in enumerate(row.pairs, 1):
            writer.writerow([row.bench, row.metric, unit, i, a, b])
    return Download(f"{name}.csv", "text/csv", text.getvalue(), M("both trials of each pair, a line each"))
