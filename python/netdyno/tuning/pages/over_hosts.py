"""The page of a comparison over hosts of a fleet: what holds over all, and what each host says."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from netdyno.report import units
from netdyno.report.change import shift, words
from netdyno.report.comparison import Row, effects, lost, mechanism, pairs_csv
from netdyno.report.study import Study, document, facts
from netdyno.report.text import Data, M, Msg
from netdyno.tuning.pages.comparison import Comparison, overall


def build(study: Study) -> Comparison:
    """The page's contents."""
    found = study["result"]
    sides = found["a"]["name"], found["b"]["name"]
    charts: dict[str, list[dict[str, Any]]] = {}
    general = [Row("", one["metric"]["name"], one, one["pairs"]) for one in found["metrics"]]
    about = M(
        "The mean of the effects of {n} hosts, with an interval over hosts: how much they differ is in it.",
        n=str(len(found["hosts"])),
    )
    blocks = [effects(0, M("Over all hosts"), about, general, sides, [], charts)]
    downloads = [document(study), pairs_csv(f"{study['name']}-hosts", sides, general)]
    for place, host in enumerate(found["hosts"], 1):
        rows = [Row("", one["metric"]["name"], one, one["pairs"]) for one in host["metrics"]]
        of = M(
            "{n} pairs at a level of {level}.",
            n=str(host["pairs"]),
            level=units.significant(host["level"], 3),
        )
        title = M("Host {name}", name=Data(host["name"]))
        blocks.append(effects(place, title, of, rows, sides, host["counters"], charts))
        downloads.append(pairs_csv(f"{study['name']}-{host['name']}", sides, rows))
    state, verdict, lead = overall([row.found for row in general if row.found])
    if any(one["contradicting"] for one in found["metrics"]):
        state, verdict = "invalid", M("Hosts contradict each other")
    said = [message for one in found["metrics"] for message in _said(one)]
    for host in found["hosts"]:
        said += [M("Host {name}:", name=Data(host["name"])), *lost(host), *mechanism(host)]
    return Comparison(
        f"{sides[1]} / {sides[0]}", facts([study], study), state, verdict, lead, said, charts, downloads,
        blocks,
    )  # fmt: skip


def _said(one: Mapping[str, Any]) -> list[Msg]:
    metric = Data(one["metric"]["name"])
    said = [
        M("{metric}: {change} ({verdict})", metric=metric, change=shift(one), verdict=words(one["verdict"]))
    ]
    if one["contradicting"]:
        said.append(
            M(
                "{metric}: contradicted by {hosts}.",
                metric=metric,
                hosts=Data(", ".join(one["contradicting"])),
            )
        )
    return said
