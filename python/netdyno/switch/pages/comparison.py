"""The page of a comparison of switches: each switch, every two of them, every trial, second by second."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from netdyno.report import units
from netdyno.report.change import MARKS, measured, shift
from netdyno.report.comparison import Block, Row, effects, lost
from netdyno.report.metric_names import listed, metric_name
from netdyno.report.page import Download
from netdyno.report.points import chart, points
from netdyno.report.quantity import scale
from netdyno.report.study import Study, StudyPage, document, facts
from netdyno.report.table import Cell, Column, Table, data, number
from netdyno.report.text import Data, M, Msg
from netdyno.stats.estimate import mean, sd
from netdyno.switch.pages import conditions, path
from netdyno.switch.pages.path import Path


@dataclass(frozen=True)
class Comparison(StudyPage):
    """The template's context."""

    switches: Table | None = None
    blocks: list[Block] = field(default_factory=list)
    path: Path | None = None
    """Of a measured chain: where the time goes."""
    conditions: Table | None = None


def build(study: Study) -> Comparison:
    """The page's contents."""
    found = short(study["result"])
    arms = found["arms"]
    charts: dict[str, list[dict[str, Any]]] = {"trials": repetitions(arms), "series": seconds(arms)}
    blocks, downloads = [], [document(study), series_csv(study["name"], arms)]
    for place, one in enumerate(found["contrasts"]):
        sides = one["a"], one["b"]
        rows = [Row("", f["metric"]["name"], f, f["pairs"]) for f in one["metrics"]]
        title = Data(f"{sides[1]} / {sides[0]}")
        about = M(
            "Over {n} blocks of trials in randomised order, at level {level}.",
            n=str(one["pairs"]), level=units.significant(one["level"], 3),
        )  # fmt: skip
        blocks.append(effects(place, title, about, rows, sides, (), charts))
    state, verdict, lead, said = conclusion(found)
    names = [one["name"] for one in study["result"]["arms"]]
    heading = max(names, key=len) if "chain" in found else " / ".join(names)
    return Comparison(
        heading, facts([study], study), state, verdict, lead, said, charts,
        downloads, table(found), blocks, path.build(found), conditions.table(study),
    )  # fmt: skip


def short(found: Mapping[str, Any]) -> dict[str, Any]:
    """Lengths of a chain by their number of functions: their whole paths are too long to be compared."""
    if "chain" not in found:
        return dict(found)
    of = {
        one["name"]: f"{one['setting']['functions']} VNF"
        for one in found["arms"]
        if "functions" in one["setting"]
    }
    arms = [{**one, "name": of.get(one["name"], one["name"])} for one in found["arms"]]
    contrasts = [
        {**one, "a": of.get(one["a"], one["a"]), "b": of.get(one["b"], one["b"])}
        for one in found["contrasts"]
    ]
    return {**found, "arms": arms, "contrasts": contrasts}


def conclusion(found: Mapping[str, Any]) -> tuple[str, Msg, Msg, list[Msg]]:
    """Which differences are shown, and which are not."""
    shown: list[Msg] = []
    same: list[Msg] = []
    for one in found["contrasts"]:
        sides = Data(f"{one['b']} / {one['a']}")
        for f in one["metrics"]:
            metric = metric_name(f["metric"]["name"])
            if f["verdict"] in MARKS:
                shown.append(M("{sides}: {metric} {change}", sides=sides, metric=metric, change=shift(f)))
            elif f["verdict"] in ("not shown", "no effect"):
                same.append(M("{sides} {metric}", sides=sides, metric=metric))
    said = list(shown)
    if same:
        said.append(M("No difference shown: {what}", what=listed(same)))
    for one in found["contrasts"]:
        said += [
            M("{sides}: {what}", sides=Data(f"{one['b']} / {one['a']}"), what=gone) for gone in lost(one)
        ]
    count = str(len(found["contrasts"]))
    if any(not one["metrics"] or any(f["verdict"] == "too few pairs" for f in one["metrics"])
           for one in found["contrasts"]):  # fmt: skip
        return "invalid", M("Too few trials"), M("Too few trials are valid for anything to be shown."), said
    if any(one["unequal"] for one in found["contrasts"]):
        lead = M("One switch lost more of its trials than another: nothing is concluded from the rest.")
        return "invalid", M("Unequal discards"), lead, said
    if shown:
        lead = M("{n} comparisons; the level is shared by all of them and their metrics.", n=count)
        if len(found["contrasts"]) == 1:
            lead = M("One comparison; the level is shared by its metrics.")
        differ = M("Lengths of the chain differ") if "chain" in found else M("The switches differ")
        return "pass", differ, lead, said
    return "same", M("No difference shown"), M("No difference is shown that counts."), said


def table(found: Mapping[str, Any]) -> Table:
    """A line for each switch."""
    arms = found["arms"]
    metrics = {name: of["unit"] for one in arms for name, of in one["metrics"].items()}
    chain = "chain" in found
    made = Table(
        M("Lengths of the chain") if chain else M("Switches"),
        [
            Column(M("Functions") if chain else M("Switch"), numeric=False),
            Column(M("Version"), numeric=False), Column(M("Trials")),
            *(Column(metric_name(name)) for name in metrics), Column(M("Variation of throughput")),
            Column(M("CPU of the switch")), Column(M("Packets that it dropped")),
            Column(M("Packets sent and not received")),
        ],
        note=M(
            "Mean and standard deviation over trials; variation is their ratio. A switch in the kernel has "
            "no process whose CPU time could be told. Packets sent and not received: those that client and "
            "server sent, less those that the other received, both ways."
        ),
    )  # fmt: skip
    for one in arms:
        valid = [t for t in one["trials"] if t["valid"] and t["seconds"]]
        cells = []
        for name, unit in metrics.items():
            values = [v for v in one["metrics"][name]["values"] if v is not None]
            cells.append(
                number(measured(mean(values), sd(values), unit), mean(values)) if values else _none()
            )
        rates = [v for v in one["metrics"].get("throughput", {"values": []})["values"] if v]
        variation = sd(rates) / mean(rates) if rates else None
        cpu = mean([t["cpu"] / t["seconds"] for t in valid]) if valid else 0.0
        counted = [t["dropped"] for t in valid if t["dropped"] is not None]
        gone = [sum(t["missing"].values()) for t in valid if t.get("missing")]
        made.add(
            data(one["name"]),
            data(one["version"]),
            number(str(len(valid)), len(valid), note=_ceiling(valid)),
            *cells,
            number(units.percent(variation), variation) if variation is not None else _none(),
            number(units.percent(cpu), cpu) if cpu else _none(),
            number(units.significant(mean(counted), 4), mean(counted), note=_reasons(valid))
            if counted
            else Cell(M("not counted"), None, _reasons(valid)),
            number(units.significant(mean(gone), 4), mean(gone)) if gone else _none(),
        )
    return made


def _ceiling(trials: Sequence[Mapping[str, Any]]) -> Msg | None:
    """That a search for the highest rate ended where it began."""
    count = sum(bool(t.get("at_most")) for t in trials)
    return M("{n} reached the highest rate that was tried", n=str(count)) if count else None


def _reasons(trials: Sequence[Mapping[str, Any]]) -> Data | None:
    """Drops by the switch's own reasons, means of a trial."""
    names = dict.fromkeys(name for t in trials for name in t.get("reasons", ()))
    said = [
        f"{units.significant(mean([t.get('reasons', {}).get(name, 0.0) for t in trials]), 4)} {name}"
        for name in names
    ]
    return Data(", ".join(said)) if said else None


def _none() -> Any:
    return number(units.NONE, None)


def repetitions(arms: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Each metric, trial by trial."""
    kinds = {str(i): (Data(one["name"]), i) for i, one in enumerate(arms)}
    made = []
    for name in arms[0]["metrics"]:
        unit = arms[0]["metrics"][name]["unit"]
        factor, own = scale(unit)
        found = [
            (float(number), value * factor, str(i))
            for i, one in enumerate(arms)
            for number, value in enumerate(one["metrics"][name]["values"], 1)
            if value is not None
        ]
        title = metric_name(name)
        view = points(title, M("Repetition"), "id", found, kinds, joined=tuple(kinds))
        made.append(chart(f"trials-{name}", title, own, [view]))
    return made


def seconds(arms: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Throughput in each second, all repetitions one after the other."""
    factor, own = scale("bit/s")
    kinds = {str(i): (Data(one["name"]), i) for i, one in enumerate(arms)}
    found = [
        (float(at), value * factor, str(i))
        for i, one in enumerate(arms)
        for at, value in enumerate(
            (value for trial in one["trials"] for value in trial["series"].get("throughput", ())), 1
        )
    ]
    if not found:
        return []
    view = points(metric_name("throughput"), M("Second, all repetitions in a row"), "id", found, kinds,
                  joined=tuple(kinds))  # fmt: skip
    return [chart("series", M("Throughput in each second"), own, [view])]


def series_csv(name: str, arms: Sequence[Mapping[str, Any]]) -> Download:
    """Every second of every trial as a line."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["switch", "repetition", "valid", "metric", "second", "value"])
    for one in arms:
        for repetition, trial in enumerate(one["trials"], 1):
            for metric, values in trial["series"].items():
                for at, value in enumerate(values, 1):
                    writer.writerow([one["name"], repetition, int(trial["valid"]), metric, at, value])
    return Download(f"{name}-series.csv", "text/csv", text.getvalue(), M("every second of every trial"))
