"""Everything the template needs, from one result."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from netdyno.core.result import Result
from netdyno.report import charts, factor_charts, factors, flows, units, verdict_plot
from netdyno.report.figures import figures
from netdyno.report.inline import packed
from netdyno.report.legs import LegView, leg_view
from netdyno.report.locale import LANGUAGES, catalogue, catalogues
from netdyno.report.opening import Opening, opening, paragraph
from netdyno.report.search import SearchView, search_view
from netdyno.report.section import Section
from netdyno.report.series_csv import series_csv
from netdyno.report.text import M, Msg
from netdyno.report.thresholds import JudgedThresholds
from netdyno.report.thresholds import judged as thresholds
from netdyno.report.verdict import Verdict, verdict


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


OPEN = 3
"""Legs that are all shown in full; of more, each is folded."""


@dataclass(frozen=True)
class Page:
    """The template's context."""

    result: Result
    facts: list[tuple[Msg, str]]
    verdict: Verdict
    opening: Opening
    failed: JudgedThresholds
    passed: JudgedThresholds
    charts: dict[str, list[dict[str, Any]]]
    """By the place in the page where they go."""
    copies: dict[str, dict[str, str]]
    """Texts to paste: name → language → text."""
    legs: list[LegView]
    environment: list[tuple[str, list[tuple[str, str]]]]
    profiles: list[tuple[str, str]]
    downloads: list[Download]
    beside: list[str]
    flows_cut: Msg | None
    judged: Msg | None
    factor_notes: list[Msg]
    search: SearchView | None = None
    """What a search found."""
    sections: Sequence[Section] = ()
    """Of systems."""

    @property
    def folded(self) -> bool:
        """Whether legs are opened one by one: those of a search are its trials, and many."""
        return self.search is not None or len(self.legs) > OPEN

    def data(self) -> dict[str, Any]:
        """What the page's scripts read."""
        return {
            "catalogues": catalogues(),
            "legs": [{"trials": [charts.trial(r) for r in leg.leg.repetitions]} for leg in self.legs],
            "names": [leg.leg.name for leg in self.legs],
            "indices": [[r.index for r in leg.leg.repetitions] for leg in self.legs],
            "downloads": carried(self.downloads),
            "charts": self.charts,
            "copies": self.copies,
        }


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
    names = dict.fromkeys(host.name for leg in result.legs for one in leg.repetitions for host in one.hosts)
    if names:
        found.append((M("Hosts"), ", ".join(names)))
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


def build(result: Result, raw: str, flows_csv: str, series: str, sections: Sequence[Section] = ()) -> Page:
    """The page's contents; `flows_csv` and `series` may be empty: then the result itself is asked."""
    every = flows.read(flows_csv) if flows_csv else flows.inside(result)
    kept = flows.worst(every)
    cut = None
    if len(kept) < len(every):
        cut = M(
            "This page has the {n} worst of {total} devices; flows.csv in the same folder has all.",
            n=units.count(len(kept)),
            total=units.count(len(every)),
        )
    varied = factors.factors(result)
    downloads = [
        Download("result.json", "application/json", raw, M("everything, as the program reads it")),
        Download(
            "series.csv", "text/csv", series or series_csv(result), M("counts and delays of each interval")
        ),
    ]
    if every:
        text = flows_csv if flows_csv and cut is None else flows.write(kept)
        downloads.append(Download("flows.csv", "text/csv", text, M("what each device delivered")))
    failed, passed = thresholds(result)
    shown = {"capture", "log", "profile"}
    plot = verdict_plot.verdict_plot(result)
    places = {"judged": plot.charts}
    searched = search_view(result)
    if searched:
        places["search"] = searched.charts
    if varied:
        places["factors"] = factor_charts.factor_charts(varied, result)
        downloads += [
            Download(
                "factors.csv", "text/csv", factors.rows_csv(varied), M("metrics of each repetition by level")
            ),
            Download(
                "factors.json",
                "application/json",
                json.dumps(factors.document(varied), indent=1, ensure_ascii=False) + "\n",
                M("metrics by level, with means and intervals"),
            ),
        ]
    return Page(
        result=result,
        facts=facts(result),
        verdict=verdict(result),
        opening=opening(result),
        failed=failed,
        passed=passed,
        charts={name: found for name, found in places.items() if found},
        judged=plot.about,
        factor_notes=[note for note in factor_charts.notes(varied) if note] if varied else [],
        copies={"paragraph": {language: paragraph(result, catalogue(language)) for language in LANGUAGES}},
        legs=[
            leg_view(
                leg,
                every,
                [w for w in result.warnings if w.leg == leg.name],
                figures(leg, result.thresholds) if len(result.legs) > 1 else (),
            )
            for leg in result.legs
        ],
        environment=environment(result.environment),
        profiles=[
            (leg.name, json.dumps(leg.repetitions[0].profile, indent=2, ensure_ascii=False))
            for leg in result.legs
            if leg.repetitions
        ],
        downloads=downloads,
        beside=[str(v) for k, v in result.files.model_dump().items() if k in shown and v],
        flows_cut=cut,
        search=searched,
        sections=sections,
    )
