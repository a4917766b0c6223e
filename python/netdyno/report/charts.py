"""What each chart of a trial shows, as data: the page's script only draws."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from netdyno.core import hosts, load_unit
from netdyno.core.result import Repetition
from netdyno.core.wire import GroupPoint, LoadUnit, Quantiles, SeriesPoint
from netdyno.report import load_names, percentiles, units
from netdyno.report.series import (
    by_samples,
    coarsen,
    in_order,
    per_second,
    quantile,
    rounded,
    running,
    without_stubs,
)
from netdyno.report.text import Data, M, Msg, label

Column = Sequence[float | None]


def line(text: Msg | Data, values: Column, color: int, dash: int = 0, **more: Any) -> dict[str, Any]:
    """One line: `color` and `dash` are places in the page's palette."""
    return {"label": label(text), "values": list(values), "color": color, "dash": dash, **more}


def view(text: Msg | Data, lines: list[dict[str, Any]]) -> dict[str, Any]:
    """One choice of the chart's selector."""
    return {"label": label(text), "lines": lines}


def chart(
    name: str, title: Msg | Data, unit: str, views: list[dict[str, Any]], *, log: bool = False, x: Column = ()
) -> dict[str, Any]:
    """A chart; with `x` a percentile curve, else over the trial's time."""
    return {
        "id": name,
        "title": label(title),
        "unit": unit,
        "views": views,
        "log": log,
        "kind": "percentile" if x else "time",
        **({"x": list(x)} if x else {}),
    }


def samples_of(repetition: Repetition) -> list[SeriesPoint]:
    """Its points as they are drawn."""
    names = [g.name for g in repetition.groups]
    return coarsen(in_order(without_stubs(repetition.series), names))


def frame(repetition: Repetition, samples: Sequence[SeriesPoint]) -> dict[str, Any]:
    """The time that its charts run over."""
    return {"t": [rounded(s.t) for s in samples], "phases": _phases(repetition), "marks": _marks(repetition)}


def trial(repetition: Repetition) -> dict[str, Any]:
    """Everything the page draws of one trial."""
    samples, units = samples_of(repetition), load_names.units(repetition)
    charts = [
        load(samples, units),
        latency(samples),
        percentile_curve(repetition),
        outstanding(samples, units),
        waiting(samples),
        errors(samples),
        cpu(samples, repetition),
        lateness(samples),
        interfaces(samples),
    ]
    return frame(repetition, samples) | {"charts": [c for c in charts if c["views"]]}


def _phases(repetition: Repetition) -> list[dict[str, Any]]:
    p, at, spans = repetition.phases, 0.0, []
    for text, length in ((M("Warm-up"), p.warmup), (M("Measure"), p.measure), (M("Drain"), p.drain)):
        if length > 0:
            spans.append({"label": text.json(), "from": rounded(at), "to": rounded(at + length)})
        at += length
    return spans


def _marks(repetition: Repetition) -> list[dict[str, Any]]:
    """Moments at which somebody changed a rate or paused the run."""
    found = [
        (
            one.t,
            M(
                "{group}: {before} → {rate}",
                group=Data(one.group),
                before=units.rate(one.before),
                rate=units.rate(one.rate),
            ),
        )
        for one in repetition.rates
    ] + [(one.t, M("paused for {time}", time=units.seconds(one.seconds))) for one in repetition.paused]
    return [{"at": rounded(t), "label": text.json()} for t, text in sorted(found, key=lambda one: one[0])]


def _groups(samples: Sequence[SeriesPoint]) -> list[str]:
    return list(dict.fromkeys(name for s in samples for name in s.groups))


def _choices(samples: Sequence[SeriesPoint]) -> list[tuple[Msg | Data, str | None]]:
    groups = _groups(samples)
    each: list[tuple[Msg | Data, str | None]] = [(Data(g), g) for g in groups]
    return [(M("All groups"), None), *each] if len(groups) > 1 else each


Units = Mapping[str, LoadUnit]
"""What the load of each group is counted in; a group that is not named counts messages."""


def _counted(samples: Sequence[SeriesPoint], units: Units) -> list[tuple[Msg | Data, str | None, LoadUnit]]:
    """What a chart of the load shows: all groups together where all count messages, and each by itself."""
    if all(map(load_unit.is_messages, units.values())):
        return [(text, group, load_unit.MESSAGES) for text, group in _choices(samples)]
    found: list[tuple[Msg | Data, str | None, LoadUnit]] = []
    for group in _groups(samples):
        unit = units.get(group, load_unit.MESSAGES)
        found.append((M("{group}: {unit}", group=Data(group), unit=load_names.name(unit)), group, unit))
    return sorted(found, key=lambda one: one[2].intended is None)


def _counter(name: str, group: GroupPoint) -> float:
    return load_unit.count(group.counts, name)


def load(samples: Sequence[SeriesPoint], units: Units | None = None) -> dict[str, Any]:
    """Intended, offered and delivered: three numbers, never one."""
    units = units or {}
    views = []
    for name, group, unit in _counted(samples, units):
        done = M("Delivered") if load_unit.is_messages(unit) else M("Completed")
        shown = [
            (M("Intended"), unit.intended, 3, 1),
            (M("Offered"), unit.offered, 1, 2),
            (done, unit.delivered, 0, 0),
        ]
        lines = [
            line(text, per_second(samples, partial(_counter, counter), group), color, dash)
            for text, counter, color, dash in shown
            if counter
        ]
        views.append(view(name, lines))
    messages = all(map(load_unit.is_messages, units.values()))
    return chart("load", M("Messages per second") if messages else M("Load per second"), "/s", views)


def latency(samples: Sequence[SeriesPoint]) -> dict[str, Any]:
    """Percentiles of each interval; one view per delay, as delays of different things never mix."""
    views = []
    for group in _groups(samples):
        points = [s.groups[group] for s in samples if group in s.groups]
        counts: dict[str, float] = {}
        for name, found in ((n, d) for g in points for n, d in g.delays.items()):
            counts[name] = counts.get(name, 0) + found.count
        for delay in by_samples(counts):

            def of(g: GroupPoint, delay: str = delay) -> Quantiles | None:
                return g.delays.get(delay)

            views.append(
                view(
                    Data(f"{group} · {delay}"),
                    [
                        line(M("Median"), quantile(samples, of, "p50", group), 0),
                        line(M("99th percentile"), quantile(samples, of, "p99", group), 1, 2),
                        line(M("Maximum"), quantile(samples, of, "max", group), 3, 1),
                    ],
                )
            )
    return chart("latency", M("Latency over time"), "ns", views, log=True)


def percentile_curve(repetition: Repetition) -> dict[str, Any]:
    """Latency against percentile, from the histograms of the measure phase."""
    lines = [
        line(Data(f"{group.name} · {name}"), [rounded(y) for y in curve], i % 6, i // 6)
        for i, (group, name, curve) in enumerate(
            (g, name, percentiles.curve(percentiles.decode(d.hdr)))
            for g in repetition.groups
            for name, d in g.delays.items()
            if d.count and d.hdr
        )
    ]
    longest = max((sum(y is not None for y in one["values"]) for one in lines), default=0)
    for one in lines:
        del one["values"][longest:]
    views = [view(M("All groups"), lines)] if lines else []
    x = percentiles.GRID[: max(longest, 1)]
    return chart("percentiles", M("Latency by percentile"), "ns", views, log=True, x=x)


def outstanding(samples: Sequence[SeriesPoint], units: Units | None = None) -> dict[str, Any]:
    """Sent but not confirmed: in flight while the load is on, lost when the run is over."""
    units = units or {}
    views = []
    for name, group, unit in _counted(samples, units):
        if unit.intended is None:
            continue
        sent = running(samples, partial(_counter, unit.offered), group)
        delivered = running(samples, partial(_counter, unit.delivered), group)
        gap = [max(0.0, a - b) for a, b in zip(sent, delivered, strict=True)]
        views.append(view(name, [line(M("In flight or lost"), gap, 4, fill=True)]))
    messages = all(map(load_unit.is_messages, units.values()))
    title = M("Messages sent but not yet confirmed") if messages else M("Begun but not yet completed")
    return chart("outstanding", title, "count", views)


def waiting(samples: Sequence[SeriesPoint]) -> dict[str, Any]:
    """Devices that wait for an answer longer than their limit; no chart when none ever did."""
    lines = [
        line(Data(group), [_waiting(s, group) for s in samples], i % 6, i // 6, fill=True)
        for i, group in enumerate(_groups(samples))
        if any(_waiting(s, group) for s in samples)
    ]
    views = [view(M("All groups"), lines)] if lines else []
    return chart("waiting", M("Devices that wait for an answer, stalled"), "count", views)


def _waiting(sample: SeriesPoint, group: str) -> float | None:
    return sample.groups[group].waiting if group in sample.groups else None


def _failures(kind: str, group: GroupPoint) -> float:
    return group.counts.failures.get(kind, 0)


def errors(samples: Sequence[SeriesPoint]) -> dict[str, Any]:
    """Failures per second by kind; no chart when there were none."""
    views = []
    for name, group in _choices(samples):
        members = (
            [s.groups[group] for s in samples if group in s.groups]
            if group
            else [g for s in samples for g in s.groups.values()]
        )
        kinds = dict.fromkeys(k for g in members for k, n in g.counts.failures.items() if n)
        if kinds:
            views.append(
                view(
                    name,
                    [
                        line(Data(kind), per_second(samples, partial(_failures, kind), group), i % 6, i // 6)
                        for i, kind in enumerate(kinds)
                    ],
                )
            )
    return chart("errors", M("Errors per second"), "/s", views)


def cpu(samples: Sequence[SeriesPoint], repetition: Repetition) -> dict[str, Any]:
    """Share of a core: each worker of the generator, and what it drove against."""
    lines: list[dict[str, Any]] = []
    for worker in dict.fromkeys(w.worker for s in samples for w in s.workers):
        found = [next((w for w in s.workers if w.worker == worker), None) for s in samples]
        core = next((w.core for w in found if w is not None and w.core is not None), worker)
        host = next((name for w in found if w is not None and (name := hosts.of_worker(w))), "")
        generator = M("Generator, core {n}", n=str(core))
        if host:
            generator = M("Generator, {host} core {n}", host=Data(host), n=str(core))
        lines.append(
            line(
                generator,
                [rounded(w.cpu) if w else None for w in found],
                len(lines) % 6,
            )
        )
    for i, (name, dut) in enumerate(repetition.dut.items()):
        if dut.cpu_series and samples:
            points = iter(sorted(dut.cpu_series, key=lambda p: p.t))
            point, column = next(points, None), []
            for s in samples:
                seen = []
                while point is not None and point.t <= s.t + s.dt / 2:
                    seen.append(point.cpu)
                    point = next(points, None)
                column.append(rounded(sum(seen) / len(seen)) if seen else None)
            lines.append(line(Data(name), column, (len(lines)) % 6, 2 + i % 2))
    return chart("cpu", M("CPU, share of one core"), "cpu", [view(M("All cores"), lines)] if lines else [])


def lateness(samples: Sequence[SeriesPoint]) -> dict[str, Any]:
    """How late the generator itself was: what makes or breaks validity."""
    lines = [
        line(Data(group), quantile(samples, lambda g: g.lateness, "p99", group), i % 6, i // 6)
        for i, group in enumerate(_groups(samples))
    ]
    lines = [one for one in lines if any(v is not None for v in one["values"])]
    views = [view(M("All groups"), lines)] if lines else []
    return chart("lateness", M("Lateness of the generator, 99th percentile"), "ns", views, log=True)


def interfaces(samples: Sequence[SeriesPoint]) -> dict[str, Any]:
    """Packets and bits per second of each interface that moved any, the busiest first."""
    views = []
    traffic: dict[str, int] = {}
    for name, c in ((n, c) for s in samples for n, c in s.interfaces.items()):
        traffic[name] = traffic.get(name, 0) + c.get("tx_bytes", 0) + c.get("rx_bytes", 0)
    for name in sorted((n for n, moved in traffic.items() if moved), key=lambda n: -traffic[n]):
        for text, key, scale, unit in (
            (M("{interface}, packets/s", interface=Data(name)), "packets", 1, "/s"),
            (M("{interface}, bit/s", interface=Data(name)), "bytes", 8, "bit/s"),
        ):

            def column(way: str, name: str = name, key: str = key, scale: int = scale) -> list[float | None]:
                return [
                    rounded(s.interfaces[name].get(f"{way}_{key}", 0) * scale / s.dt)
                    if name in s.interfaces and s.dt > 0
                    else None
                    for s in samples
                ]

            lines = [line(M("Sent"), column("tx"), 0), line(M("Received"), column("rx"), 1, 2)]
            views.append(view(text, lines) | {"unit": unit})
    return chart("interfaces", M("Traffic of the interfaces"), "/s", views)
