"""Latency at shares of what a search found: a table, and a plot over the legs."""

from __future__ import annotations

from typing import Any

from netdyno.core.search import SearchPart, SearchReport
from netdyno.report import units
from netdyno.report.points import chart, points
from netdyno.report.table import Column, Table, data, number
from netdyno.report.text import Data, M, Msg

STATS = ("p50", "p99", "p999", "max")
COLORS = 6
"""Colours of the page."""


def title() -> Msg:
    """Of table and plot."""
    return M("Latency at shares of what was found")


def table(search: SearchReport, unit: str) -> Table:
    """A row for each delay at each share."""
    heads = (M("Median"), M("p99"), M("p99.9"), M("Max"), M("Loss"), M("Trials"))
    made = Table(
        title(),
        [
            Column(M("Frame size"), numeric=False), Column(M("Share")), Column(M("Load")),
            Column(M("Delay"), numeric=False), *map(Column, heads),
        ],
        note=M(
            "Each figure is the mean over the trials at that load, which are longer than those of the "
            "search. ! marks figures of which more than a fifth may be generator lateness."
        ),
    )  # fmt: skip
    for part in search.parts:
        for one in part.held:
            for name, delay in one.delays.items():
                made.add(
                    data(part.name),
                    number(units.percent(one.share), one.share),
                    number(units.show(one.load, unit), one.load),
                    data(name),
                    *(
                        number(
                            units.duration(delay.get(stat)) + "!" * (stat in one.late.get(name, {})),
                            delay.get(stat),
                        )
                        for stat in STATS
                    ),
                    number(units.percent(one.loss), one.loss),
                    number(str(one.trials), one.trials),
                )
    return made


def plot(search: SearchReport) -> dict[str, Any] | None:
    """A view for each frame size: median and 99th percentile of the first delay, by leg and share."""
    sizes: dict[str, list[SearchPart]] = {}
    for part in search.parts:
        if part.held:
            sizes.setdefault(part.size if part.leg else part.name, []).append(part)
    views = [_view(size, parts) for size, parts in sizes.items()]
    return chart("held", title(), "ns", views, log=True) if views else None


def _view(size: str, parts: list[SearchPart]) -> dict[str, Any]:
    kinds: dict[str, tuple[Msg | Data, int]] = {}
    found = []
    for place, part in enumerate(parts):
        for one in part.held:
            delay = next(iter(one.delays.values()), {})
            share = units.percent(one.share)
            for stat, text in (
                ("p50", M("{share}, median", share=share)),
                ("p99", M("{share}, p99", share=share)),
            ):
                if stat in delay:
                    key = f"{one.share} {stat}"
                    kinds.setdefault(key, (text, len(kinds) % COLORS))
                    found.append((float(place), delay[stat], key))
    names = [part.leg or part.name for part in parts]
    return points(Data(size), M("Leg"), "count", found, kinds, names=names)
