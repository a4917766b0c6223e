"""The few numbers that say most of a leg: throughput, loss, the 99th percentile, CPU; each with its limit."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from netdyno.core import load_unit
from netdyno.core.result import GroupSummary, Leg, Repetition, ThresholdResult
from netdyno.errors import Error
from netdyno.report import load_names, units
from netdyno.report.text import Data, M, Msg
from netdyno.report.thresholds import limit
from netdyno.report.verdict import STATS, stat_name
from netdyno.stats.metric import VARIATION, GroupMetric
from netdyno.stats.summary import is_unconfirmed


@dataclass(frozen=True)
class Figure:
    """A number worth large letters, what it is of, and the limit that it was judged by."""

    label: Msg
    value: str
    sort: float | None
    note: Msg | Data | None = None
    limit: Msg | None = None
    mark: str = ""


def figures(leg: Leg, thresholds: Sequence[ThresholdResult]) -> list[Figure]:
    """Over all repetitions; always the same ones, so that legs can stand in one table."""
    if not leg.repetitions:
        return []
    mine = [(t, m) for t in thresholds if t.leg in ("", leg.name) and (m := _metric(t)) is not None]
    mine.sort(key=lambda one: not one[0].failed)
    alone = len(leg.repetitions[0].groups) == 1
    return [
        _throughput(leg, mine, alone),
        _loss(leg, mine, alone),
        _delay(leg, mine),
        _generator(leg),
        _dut(leg),
    ]


_Judged = tuple[ThresholdResult, GroupMetric]


def _metric(t: ThresholdResult) -> GroupMetric | None:
    try:
        return GroupMetric.parse(t.metric)
    except Error:
        return None


def _limits(judged: Sequence[_Judged], alone: bool) -> tuple[Msg | None, str]:
    """The first limit and, where the figure is of several groups, the value that was held to it."""
    if not judged:
        return None, ""
    t, metric = judged[0]
    mark = _mark(t)
    if alone:
        return M("limit {limit}", limit=limit(t)), mark
    value = units.show(t.value, metric.unit)
    return M("{group}: {value}, limit {limit}", group=Data(metric.group), value=value, limit=limit(t)), mark


def _mark(t: ThresholdResult) -> str:
    if t.value is None:
        return ""
    return "good" if t.passed else "bad"


def _sum(rates: Iterable[float | None]) -> float | None:
    """Per second over several groups."""
    found = [rate for rate in rates if rate is not None]
    return sum(found) if found else None


def _throughput(leg: Leg, mine: Sequence[_Judged], alone: bool) -> Figure:
    """Delivered per second; of messages that nobody confirms, sent per second."""
    groups = load_names.asked(leg.summary.groups)
    told = [g for g in groups if not is_unconfirmed(g)]
    judged = [(t, m) for t, m in mine if (m.name, m.stat) == ("messages_delivered", "rate")]
    if groups and not told:
        sent = _sum(load_unit.rate(g, "offered") for g in groups)
        return Figure(M("Throughput"), units.rate(sent), sent, M("sent; delivery is not confirmed"))
    rate, intended = (_sum(load_unit.rate(g, which) for g in told) for which in ("delivered", "intended"))
    note = None
    if rate is not None and intended:
        note = M("{share} of the intended load", share=units.percent(rate / intended))
        if (name := _unit(told)) is not None:
            note = M("{unit}; {share} of the intended load", unit=name, share=units.percent(rate / intended))
    return Figure(M("Throughput"), units.rate(rate), rate, note, *_limits(judged, alone))


def _unit(groups: Sequence[GroupSummary]) -> Msg | Data | None:
    """What these count, if it is one thing and no messages."""
    found = {load_unit.of(g).name: load_unit.of(g) for g in groups}
    unit = next(iter(found.values()), load_unit.MESSAGES)
    return None if len(found) != 1 or load_unit.is_messages(unit) else load_names.name(unit)


def _loss(leg: Leg, mine: Sequence[_Judged], alone: bool) -> Figure:
    """Of all whose delivery is known."""
    groups = load_names.asked(leg.summary.groups)
    told = [
        (share, load_unit.count(g.measured, load_unit.of(g).offered))
        for g in groups
        if (share := load_unit.loss(g)) is not None
    ]
    if not told and any(is_unconfirmed(g) for g in groups):
        return Figure(M("Loss"), units.NONE, None, _unconfirmed(leg))
    sent = sum(n for _, n in told)
    lost = sum(loss * n for loss, n in told)
    loss = lost / sent if sent else None
    counts = {"lost": units.count(round(lost)), "sent": units.count(sent)}
    note = M("{lost} of {sent} messages", **counts)
    if (name := _unit(groups)) is not None:
        note = M("{lost} of {sent} {unit}", **counts, unit=name)
    judged = [(t, m) for t, m in mine if m.kind == "loss"]
    return Figure(M("Loss"), units.percent(loss), loss, note if sent else None, *_limits(judged, alone))


def _unconfirmed(leg: Leg) -> Msg:
    """Why no loss is known."""
    quality = {g.protocol for g in leg.summary.groups} == {"mqtt"}
    return M("not confirmed at QoS 0") if quality else M("delivery is not confirmed")


def _delay(leg: Leg, mine: Sequence[_Judged]) -> Figure:
    """What was judged; else the slowest of all delays."""
    judged = [(t, m) for t, m in mine if m.kind == "delay" and m.stat not in VARIATION]
    judged.sort(key=lambda one: (not one[0].failed, one[1].stat != "p99"))
    if judged:
        t, m = judged[0]
        said = M("limit {limit}", limit=limit(t))
        mark = _mark(t)
        label = M("Delay, {stat}", stat=stat_name(m.stat))
        return Figure(label, units.duration(t.value), t.value, Data(f"{m.group} · {m.name}"), said, mark)
    merged = [(g.name, g.delays) for g in leg.summary.groups]
    merged = merged or [(g.name, g.delays) for r in leg.repetitions for g in r.groups]
    slow = [(d.p99, group, name) for group, delays in merged for name, d in delays.items() if d.count]
    label = M("Delay, {stat}", stat=STATS["p99"])
    if not slow:
        return Figure(label, units.NONE, None)
    p99, group, name = max(slow)
    return Figure(label, units.duration(p99), p99, Data(f"{group} · {name}"))


def _generator(leg: Leg) -> Figure:
    cpu = max((w.cpu for r in leg.repetitions for w in r.workers), default=None)
    note = M("of its busiest core") if cpu is not None else None
    return Figure(M("CPU of the generator"), units.percent(cpu), cpu, note)


def _dut(leg: Leg) -> Figure:
    """The busiest device under test, in the measure phase of all repetitions."""
    used = dut_cpu(leg.repetitions)
    if not used:
        return Figure(M("CPU of the DUT"), units.NONE, None, M("not run by netdyno"))
    name, cpu = max(used.items(), key=lambda one: one[1])
    others = "".join(f", {n} {units.percent(x)}" for n, x in used.items() if n != name)
    return Figure(M("CPU of the DUT"), units.percent(cpu), cpu, Data(f"{name}{others}"))


def dut_cpu(repetitions: Sequence[Repetition]) -> dict[str, float]:
    """Cores in use by each device under test: mean over the measure phase."""
    seen: dict[str, list[float]] = {}
    for r in repetitions:
        begin, end = r.phases.warmup, r.phases.warmup + r.phases.measure
        for name, dut in r.dut.items():
            seen.setdefault(name, []).extend(p.cpu for p in dut.cpu_series if begin < p.t <= end + 1e-6)
    return {name: sum(points) / len(points) for name, points in seen.items() if points}
