"""One leg of the page: its figures, all repetitions, then each trial."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from netdyno.core.result import Estimate, FigureWarning, Leg, Repetition
from netdyno.core.wire import Distribution
from netdyno.report import flows, rates, tables, units
from netdyno.report.figures import Figure
from netdyno.report.series import POINTS, by_samples
from netdyno.report.table import Cell, Column, Table, data, number
from netdyno.report.text import Data, M, Msg
from netdyno.report.verdict import reason
from netdyno.stats import percentile, silence
from netdyno.stats.backlog import hides_delays
from netdyno.stats.percentile import parts
from netdyno.stats.summary import is_unconfirmed


@dataclass
class TrialView:
    """One trial: what its panel shows."""

    index: int
    notices: list[Msg]
    tables: list[Table]
    errors: Table
    flows: list[flows.Distribution]
    merged: Msg | None
    """Said under the charts when they show fewer points than there are."""


@dataclass
class LegView:
    """One leg."""

    leg: Leg
    phases: Msg | None
    warnings: list[Msg]
    figures: list[Figure]
    devices: Msg | None
    summary: Table
    repetitions: Table
    trials: list[TrialView] = field(default_factory=list)


def leg_view(
    leg: Leg,
    all_flows: Sequence[flows.Flow],
    warnings: Sequence[FigureWarning] = (),
    shown: Sequence[Figure] = (),
) -> LegView:
    """What the page says of a leg; `shown` are its figures, unless they stand at the top of the page."""
    reps = leg.repetitions
    several = len(reps) > 1
    phases = None
    if reps:
        p = reps[0].phases
        phases = M(
            "warm-up {warmup}, measure {measure}, drain {drain}",
            warmup=units.seconds(p.warmup),
            measure=units.seconds(p.measure),
            drain=units.seconds(p.drain),
        )
    view = LegView(
        leg,
        phases,
        late(warnings),
        list(shown),
        _devices(reps),
        summary(leg) if several else Table(M("All repetitions"), []),
        repetitions(reps) if several else Table(M("Repetitions"), []),
    )
    for i, rep in enumerate(reps):
        mine = flows.of(all_flows, leg.name, rep)
        view.trials.append(
            TrialView(
                i,
                notices(rep),
                tables.all_tables(rep),
                tables.errors(rep),
                flows.distributions(mine),
                _merged(rep),
            )
        )
    return view


def _devices(reps: Sequence[Repetition]) -> Msg | None:
    if not reps:
        return None
    devices, groups = sum(g.devices for g in reps[0].groups), len(reps[0].groups)
    if groups == 1:
        return M("{n} device", n="1") if devices == 1 else M("{n} devices", n=units.count(devices))
    return M("{n} devices in {groups} groups", n=units.count(devices), groups=str(groups))


def late(warnings: Sequence[FigureWarning]) -> list[Msg]:
    """Delays that the generator's own lateness makes up a good part of, and at which percentiles."""
    alike: dict[tuple[str, str], list[str]] = {}
    for one in warnings:
        group, _, delay, stat = parts(one.metric)
        share = one.limit / one.value if one.value else 1.0
        alike.setdefault((group, delay), []).append(
            f"{percentile.display_name(stat)} {units.percent(min(1.0, share), 2)}"
        )
    return [
        M(
            "{delay}: share that may be the generator's own lateness: {figures}",
            delay=Data(f"{group} · {delay.replace('_', ' ')}"),
            figures=", ".join(figures),
        )
        for (group, delay), figures in alike.items()
    ]


def _merged(rep: Repetition) -> Msg | None:
    if len(rep.series) <= POINTS:
        return None
    return M(
        "The charts join neighbours of {n} intervals: counts are added, of percentiles the worst is shown. "
        "The downloads hold every interval.",
        n=units.count(len(rep.series)),
    )


def summary(leg: Leg) -> Table:
    """Groups over all repetitions: rates as mean with interval, delays from merged histograms."""
    table = Table(
        M("All repetitions"),
        [
            Column(M("Group"), numeric=False),
            Column(M("Intended per second")),
            Column(M("Offered per second")),
            Column(M("Delivered per second")),
            Column(M("Loss")),
            Column(M("Delay"), numeric=False),
            Column(M("Median")),
            Column(M("p90")),
            Column(M("p95")),
            Column(M("p99")),
            Column(M("p99.9")),
            Column(M("Max")),
            Column(M("Lateness, p99")),
        ],
        note=M(
            "Means over {n} repetitions with {confidence} confidence intervals; "
            "percentiles from merged histograms.",
            n=str(leg.summary.n),
            confidence=units.exact(units.percent(leg.summary.confidence)),
        ),
    )
    for g in leg.summary.groups:
        rates = [
            _estimate(g.rates.get(f"messages_{k}"), rate=True) for k in ("intended", "sent", "delivered")
        ]
        first = [data(g.name), *rates, _estimate(g.loss, rate=False)]
        delays = [(n, g.delays[n]) for n in by_samples({n: d.count for n, d in g.delays.items()})] or [
            ("", Distribution())
        ]
        for i, (name, d) in enumerate(delays):
            row = first if i == 0 else [data(g.name), *[Cell("") for _ in range(4)]]
            values = (
                d.p50,
                d.p90,
                percentile.of(d, "p95"),
                d.p99,
                d.p999 if d.count >= 1000 else None,
                d.max,
            )
            late = g.lateness.p99 if g.lateness.count and i == 0 else None
            table.add(
                *row,
                Cell(Data(name), name, tables.NO_DELAY if i == 0 and hides_delays(g) else None),
                *[number(units.duration(v if d.count else None), v) for v in values],
                number(units.duration(late), late),
            )
    return table


def _estimate(e: Estimate | None, *, rate: bool) -> Cell:
    if e is None:
        return Cell(units.NONE)
    show = units.rate if rate else units.percent
    note = None
    if e.interval is not None:
        low, high = e.interval if rate else (max(0.0, e.interval[0]), e.interval[1])
        note = Data(units.span(show(low), show(high)))
    return number(show(e.mean), e.mean, note=note)


def repetitions(reps: Sequence[Repetition]) -> Table:
    """A row for each trial: were they alike?"""
    names = (
        [
            (g.name, d)
            for g in reps[0].groups
            for d in by_samples({n: x.count for n, x in g.delays.items()})[:1]
        ][:4]
        if reps
        else []
    )
    table = Table(
        M("Repetitions"),
        [
            Column(M("Repetition"), numeric=False),
            Column(M("Valid"), numeric=False),
            Column(M("Offered / intended")),
            Column(M("Delivered per second")),
            Column(M("Loss")),
            Column(M("Errors")),
            *[Column(M("{delay}, p99", delay=Data(f"{g} {d}"))) for g, d in names],
            Column(M("Generator CPU")),
        ],
    )
    for i, rep in enumerate(reps):
        intended = sum(g.measured.messages_intended for g in rep.groups)
        told = [g for g in rep.groups if not is_unconfirmed(g)]
        known = [(g.loss, g.measured.messages_sent) for g in told if g.loss is not None]
        ratios = (
            sum(g.measured.messages_sent for g in rep.groups) / intended if intended else None,
            sum(g.rates.get("messages_delivered", 0.0) for g in told) if told else None,
            sum(loss * n for loss, n in known) / sum(n for _, n in known) if known else None,
        )
        errors = sum(map(tables.all_errors, rep.groups))
        by_name = {g.name: g.delays for g in rep.groups}
        p99 = [by_name[n][d].p99 if d in by_name.get(n, {}) else None for n, d in names]
        cpu = max((w.cpu for w in rep.workers), default=None)
        valid = Cell(M("yes"), 1, mark="good") if rep.validity.valid else Cell(M("no"), 0, mark="bad")
        table.add(
            number(str(i + 1), i),
            valid,
            number(units.percent(ratios[0]), ratios[0]),
            number(units.rate(ratios[1]), ratios[1]),
            number(units.percent(ratios[2]), ratios[2]),
            number(units.count(errors), errors),
            *[number(units.duration(p), p) for p in p99],
            number(units.percent(cpu), cpu),
        )
    return table


def notices(rep: Repetition) -> list[Msg]:
    """What is wrong with a trial, before its numbers."""
    said = [reason(r) for r in rep.validity.reasons]
    match rep.stopped:
        case "stopped":
            said.append(M("The trial was stopped before its time."))
        case "lease":
            said.append(M("The controller fell silent and the trial stopped."))
        case "failed":
            said.append(M("The trial failed."))
    if rep.error:
        code, what = (Data(str(rep.error.get(k, ""))) for k in ("code", "what"))
        said.append(M("{code}: {what}", code=code, what=what))
    said += [
        M(
            "The path into {port} was changed at {t}.",
            port=Data(str(change["port"])),
            t=Data(f"{change['t']:.1f} s"),
        )
        for change in rep.changes
    ]
    said += rates.notices(rep)
    said += [
        M(
            "{group}: no answer from {begins} to {ends} after the start, while {n} messages fell due",
            group=Data(group.name),
            begins=f"{found.begins:.1f} s",
            ends=f"{found.ends:.1f} s",
            n=units.count(found.due),
        )
        for group in rep.groups
        if (found := silence.longest(rep, group.name))
    ]
    said += [
        M("{dut} ended by itself: {why}", dut=Data(n), why=Data(d.died)) for n, d in rep.dut.items() if d.died
    ]
    return said
