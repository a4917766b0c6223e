"""The page of what settings did over many paths, of how good proposals from that are, and of one proposal."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from netdyno.report import units
from netdyno.report.change import FURTHEST, ratio
from netdyno.report.comparison import Interval
from netdyno.report.page import Download, when
from netdyno.report.points import Trial, chart, points
from netdyno.report.quantity import with_unit
from netdyno.report.render import one_file
from netdyno.report.study import StudyPage
from netdyno.report.table import Cell, Column, Table, data, number
from netdyno.report.text import Data, M, Msg
from netdyno.tuning.pages.proposed_setting import proposed

CLEAR = math.log(1.05)
"""A gain, or a loss, that is marked."""
Doc = Mapping[str, Any]


@dataclass(frozen=True)
class ExperiencePage(StudyPage):
    """The template's context."""

    expected: Table | None = None
    intervals: list[Interval | None] = field(default_factory=list)
    nearest: Table | None = None
    judged: Table | None = None
    known: Table | None = None


def render(
    experience: Doc, finished: str, *, judgement: Doc | None = None, proposal: Doc | None = None
) -> str:
    """One self-contained file, of documents as `netdyno.tuning.recommend` writes them."""
    return one_file("experience.html.j2", build(experience, finished, judgement, proposal), "netdyno.tuning")


def build(
    experience: Doc, finished: str, judgement: Doc | None = None, proposal: Doc | None = None
) -> ExperiencePage:
    """The page's contents. A proposal has the features of the service beside it, and their units."""
    settings, contexts = list(experience["settings"]), experience["contexts"]
    machine = experience["machine"]
    about = [
        (M("Processor"), _processor(machine.get("cpu"))),
        (M("Kernel"), str(machine.get("kernel", units.NONE))),
        (M("Services over paths"), str(len(contexts))),
        (M("Finished"), when(finished)),
    ]
    state, verdict, lead = "invalid", M("Measured"), M("What each setting did is below.")
    said: list[Msg] = []
    if judgement:
        state, verdict, lead, said = _verdict(judgement)
    if proposal:
        state, verdict, lead, said = _proposed(experience, proposal)
    plain = {"experience": experience, "judgement": judgement, "proposal": proposal}
    text = json.dumps(plain, indent=1, ensure_ascii=False) + "\n"
    won, copies = proposed(proposal["setting"]) if proposal else ([], {})
    return ExperiencePage(
        proposal["setting"] or "recommend" if proposal else "experience",
        about, state, verdict, lead, said,
        {"gains": [_chart(settings, contexts)]} if contexts else {},
        [
            Download("experience.json", "application/json", text, M("all that this page shows")),
            Download("gains.csv", "text/csv", _csv(settings, contexts),
                     M("what each setting gained, a line for each trial")),
        ],
        _expected(proposal) if proposal else None, _intervals(proposal) if proposal else [],
        _nearest(experience, proposal) if proposal else None,
        _judged(judgement) if judgement else None, _settings_table(settings, contexts),
        winning=won, copies=copies,
    )  # fmt: skip


def _verdict(found: Doc) -> tuple[str, Msg, Msg, list[Msg]]:
    lead = M(
        "Proposals for what was left out: {mine} on average. The best single setting: {static}.",
        mine=_times(found["gain"]), static=_times(found["static_gain"]),
    )  # fmt: skip
    covered = [case["covered"] for case in found["cases"] if case["covered"] is not None]
    total = str(len(found["cases"]))
    said = [
        M("With the best of the settings everywhere: {best}.", best=_times(found["best_gain"])),
        M("{n} of {total} times nothing was proposed.", n=str(found["abstained"]), total=total),
        M("{n} of {total} gains were within their interval.", n=str(sum(covered)), total=str(len(covered))),
    ]  # fmt: skip
    if found["beats"]:
        return "pass", M("Better than any single setting"), lead, said
    if found["worse"]:
        return "fail", M("Worse than the best single setting"), lead, said
    return "invalid", M("Not shown to be better than the best single setting"), lead, said


def _proposed(experience: Doc, proposal: Doc) -> tuple[str, Msg, Msg, list[Msg]]:
    if proposal["missing"]:
        lead = M("The round-trip time or the rate is unknown: give --rtt and --rate.")
        return "invalid", M("Nothing is proposed"), lead, []
    if not proposal["known"]:
        return "invalid", M("Nothing is proposed"), M("Too little is known of services like this one."), []
    best = next((one for one in proposal["expected"] if one["setting"] == proposal["setting"]), None)
    if best is None:
        why = M("No setting is expected to be better than the current one.")
        return "invalid", M("Nothing is proposed"), why, []
    lead = M(
        "{setting} is expected to change {metric}: {change}.",
        setting=Data(best["setting"]), metric=Data(proposal["metric"]), change=_times(best["gain"]),
    )  # fmt: skip
    values = experience["settings"][proposal["setting"]]
    said = [M("{name} = {value}", name=Data(k), value=Data(str(v))) for k, v in values.items()]
    if best["interval"] and best["interval"][0] > 0:
        return "pass", M("Proposed"), lead, said
    return (
        "invalid",
        M("Proposed, with doubt"),
        lead,
        [M("It may also gain nothing: measure it first."), *said],
    )


def _expected(proposal: Doc) -> Table:
    table = Table(
        M("What is expected"),
        [Column(M("Setting"), numeric=False), Column(M("Expected")), Column(M("Interval"), numeric=False)],
    )
    for one in proposal["expected"]:
        ends = one["interval"]
        span = Data(units.span(_times(ends[0]), _times(ends[1]))) if ends else M("too few to tell")
        table.add(data(one["setting"]), Cell(_times(one["gain"]), one["gain"], span), Cell("", None))
    return table


def _intervals(proposal: Doc) -> list[Interval | None]:
    """All on one scale, whose middle is no change."""
    # where the interval is not known, it may be anything
    spans: list[tuple[float, float]] = [
        one["interval"] or (one["gain"], one["gain"]) for one in proposal["expected"]
    ]
    reach: float = min(FURTHEST, max([math.log(1.1), *(abs(end) for span in spans for end in span)])) * 1.05

    def x(value: float) -> float:
        return round(50 + 50 * max(-1.0, min(1.0, value / reach)), 2)

    def mark(low: float, high: float) -> str:
        return "good" if low > 0 else "bad" if high < 0 else "doubt"

    return [
        Interval(x(low), x(high), x(one["gain"]), None, mark(low, high) if one["interval"] else "doubt")
        for one, (low, high) in zip(proposal["expected"], spans, strict=True)
    ]


def _nearest(experience: Doc, proposal: Doc) -> Table:
    """The service beside what it is most like."""
    features = {one["name"]: one["features"] for one in experience["contexts"]}
    near = [(name, far) for name, far in proposal["nearest"] if name in features]
    table = Table(
        M("What it is like"),
        [
            Column(M("Feature"), numeric=False),
            Column(M("This service")),
            *(Column(Data(name)) for name, _ in near),
        ],
        note=M("Distance: {what}. A service with every feature half or twice as large has distance 1.",
               what=", ".join(f"{far:.2g}" for _, far in near) or units.NONE),
    )  # fmt: skip
    for name, value in proposal["features"].items():
        unit = proposal["units"].get(name, "")
        cells = [number(_with_unit(v, unit), v) for v in (value, *(features[n].get(name) for n, _ in near))]
        table.add(data(name), *cells)
    return table


def _judged(found: Doc) -> Table:
    table = Table(
        M("Each left out in turn"),
        [
            Column(M("Left out"), numeric=False), Column(M("Proposed"), numeric=False), Column(M("It gave")),
            Column(M("The best single setting"), numeric=False), Column(M("It gave")),
            Column(M("The best there"), numeric=False), Column(M("It gave")),
        ],
        note=M(
            "Leave-one-out: each context gets a proposal from all others; the outcome is the gain "
            "measured there."
        ),
    )  # fmt: skip
    for case in found["cases"]:
        table.add(
            data(case["context"]),
            _name(case["proposed"], M("nothing") if case["known"] else M("nothing: unlike the others")),
            _gain(case["gain"]),
            _name(case["static"], M("nothing")), _gain(case["static_gain"]),
            _name(case["best"], M("nothing")), _gain(case["best_gain"]),
        )  # fmt: skip
    return table


def _settings_table(settings: Sequence[str], contexts: Sequence[Doc]) -> Table:
    table = Table(
        M("What each setting did"),
        [Column(M("Service and path"), numeric=False), Column(M("Metric"), numeric=False),
         *(Column(Data(name)) for name in settings)],
        note=M("Improvement factor over the baseline, means of trials; a setting that removes all "
               "failures counts as 2.7."),
    )  # fmt: skip
    for one in contexts:
        gains = [_mean(one["gains"].get(name)) for name in settings]
        table.add(data(one["name"]), data(one["metric"]), *(_gain(gain) for gain in gains))
    return table


def _chart(settings: Sequence[str], contexts: Sequence[Doc]) -> dict[str, Any]:
    """Improvement factors, for each service over each path."""
    kinds = {name: (Data(name), place) for place, name in enumerate(settings)}
    found: list[Trial] = [
        (float(place), math.exp(gain), name)
        for place, one in enumerate(contexts, 1)
        for name in settings
        if (gain := _mean(one["gains"].get(name))) is not None
    ]
    title = M("Improvement factor over the baseline, over services and paths in the order of the table")
    return chart(
        "gains", title, "number", [points(M("Gain"), M("Service and path"), "id", found, kinds)], log=True
    )


def _csv(settings: Sequence[str], contexts: Sequence[Doc]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["context", "metric", "setting", "trial", "gain"])
    for one in contexts:
        for name in settings:
            for trial, gain in enumerate(one["gains"].get(name, []), 1):
                writer.writerow([one["name"], one["metric"], name, trial, gain])
    return text.getvalue()


def _processor(cpu: Any) -> str:
    if isinstance(cpu, Mapping):
        return f"{cpu.get('model', units.NONE)} × {cpu.get('cores', units.NONE)}"
    return str(cpu or units.NONE)


def _mean(gains: Sequence[float] | None) -> float | None:
    return math.fsum(gains) / len(gains) if gains else None


def _with_unit(value: float | None, unit: str) -> str:
    return units.percent(value) if unit == "ratio" and value is not None else with_unit(value, unit)


def _times(gain: float) -> str:
    return ratio(math.expm1(gain))


def _gain(gain: float | None) -> Cell:
    if gain is None:
        return number(units.NONE, None)
    mark = "good" if gain > CLEAR else "bad" if gain < -CLEAR else ""
    return number(_times(gain), gain, mark=mark)


def _name(name: str, otherwise: Msg) -> Cell:
    return data(name) if name else Cell(otherwise, "")
