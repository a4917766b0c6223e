"""Parts of a trial whose groups had another rate each, as it was changed while the run went on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from netdyno.core import totals
from netdyno.core.result import Repetition
from netdyno.core.wire import Counts, SeriesPoint
from netdyno.report import units
from netdyno.report.table import Cell, Column, Table, data, number
from netdyno.report.text import Data, M, Msg

OF = {"flow": M("messages/s of each flow"), "group": M("messages/s"), "arrivals": M("flows/s")}


@dataclass(frozen=True)
class Part:
    """A time of the measure phase in which a group had one rate, and what happened in it."""

    group: str
    begin: float
    end: float
    counts: Counts


def of(rep: Repetition) -> Iterator[Part]:
    """The parts of each group whose rate was changed; a point of the series with two rates is in none."""
    for group in dict.fromkeys(change.group for change in rep.rates):
        borders = sorted({change.t for change in rep.rates if change.group == group})
        measured = [point for point in rep.series if point.phase == "measure" and group in point.groups]
        for begin, end in zip([0.0, *borders], [*borders, float("inf")], strict=True):
            inside = [p for p in measured if begin <= _begin(p) and p.t <= end + 1e-6]
            if inside:
                counts = totals.counts([point.groups[group].counts for point in inside])
                yield Part(group, _begin(inside[0]), inside[-1].t, counts)


def _begin(point: SeriesPoint) -> float:
    # floats that say the same moment may differ in their last digit
    return point.t - point.dt + 1e-6


def table(rep: Repetition) -> Table:
    """Intended and offered load of each part."""
    made = Table(
        M("Parts with a rate of their own"),
        [
            Column(M("Group"), numeric=False),
            Column(M("From")),
            Column(M("To")),
            Column(M("Intended")),
            Column(M("Offered")),
            Column(M("Delivered")),
            Column(M("Errors")),
        ],
    )
    for part in of(rep):
        seconds, counts = part.end - part.begin, part.counts
        in_flows = any(one.group == part.group and one.of == "arrivals" for one in rep.rates)
        intended, offered = (
            (counts.flows_intended, counts.flows_started)
            if in_flows
            else (counts.messages_intended, counts.messages_sent)
        )
        delivered = counts.flows_completed if in_flows else counts.messages_delivered
        errors = sum(counts.failures.values())
        made.add(
            data(part.group),
            _moment(part.begin),
            _moment(part.end),
            *(_rate(n / seconds) for n in (intended, offered, delivered)),
            number(units.count(errors), errors, mark="bad" if errors else ""),
        )
    return made


def _moment(t: float) -> Cell:
    return number(f"{t:.1f} s", t)


def _rate(value: float) -> Cell:
    return number(units.rate(value), value)


def notices(rep: Repetition) -> Sequence[Msg]:
    """A sentence for each change."""
    return [
        M(
            "The rate of {group} was changed at {t}: {before} → {rate} {of}.",
            group=Data(change.group),
            t=Data(f"{change.t:.1f} s"),
            before=units.scaled(change.before, ""),
            rate=units.scaled(change.rate, ""),
            of=OF[change.of],
        )
        for change in rep.rates
    ]
