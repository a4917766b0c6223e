"""What the models of a trial's groups count of their own, and the figures that follow from it."""

from __future__ import annotations

from netdyno.core import models
from netdyno.core.result import Repetition
from netdyno.core.wire import GroupResult
from netdyno.report import units
from netdyno.report.table import Cell, Column, Table, data, number
from netdyno.report.text import Data, M
from netdyno.stats import percentile
from netdyno.stats.metric import THOUSAND


def own(rep: Repetition) -> Table:
    """A row for each counter and each index of the groups' models."""
    table = Table(
        M("Counters and indices of the models"),
        [
            Column(M("Group"), numeric=False),
            Column(M("Counter or index"), numeric=False),
            Column(M("Measured")),
            Column(M("Per second")),
            Column(M("Meaning"), numeric=False),
        ],
    )
    for group in rep.groups:
        for row in _rows(group, rep.phases.measure):
            table.add(data(group.name), *row)
    return table


def _rows(group: GroupResult, seconds: float) -> list[list[Cell]]:
    model, counted = models.find(group.protocol), group.measured.own
    about = {counter.name: counter.about for counter in model.counters}
    about |= {index.name: index.about for index in model.indices}
    rows = []
    for name, count in counted.items():
        rate = count / seconds if seconds else None
        shown = [number(units.count(count), count), number(units.rate(rate), rate)]
        rows.append([data(name), *shown, Cell(Data(about.get(name, "")))])
    for name, value in group.indices.items():
        shown = [number(units.percent(value), value), Cell(units.NONE)]
        rows.append([data(name), *shown, Cell(Data(about.get(name, "")))])
    return rows


def ratings(rep: Repetition) -> Table:
    """A row for each value that the groups' models measure on a scale of its own, such as MOS."""
    table = Table(
        M("Ratings"),
        [
            Column(M("Group"), numeric=False),
            Column(M("Rating"), numeric=False),
            Column(M("Samples")),
            Column(M("Min")),
            Column(M("p5")),
            Column(M("Median")),
            Column(M("Mean")),
            Column(M("Max")),
            Column(M("Meaning"), numeric=False),
        ],
    )
    for group in rep.groups:
        about = {value.name: value.about for value in models.find(group.protocol).values}
        for name, found in group.values.items():
            shown = [percentile.of(found, stat) for stat in ("min", "p5", "p50", "mean", "max")]
            cells = [number(units.NONE if n is None else units.significant(n / THOUSAND), n) for n in shown]
            samples = number(units.count(found.count), found.count)
            table.add(data(group.name), data(name), samples, *cells, Cell(Data(about.get(name, ""))))
    return table
