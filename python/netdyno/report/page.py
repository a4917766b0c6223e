"""Everything the template needs, from one result."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from netdyno.report import charts, flows, units
from netdyno.report.inline import packed
from netdyno.report.legs import LegView, leg_view
from netdyno.report.locale import catalogues
from netdyno.report.series_csv import series_csv
from netdyno.report.table import Cell, Column, Table, number
from netdyno.report.text import Data, M, Msg
from netdyno.report.verdict import Verdict, margin, name_of, verdict
from netdyno.result import Result, ThresholdResult


@dataclass(frozen=True)
class Download:
    """A file the page carries."""

    name: str
    kind: str
    text: str
    note: Msg


def carried(downloads: list[Download]) -> dict[str, dict[str, str]]:
    """Files as the page's scripts have them."""
    return {d.name: {"kind": d.kind, "gzip": packed(d.text)} for d in downloads}


@dataclass(frozen=True)
class Page:
    """The template's context."""

    result: Result
    facts: list[tuple[Msg, str]]
    verdict: Verdict
    thresholds: Table
    bullets: list[Bullet | None]
    legs: list[LegView]
    environment: list[tuple[str, list[tuple[str, str]]]]
    profiles: list[tuple[str, str]]
    downloads: list[Download]
    beside: list[str]
    flows_cut: Msg | None

    def data(self) -> dict[str, Any]:
        """What the page's scripts read."""
        return {
            "catalogues": catalogues(),
            "legs": [{"trials": [charts.trial(r) for r in leg.leg.repetitions]} for leg in self.legs],
            "names": [leg.leg.name for leg in self.legs],
            "indices": [[r.index for r in leg.leg.repetitions] for leg in self.legs],
            "downloads": carried(self.downloads),
        }


@dataclass(frozen=True)
class Bullet:
    """A value against its bound, in units of the drawing's width (0 to 100)."""

    value: float
    bound: float
    low: float | None
    high: float | None
    kind: str
    passed: bool


def bullet(t: ThresholdResult) -> Bullet | None:
    """The drawing of a threshold; the bound stands at two thirds, what is beyond the end is cut there."""
    if t.value is None or t.value == t.bound == 0:
        return None
    span = t.bound * 1.5 if t.bound > 0 else max(t.value * 1.2, 1.0)

    def at(x: float) -> float:
        return round(min(100.0, max(0.0, 100 * x / span)), 2)

    low, high = t.interval or (None, None)
    return Bullet(
        at(t.value),
        at(t.bound),
        None if low is None else at(low),
        None if high is None else at(high),
        t.kind,
        t.passed,
    )


def thresholds(result: Result) -> Table:
    """Each condition with its value, interval and number of repetitions."""
    table = Table(
        M("Thresholds"),
        [
            Column(M("Holds"), numeric=False),
            Column(M("Condition"), numeric=False),
            Column(M("Limit")),
            Column(M("Value")),
            Column(M("Interval over the repetitions")),
            Column(M("n")),
            Column(M("Distance"), numeric=False),
        ],
    )
    for t in result.thresholds:
        unit = units.unit_of(t.metric)
        name = name_of(t.metric)
        holds = Cell(M("yes"), 1, mark="good") if t.passed else Cell(M("no"), 0, mark="bad")
        interval = Cell(units.NONE)
        if t.interval is not None:
            low, high = (units.show(max(0.0, x), unit) for x in t.interval)
            interval = number(
                units.span(low, high),
                t.interval[0],
                note=M("{confidence} confidence", confidence=units.exact(units.percent(t.confidence))),
            )
        code = f"{t.leg} / {t.metric}" if t.leg else t.metric
        table.add(
            holds,
            Cell(name, t.metric, Data(code) if not isinstance(name, Data) else None),
            number(f"{'≤' if t.kind == 'max' else '≥'} {units.exact(units.show(t.bound, unit))}", t.bound),
            number(units.show(t.value, unit), t.value),
            interval,
            number(str(t.n), t.n),
            Cell(margin(t) or "", None),
        )
    return table


def environment(env: Mapping[str, Any]) -> list[tuple[str, list[tuple[str, str]]]]:
    """Nested facts as sections of plain rows; what is nested deeper has dots in its name."""
    sections: dict[str, list[tuple[str, str]]] = {}

    def walk(section: str, key: str, value: Any) -> None:
        if isinstance(value, Mapping) and value:
            for k, v in value.items():
                walk(section, f"{key}.{k}" if key else str(k), v)
        elif isinstance(value, (list, tuple)) and any(isinstance(v, Mapping) for v in value):
            for i, v in enumerate(value):
                name = str(v.get("name", i)) if isinstance(v, Mapping) else str(i)
                rest = {k: x for k, x in v.items() if k != "name"} if isinstance(v, Mapping) else v
                walk(section, f"{key}.{name}" if key else name, rest)
        else:
            sections.setdefault(section, []).append((key, _fact(value)))

    for name, value in env.items():
        nested = isinstance(value, list) and any(isinstance(v, Mapping) for v in value)
        if isinstance(value, Mapping) or nested:
            walk(name, "", value)
        else:
            walk("", name, value)
    return sorted(sections.items(), key=lambda s: bool(s[0]))


def _fact(value: Any) -> str:
    if value is None or value == "" or value == []:
        return units.NONE
    if isinstance(value, (list, tuple)):
        return ", ".join(map(str, value))
    if isinstance(value, bool):
        return str(value).lower()
    return str(value)


def facts(result: Result) -> list[tuple[Msg, str]]:
    """The lines under the title."""
    found = [(M("Started"), when(result.started))]
    if result.finished:
        found.append((M("Finished"), when(result.finished)))
    found.append((M("Run"), result.id))
    if result.command:
        found.append((M("Command"), shlex.join(result.command)))
    return found


def when(stamp: str) -> str:
    """An ISO time to the second, with its zone."""
    try:
        moment = datetime.fromisoformat(stamp)
    except ValueError:
        return stamp
    zone = moment.strftime("%z")
    zone = "UTC" if zone == "+0000" else zone
    return f"{moment:%Y-%m-%d %H:%M:%S} {zone}".strip()


def build(result: Result, raw: str, flows_csv: str, series: str) -> Page:
    """The page's contents; `flows_csv` and `series` may be empty: then the result itself is asked."""
    every = flows.read(flows_csv) if flows_csv else flows.inside(result)
    kept = flows.worst(every)
    cut = None
    if len(kept) < len(every):
        cut = M(
            "The page holds the {n} worst of {total} devices; flows.csv beside it holds all.",
            n=units.count(len(kept)),
            total=units.count(len(every)),
        )
    downloads = [
        Download("result.json", "application/json", raw, M("everything, as the program reads it")),
        Download(
            "series.csv", "text/csv", series or series_csv(result), M("counts and delays of each interval")
        ),
    ]
    if every:
        text = flows_csv if flows_csv and cut is None else flows.write(kept)
        downloads.append(Download("flows.csv", "text/csv", text, M("what each device delivered")))
    shown = {"capture", "log", "profile"}
    return Page(
        result=result,
        facts=facts(result),
        verdict=verdict(result),
        thresholds=thresholds(result),
        bullets=[bullet(t) for t in result.thresholds],
        legs=[leg_view(leg, every, [w for w in result.warnings if w.leg == leg.name]) for leg in result.legs],
        environment=environment(result.environment),
        profiles=[
            (leg.name, json.dumps(leg.repetitions[0].profile, indent=2, ensure_ascii=False))
            for leg in result.legs
            if leg.repetitions
        ],
        downloads=downloads,
        beside=[str(v) for k, v in result.files.model_dump().items() if k in shown and v],
        flows_cut=cut,
    )
