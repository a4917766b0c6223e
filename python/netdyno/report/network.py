"""The networks of an experiment as drawings: hosts, links with their impairment, and what passed them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from markupsafe import Markup

from netdyno import reading
from netdyno.core.result import LinkReport, Result
from netdyno.report.diagram import Box, Diagram, Edge, svg
from netdyno.report.section import Section
from netdyno.report.text import M, html

FILE = "topology.json"
"""In a run's folder: `[{legs, topology, duts: {NAME: {driver, host}}}]`, each network once."""
LOST = ("lost", "tail_dropped", "red_dropped", "codel_dropped", "queue_full", "not_taken")
"""Counters of packets that an impaired link did not deliver."""


def diagram(network: Mapping[str, Any], links: Iterable[LinkReport] = ()) -> Diagram:
    """The drawing of a network; with what impaired links did, in packets."""
    topology, duts = network["topology"], network.get("duts") or {}
    boxes = []
    for name, host in topology["hosts"].items():
        ends = [end for link in topology.get("links") or () for end in (link["a"], link["b"])]
        addresses = [text for end in ends if end["host"] == name for text in end.get("addresses") or ()]
        stands = [f"{dut}: {one['driver']}" for dut, one in duts.items() if one.get("host") == name]
        notes = (str((host or {}).get("role") or "dut"), *stands, *addresses[:3])
        boxes.append(Box(name, name, notes, "own" if notes[0] == "generator" else ""))
    passed = {(one.a, one.b): counted(one.a_to_b, one.b_to_a) for one in links}
    edges = []
    for link in topology.get("links") or ():
        ends = [f"{end['host']}.{end.get('name') or 'eth0'}" for end in (link["a"], link["b"])]
        label = passed.get((ends[0], ends[1])) or impairment(link.get("impair"))
        edges.append(Edge(link["a"]["host"], link["b"]["host"], label, both=True))
    return Diagram(boxes, edges)


def counted(there: Mapping[str, int], back: Mapping[str, int]) -> str:
    """Packets of a link, each way, with those that were lost."""

    def way(arrow: str, counts: Mapping[str, int]) -> str:
        lost = sum(int(counts.get(key, 0)) for key in LOST)
        return f"{arrow} {int(counts.get('packets_out', 0)):,}" + (f" (−{lost:,})" if lost else "")

    return f"{way('→', there)}  {way('←', back)}"


def impairment(spec: Any) -> str:
    """A link's impairment in a line: a preset, or each way."""
    if not spec:
        return ""
    if isinstance(spec, str):
        return spec
    there, back = (_words(spec.get(way)) for way in ("a_to_b", "b_to_a"))
    return (
        there
        if there == back
        else " ".join(f"{arrow} {one}" for arrow, one in (("→", there), ("←", back)) if one)
    )


def _words(way: Any) -> str:
    """`delay constant 5ms, loss 1%`: the first of what a direction does."""
    if not isinstance(way, Mapping):
        return ""
    plain = []
    for key, value in way.items():
        inner = value.items() if isinstance(value, Mapping) else [("constant", value)]
        words = [f"{k} {v}" for k, v in inner if isinstance(v, str | int | float)]
        plain.append(f"{key} {' '.join(words)}".replace("constant ", ""))
    return ", ".join(plain[:2]) + ("…" if len(plain) > 2 else "")


def networks(folder: Path) -> list[dict[str, Any]]:
    """Those of a run."""
    path = folder / FILE
    if not path.is_file() or path.is_symlink():
        return []
    found = json.loads(reading.text(path))
    return [one for one in found if isinstance(one, dict) and "topology" in one]


def links(result: Result, network: Mapping[str, Any], leg: str = "", trial: int = 0) -> list[LinkReport]:
    """What the impaired links of a network did in a trial of a leg, or of the first one in it."""
    for one in result.legs:
        if one.name in network["legs"] and leg in ("", one.name) and len(one.repetitions) > trial:
            return one.repetitions[trial].links
    return []


def document(network: Mapping[str, Any], passed: Iterable[LinkReport] = ()) -> dict[str, Any]:
    """A network as the dashboard takes it."""
    return {"legs": network.get("legs") or [], **diagram(network, passed).document()}


def sections(folder: Path, result: Result) -> list[Section]:
    """The section of a report; none for a run on this machine as it is."""
    found = networks(folder)
    parts = []
    counts = False
    for one in found:
        passed = links(result, one)
        counts |= bool(passed)
        drawn = diagram(one, passed)
        title = Markup("<h3>{}</h3>").format(", ".join(one["legs"])) if len(found) > 1 else ""
        rows = Markup("").join(
            Markup('<tr><th scope="row">{} ↔ {}</th><td>{}</td></tr>').format(
                edge.source, edge.target, edge.label
            )
            for edge in drawn.edges
        )
        parts.append(
            Markup('<div class="block">{}<div class="scroll" tabindex="0">{}</div>'
                   '<table class="sr"><tbody>{}</tbody></table></div>').format(
                       title, Markup(svg(drawn, "network")), rows)
        )  # fmt: skip
    if counts:
        about = M("Through impaired links: packets of the first trial each way, and how many were lost.")
        parts.append(Markup('<p class="note">{}</p>').format(html(about)))
    return [Section("network", M("Network"), Markup("").join(parts))] if parts else []
