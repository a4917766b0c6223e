"""The page of a tuning: which parameters matter, what was tried, what was traded for what, what is proven."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from netdyno.report import units
from netdyno.report.change import MARKS, ends, shift, words
from netdyno.report.comparison import lost, mechanism
from netdyno.report.points import charts_of_parameters, charts_of_screening, tried_chart
from netdyno.report.quantity import sized, with_unit
from netdyno.report.study import Study, StudyPage, document, facts
from netdyno.report.table import Cell, Column, Table, data, number
from netdyno.report.text import Data, M, Msg
from netdyno.stats.winner import never_hit
from netdyno.tuning.pages.proposed_setting import winning


@dataclass(frozen=True)
class Bar:
    """The size of an effect and the least that would have shown, of the drawing's width (0 to 100)."""

    size: float
    least: float
    matters: bool


@dataclass(frozen=True)
class Effects:
    """One metric of a screening."""

    metric: str
    about: Msg
    table: Table
    bars: list[Bar]
    charts: str
    """Where its charts stand in the page's data."""


@dataclass(frozen=True)
class Explorer(StudyPage):
    """The template's context."""

    effects: list[Effects] = field(default_factory=list)
    trade: Table | None = None
    tried: Table | None = None


def build(studies: Sequence[Study]) -> Explorer:
    """The page's contents."""
    screening = next((s for s in studies if s["kind"] == "screen"), None)
    search = next((s for s in studies if s["kind"] == "search"), None)
    main = search or screening
    assert main is not None, "a page is of at least one study"
    charts: dict[str, list[dict[str, Any]]] = {}
    effects = _effects(screening, charts) if screening else []
    trade = tried = None
    if search:
        charts["tried"] = [tried_chart(search)]
        trade, tried = trade_off(search), everything(search)
        state, verdict, lead, said = _of_search(search)
    else:
        state, verdict, lead, said = _of_screening(main)
    if found := charts_of_parameters(studies):
        charts["parameters"] = found
    won, copies = winning(main)
    return Explorer(
        str(main["name"]), facts(studies, main), state, verdict, lead, said, charts,
        [document(s) for s in studies], effects, trade, tried, winning=won, copies=copies,
    )  # fmt: skip


def _effects(study: Study, charts: dict[str, list[dict[str, Any]]]) -> list[Effects]:
    found = study["result"]
    views = []
    for place, (name, metric) in enumerate(found["metrics"].items()):
        table = Table(
            M("Effect of each parameter"),
            [
                Column(M("Parameter"), numeric=False),
                Column(M("Mean effect")),
                Column(M("Depends on others")),
                Column(M("p (Holm)")),
                Column(M("Share")),
                Column(M("Finding"), numeric=False),
                Column(M("Size"), numeric=False),
            ],
        )
        least, at = found["visible"][name], found["baseline"]["values"][name]
        largest = max([least, *(e["mu_star"] for e in metric["effects"])]) or 1.0
        bars = []
        for e in metric["effects"]:
            share = metric["importance"][e["name"]]
            ratio = e["sigma"] / e["mu_star"] if e["mu_star"] else None
            table.add(
                data(e["name"]),
                number(sized(metric, e["mu_star"], at), e["mu_star"]),
                number(units.significant(ratio, 2) if ratio is not None else units.NONE, ratio),
                number(units.significant(e["p"], 2) if e["p"] is not None else units.NONE, e["p"]),
                number(units.percent(share) if share else units.NONE, share),
                _finding(e),
                Cell("", None),
            )
            bars.append(
                Bar(
                    round(100 * e["mu_star"] / largest, 2),
                    round(100 * least / largest, 2),
                    bool(e["matters"]),
                )
            )
        about = M(
            "The baseline is {value}. One trial of it varies by {spread}, one on the walks by {walking}. "
            "Minimum detectable effect: {least}.",
            value=with_unit(at, metric["unit"]),
            spread=varies(metric, found["spread"][name], at),
            walking=varies(metric, found["walking"][name], at),
            least=sized(metric, least, at),
        )
        where = f"effects-{place}"
        charts[where] = charts_of_screening(name, metric)
        views.append(Effects(name, about, table, bars, where))
    return views


def varies(metric: Mapping[str, Any], spread: float, at: float) -> str:
    """What one trial varies by."""
    return sized(metric, spread, at) if metric["zero_is_best"] else units.percent(spread)


def _finding(e: Mapping[str, Any]) -> Cell:
    if e["matters"] is None:
        return Cell(M("not known: {n} steps failed", n=str(e["failed"])), 1)
    if e["doubtful"]:
        return Cell(M("not sure"), 2)
    if not e["matters"]:
        return Cell(M("no effect shown"), 0)
    return Cell(M("better towards {value}", value=Data(str(e["better"]))), 3)


def _of_screening(study: Study) -> tuple[str, Msg, Msg, list[Msg]]:
    found = study["result"]
    names = list(dict.fromkeys(e["name"] for m in found["metrics"].values() for e in m["effects"]))
    lead = M(
        "{n} of {total} parameters affect the metrics.",
        n=str(len(found["survivors"])),
        total=str(len(names)),
    )
    said = []
    if found["survivors"]:
        said.append(M("They are, the largest first: {names}.", names=Data(", ".join(found["survivors"]))))
    if found["failed"]:
        said.append(M("{n} of {total} trials failed.", n=str(found["failed"]), total=str(found["trials"])))
    return "pass" if found["survivors"] else "invalid", M("Screened"), lead, said


def _of_search(study: Study) -> tuple[str, Msg, Msg, list[Msg]]:
    found = study["result"]
    said = [
        M(
            "{n} settings were tried; {failed} failed, {lost} were disturbed, and {beyond} were beyond a "
            "limit.",
            n=str(len(found["tried"])),
            failed=str(sum(not t["gains"] and not t.get("lost") for t in found["tried"])),
            lost=str(sum(bool(t.get("lost")) for t in found["tried"])),
            beyond=str(sum(bool(t["gains"] and t["broken"]) for t in found["tried"])),
        )
    ]
    for proof in found["proofs"]:
        mine = _finding_of(proof, proof["objective"])
        what = Data(proof["objective"])
        if proof["proven"] and mine:
            said.append(
                M("{metric}: {change}, over {n} fresh pairs of trials.",
                  metric=what, change=shift(mine), n=str(mine["effect"]["n"]))
            )  # fmt: skip
            said += mechanism(proof["comparison"])
        else:
            said.append(M("{metric}: {verdict}.", metric=what, verdict=words(proof["verdict"])))
            if never_hit(c["a"] for c in proof["comparison"]["counters"]):
                said.append(M("{metric}: the baseline never hit this limit.", metric=what))
        if proof.get("failed", [0, 0])[0] > proof.get("failed", [0, 0])[1]:
            said.append(M("{metric}: {n} trials failed with it.", metric=what, n=str(proof["failed"][0])))
        said += lost(proof["comparison"])
    if found["proven"]:
        lead = M("Re-tested against the baseline, the best setting is better.")
        return "pass", M("Proven better"), lead, said
    if any(proof["verdict"] == "too few pairs" for proof in found["proofs"]):
        lead = M("The best setting was re-tested, but too few pairs of trials are valid to judge it.")
        return "invalid", M("Too few pairs"), lead, said
    if any(proof["verdict"] == "invalid" for proof in found["proofs"]):
        lead = M("One setting lost more of its trials than the other: nothing is concluded from the rest.")
        return "invalid", M("Unequal discards"), lead, said
    if found["proofs"]:
        lead = M("Re-tested against the baseline, the best setting is not proven better.")
        worse = any(proof["verdict"] == "worse" for proof in found["proofs"])
        return "fail" if worse else "same", M("Not proven"), lead, said
    return "same", M("Nothing better"), M("No setting looked better than the baseline."), said


def _finding_of(proof: Mapping[str, Any], metric: str) -> Mapping[str, Any] | None:
    return next((f for f in proof["comparison"]["metrics"] if f["metric"]["name"] == metric), None)


def trade_off(study: Study) -> Table | None:
    """What each best setting does to every metric, beside the baseline."""
    found = study["result"]
    if not found["proofs"]:
        return None
    table = Table(
        M("Trade-off"),
        [
            Column(M("Metric"), numeric=False),
            Column(M("Baseline")),
            *(Column(M("Best for {metric}", metric=Data(p["objective"]))) for p in found["proofs"]),
        ],
        note=M("Changes with their intervals, over fresh pairs of trials of each setting and the baseline."),
    )
    for name, metric in found["metrics"].items():
        cells = []
        for proof in found["proofs"]:
            one = _finding_of(proof, name)
            if one is None:
                cells.append(number(units.NONE, None))
                continue
            mark = MARKS.get(one["verdict"], "")
            text = M("{change} ({verdict})", change=shift(one), verdict=words(one["verdict"]))
            cells.append(Cell(text, one["effect"]["change"], ends(one) or None, mark))
        value = found["baseline"]["values"][name]
        table.add(data(name), number(with_unit(value, metric["unit"]), value), *cells)
    return table


def everything(study: Study) -> Table:
    """Each setting that was tried."""
    found = study["result"]
    table = Table(
        M("What was tried"),
        [
            Column(M("Trial")),
            *(Column(Data(n)) for n in found["metrics"]),
            Column(M("Kept within the limits"), numeric=False),
            Column(M("Setting"), numeric=False),
        ],
    )
    for i, t in enumerate(found["tried"], 1):
        kept = Cell(M("yes"), 1, mark="good") if t["feasible"] else Cell(M("no"), 0, _why(t), mark="bad")
        if t.get("lost"):
            kept = Cell(units.NONE, None, _why(t))
        setting = ", ".join(f"{k}={v}" for k, v in t["setting"].items())
        table.add(
            number(str(i), i),
            *(
                number(with_unit(t["metrics"].get(n), m["unit"]), t["metrics"].get(n))
                for n, m in found["metrics"].items()
            ),
            kept,
            Cell(Data(setting) if setting else M("the baseline"), setting, mark="code"),
        )
    return table


def _why(tried: Mapping[str, Any]) -> Data:
    return Data(", ".join(tried["broken"]) or tried["why"])
