"""What a search found of several legs, beside each other: a table and a plot over frame size."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from netdyno.core.search import SearchFinding, SearchPart, SearchReport
from netdyno.report import units
from netdyno.report.charts import line, view
from netdyno.report.points import chart
from netdyno.report.table import Cell, Column, Table, data, number
from netdyno.report.text import Data, M, Msg, label

COLORS, LINE = 6, 3
"""Colours of the page; grey is the line rate's."""


def legs(search: SearchReport) -> list[str]:
    """The legs that were searched; none where there was only one."""
    return list(dict.fromkeys(part.leg for part in search.parts if part.leg))


def size_head(search: SearchReport) -> Msg:
    """What the sizes of its parts are of."""
    return M("Object") if any(part.per_connection is not None for part in search.parts) else M("Frame size")


def table(search: SearchReport, unit: str) -> Table:
    """Of each frame size what each leg carries, by the first goal."""
    names = legs(search)
    line_rate = any(part.line for part in search.parts)
    about = M("Line rate is the capacity of the link; loads over in-memory cables are not limited by it.")
    made = Table(
        M("Legs beside each other"),
        [
            Column(size_head(search), numeric=False),
            *([Column(M("Line rate"))] if line_rate else []),
            *(Column(Data(name)) for name in names),
        ],
        note=about if line_rate else None,
    )
    for size, parts in by_size(search).items():
        rate = next((part.line for part in parts.values() if part.line), None)
        first = [number(units.show(rate, unit), rate)] if line_rate else []
        made.add(data(size), *first, *(_cell(parts.get(name), unit) for name in names))
    return made


def _cell(part: SearchPart | None, unit: str) -> Cell:
    found = part.findings[0] if part and part.findings else None
    if found is None or found.load is None:
        return Cell(units.NONE)
    note = Data(units.show(found.bits, "bit/s")) if found.bits else None
    return number(units.show(found.load, unit), found.load, note=note)


def by_size(search: SearchReport) -> dict[str, dict[str, SearchPart]]:
    """The parts by size, and there by leg."""
    found: dict[str, dict[str, SearchPart]] = {}
    for part in search.parts:
        if part.leg:
            found.setdefault(part.size or units.NONE, {})[part.leg] = part
    return found


def plot(search: SearchReport, unit: str) -> dict[str, Any] | None:
    """Over frame size, in bits and in frames; with one size only, over the legs."""
    sizes = [parts for parts in by_size(search).values() if any(part.frame for part in parts.values())]
    views = [_over_size(search, sizes, bits=True), _over_size(search, sizes, bits=False)]
    if len(sizes) < 2:
        views = [_over_legs(search, unit)]
    views = [one for one in views if one["lines"]]
    return chart("legs", M("Legs beside each other"), unit, views) if views else None


def _over_size(search: SearchReport, sizes: Sequence[dict[str, SearchPart]], *, bits: bool) -> dict[str, Any]:
    ordered = sorted(sizes, key=lambda parts: next(part.frame or 0.0 for part in parts.values()))
    xs = [next(part.frame for part in parts.values()) for parts in ordered]

    def scale(part: SearchPart | None) -> float:
        return (part.frame or 0.0) * 8 if bits and part else 1.0

    lines = []
    rates = [next((part for part in parts.values() if part.line), None) for parts in ordered]
    if any(rates):
        values = [one.line * scale(one) if one and one.line else None for one in rates]
        lines.append(line(M("Line rate"), values, LINE, 1))
    colors = [color for color in range(COLORS) if color != LINE]
    for place, name in enumerate(legs(search)):
        row = [parts.get(name) for parts in ordered]
        found = [_first(part) for part in row]
        values = [
            one.load * scale(part) if one and one.load else None for one, part in zip(found, row, strict=True)
        ]
        if any(value is not None for value in values):
            color = colors[place % len(colors)]
            lines.append(
                line(
                    Data(name),
                    values,
                    color,
                    points=True,
                    joined=True,
                    **_ends(found, [scale(p) for p in row]),
                )
            )
    text: Msg = M("bit/s") if bits else M("Frames per second")
    about = {"x": xs, "xlabel": label(M("Frame size")), "xunit": "count", "xlog": False}
    return {**view(text, lines), **about, "unit": "bit/s" if bits else "/s"}


def _over_legs(search: SearchReport, unit: str) -> dict[str, Any]:
    parts = [part for part in search.parts if part.leg]
    found = [_first(part) for part in parts]
    values = [one.load if one else None for one in found]
    known = any(value is not None for value in values)
    lines = [line(M("Found"), values, 0, points=True, **_ends(found, [1.0] * len(parts)))] if known else []
    return {
        **view(M("Found"), lines), "x": [float(i) for i in range(len(parts))], "xlabel": label(M("Leg")),
        "xunit": "count", "xlog": False, "names": [part.leg for part in parts],
    }  # fmt: skip


def _first(part: SearchPart | None) -> SearchFinding | None:
    return part.findings[0] if part and part.findings else None


def _ends(found: Sequence[SearchFinding | None], scales: Sequence[float]) -> dict[str, Any]:
    """The interval of each."""
    spans = [one.interval if one and one.load is not None else None for one in found]
    if not any(spans):
        return {}
    return {
        end: [span[i] * scale if span else None for span, scale in zip(spans, scales, strict=True)]
        for i, end in enumerate(("low", "high"))
    }
