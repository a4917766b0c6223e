"""The plot of what was judged: the metric of the first failing threshold, or of the first, with its limit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from netdyno.core.result import CheckResult, Leg, Repetition, Result, ThresholdResult
from netdyno.core.wire import Counts, GroupPoint, Quantiles, SeriesPoint
from netdyno.errors import Error
from netdyno.report import charts, load_names, units
from netdyno.report.points import Trial, points
from netdyno.report.points import chart as point_chart
from netdyno.report.series import by_samples, per_second, quantile, rounded, running
from netdyno.report.text import Data, M, Msg, label
from netdyno.report.thresholds import limit
from netdyno.report.verdict import name_of
from netdyno.stats.metric import STATS, GroupMetric
from netdyno.stats.percentile import SHOWN

Column = Sequence[float | None]
_UNITS = {"ns": "ns", "/s": "/s", "ratio": "ratio", "count": "count"}


@dataclass(frozen=True)
class Plot:
    """What the page plots first, and what that is."""

    about: Msg | None
    charts: list[dict[str, Any]]


def verdict_plot(result: Result) -> Plot:
    """Charts for the top of the page: over time in the worst repetition, and over the repetitions."""
    if result.search:
        # loads above the edge are meant to fail
        return Plot(None, [])
    failing = [t for t in result.thresholds if t.failed]
    checks = [c for c in result.checks if not c.passed]
    if checks and not failing:
        return Plot(None, _unasked(result, checks[0]))
    # one that allows nothing has no margin to be seen
    for t in (*failing, *sorted(result.thresholds, key=lambda t: t.bound == 0)):
        found = _of_threshold(result, t)
        # a line along zero says nothing that the table does not
        if found and (not t.passed or t.value):
            return Plot(_about(t, len(result.legs) > 1), found)
    # an index is known of the whole trial only: what was offered and completed shows when it fell
    if failing and (found := _load(result, failing[0].leg)):
        return Plot(_about(failing[0], len(result.legs) > 1), found)
    return Plot(None, _measured(result))


def _measured(result: Result) -> list[dict[str, Any]]:
    """The main delay of the first group over time, where nothing that was judged is worth a plot."""
    for leg in result.legs[:1] if result.kind == "run" else []:
        for group in leg.summary.groups[:1] if leg.repetitions else []:
            names = by_samples({name: one.count for name, one in group.delays.items()})
            for name in names[:1]:
                found = over_time(GroupMetric(group.name, "delay", name, "p99"), leg.repetitions[0], None)
                return [found] if found else []
    return []


def _about(t: ThresholdResult, several: bool) -> Msg:
    code = Data(f"{t.leg} / {t.metric}" if several and t.leg else t.metric)
    if not t.failed:
        return M("Judged by {metric} {limit}", metric=code, limit=limit(t))
    return M("The first threshold that fails: {metric} {limit}", metric=code, limit=limit(t))


def _of_threshold(result: Result, t: ThresholdResult) -> list[dict[str, Any]]:
    try:
        metric = GroupMetric.parse(t.metric)
    except Error:
        return []
    leg = _leg(result, t.leg)
    measured = [(r, v) for r in leg.repetitions if (v := metric.of(r)) is not None] if leg else []
    if leg is None or not measured:
        return []
    pick = max if t.kind == "max" else min
    worst, _ = pick(measured, key=lambda one: one[1])
    bound = {"value": t.bound, "kind": t.kind, "label": M("limit {limit}", limit=limit(t)).json()}
    found = []
    place = leg.repetitions.index(worst) + 1 if len(leg.repetitions) > 1 else None
    if one := over_time(metric, worst, place):
        one["limit"] = bound
        found.append(one)
    if len(measured) > 1:
        found.append(_over_repetitions(metric, leg, measured, t) | {"limit": bound})
    return found


def _leg(result: Result, name: str) -> Leg | None:
    if not name and len(result.legs) == 1:
        return result.legs[0]
    return next((leg for leg in result.legs if leg.name == name), None)


def over_time(metric: GroupMetric, rep: Repetition, place: int | None) -> dict[str, Any] | None:
    """A metric in each interval of a repetition; nothing where the intervals do not have it."""
    samples = charts.samples_of(rep)
    found = _column(metric, rep, samples)
    if found is None or all(v is None for v in found[1]):
        return None
    said, values = found
    title: Msg | Data = name_of(str(metric))
    if place is not None:
        title = M("{metric}, repetition {n}", metric=title, n=str(place))
    line = charts.line(said, values, 0)
    made = charts.chart("judged", title, _UNITS.get(metric.unit, "count"), [charts.view(title, [line])],
                        log=metric.unit == "ns")  # fmt: skip
    return made | {"trial": charts.frame(rep, samples)}


def _column(
    metric: GroupMetric, rep: Repetition, samples: Sequence[SeriesPoint]
) -> tuple[Msg, Column] | None:
    group, name, stat = metric.group, metric.name, metric.stat
    if metric.kind in ("delay", "lateness") and (stat in STATS or stat in SHOWN):
        return M("In each interval"), quantile(samples, _distribution(metric), stat, group)
    if metric.kind == "loss":
        sent = running(samples, lambda g: g.counts.messages_sent, group)
        delivered = running(samples, lambda g: g.counts.messages_delivered, group)
        share = [rounded(max(0.0, a - b) / a) if a else None for a, b in zip(sent, delivered, strict=True)]
        return M("In flight or lost, of what was sent until then"), share
    if metric.kind == "stalls" and name == "waiting":
        devices = next((g.devices for g in rep.groups if g.name == group), 0)
        waits = [s.groups[group].waiting if group in s.groups else None for s in samples]
        return M("At the end of each interval"), [
            rounded(w / devices) if w is not None and devices else None for w in waits
        ]
    if (count := _counter(metric)) is None:
        return None
    if stat == "rate":
        return M("In each interval"), per_second(samples, lambda g: count(g.counts), group)
    if metric.unit != "count":
        return None
    measured = [s for s in samples if s.phase != "warmup"]
    before: list[float | None] = [None] * (len(samples) - len(measured))
    return M("Since the measure phase began"), [*before, *running(measured, lambda g: count(g.counts), group)]


def _distribution(metric: GroupMetric) -> Callable[[GroupPoint], Quantiles | None]:
    if metric.kind == "lateness":
        return lambda g: g.lateness
    return lambda g: g.delays.get(metric.name)


def _counter(metric: GroupMetric) -> Callable[[Counts], float] | None:
    name = metric.name
    match metric.kind:
        case "counter":
            return lambda c: float(getattr(c, name))
        case "counts":
            return lambda c: float(c.own.get(name, 0))
        case "errors" if name:
            return lambda c: float(c.failures.get(name, 0))
        case "errors":
            return lambda c: float(sum(c.failures.values()))
        case _:
            return None


def _over_repetitions(
    metric: GroupMetric, leg: Leg, measured: Sequence[tuple[Repetition, float]], t: ThresholdResult
) -> dict[str, Any]:
    """The value of each repetition; the mean of all with its interval as a band."""
    kinds = {"valid": (M("Repetition"), 0), "invalid": (M("Repetition that is not valid"), 3)}
    place = {r.index: n for n, r in enumerate(leg.repetitions, 1)}
    found: list[Trial] = [
        (float(place[r.index]), value, "valid" if r.validity.valid else "invalid") for r, value in measured
    ]
    view = points(name_of(t.metric), M("Repetition"), "id", found, kinds)
    if t.value is not None and t.interval is not None:
        low, high = t.interval
        confidence = units.exact(units.percent(t.confidence))
        said = M("{value} over all, {confidence} interval", value=units.show(t.value, metric.unit),
                 confidence=confidence)  # fmt: skip
        view["band"] = {"value": t.value, "low": max(0.0, low), "high": high, "label": label(said)}
    title = M("{metric}, each repetition", metric=name_of(t.metric))
    return point_chart("judged-repetitions", title, _UNITS.get(metric.unit, "count"), [view])


def _unasked(result: Result, check: CheckResult) -> list[dict[str, Any]]:
    """What fails without having been asked for: stalls, or nothing delivered."""
    if check.check != "stalls":
        return _load(result, check.leg)
    leg = _leg(result, check.leg)
    if leg is None or not leg.repetitions:
        return []
    rep = leg.repetitions[-1]
    samples = charts.samples_of(rep)
    made = charts.waiting(samples)
    return [made | {"id": "judged", "trial": charts.frame(rep, samples)}] if made["views"] else []


def _load(result: Result, name: str) -> list[dict[str, Any]]:
    """What was offered and completed in the last repetition of a leg."""
    leg = _leg(result, name)
    if leg is None or not leg.repetitions:
        return []
    rep = leg.repetitions[-1]
    samples = charts.samples_of(rep)
    made = charts.load(samples, load_names.units(rep))
    return [made | {"id": "judged", "trial": charts.frame(rep, samples)}] if made["views"] else []
