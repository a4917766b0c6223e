"""Graphs of packet elements on the dashboard: those that run here, with counters, and those of presets."""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from netdyno import config, paths
from netdyno.cli import graph as verb
from netdyno.cli import graph_view
from netdyno.core.client import Client
from netdyno.errors import Error
from netdyno.experiment import presets
from netdyno.report.diagram import Box, Diagram, Edge

PATIENCE = 5.0
"""Seconds within which a daemon answers."""
_PLACES = threading.BoundedSemaphore(2)
"""Presets that are being planned: each takes a daemon."""


def graphs(_: Mapping[str, str]) -> dict[str, Any]:
    """What can be watched here, and presets that go over DPDK ports."""
    running = [
        {"daemon": path.stem, "name": name, "of": next(iter(whose), "run")}
        for path, name, whose in verb.every()
        if _goes_over_ports(path, whose)
    ]
    return {"running": running, "presets": _over_ports()}


def graph(asked: Mapping[str, str]) -> dict[str, Any]:
    """A graph that runs: its drawing, and its counters now."""
    daemon, name, of = (asked.get(key, "") for key in ("daemon", "name", "of"))
    path = next((one for one in paths.runtime().glob("*.sock") if one.stem == daemon), None)
    if path is None or of not in ("run", "graph", "link"):
        raise Error("ND-104-28", "it does not run any more", at=name[:80], fix="Choose another one")
    whose: dict[str, Any] = {} if of == "run" else {of: name}
    with Client(path, PATIENCE) as client:
        shape, stats = client.call("graph.describe", **whose), client.call("graph.stats", **whose)
    return drawn(shape, stats)


def plan(asked: Mapping[str, str]) -> dict[str, Any]:
    """The graphs of a preset, leg by leg."""
    preset = asked.get("preset", "")
    if preset not in _over_ports():
        fix = f"There are {', '.join(_over_ports())}"
        raise Error("ND-104-23", "it is no preset over DPDK ports", at=preset[:80], fix=fix)
    if not _PLACES.acquire(blocking=False):
        raise Error("ND-104-11", "other presets are being planned", fix="Try again in some seconds")
    try:
        found = verb.planned(preset)
    finally:
        _PLACES.release()
    return {"legs": [{"name": name} | drawn(shape) for name, shape in found.items()]}


def drawn(shape: Mapping[str, Any], stats: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """A drawing of a graph, a row for each element, and what passed each edge where that can be told."""
    counts = {one["name"]: one for one in stats["elements"]} if stats else {}
    ways = list({(one["from"], one["to"]): one for one in shape["edges"]}.values())
    into, out = Counter(one["to"] for one in ways), Counter(one["from"] for one in ways)

    def passed(edge: Mapping[str, Any]) -> int | None:
        """Elements count, edges do not: the same where it is the only one into an element, or out of it."""
        source, target = counts.get(edge["from"]), counts.get(edge["to"])
        if target and into[edge["to"]] == 1:
            return int(target["packets_in"])
        return int(source["packets_out"]) if source and out[edge["from"]] == 1 else None

    edges = [Edge(one["from"], one["to"], dashed=one["ring"]) for one in ways]
    boxes = [Box(one["name"], one["name"], (one["kind"], _place(one))) for one in shape["elements"]]
    rows = [
        {
            "name": one["name"], "kind": one["kind"], "worker": one["worker"], "core": one["core"],
            "to": [f"{e['to']} (ring)" if e["ring"] else e["to"] for e in ways if e["from"] == one["name"]],
            "counts": counts.get(one["name"]),
        }
        for one in shape["elements"]
    ]  # fmt: skip
    return {
        **Diagram(boxes, edges).document(),
        "passed": {edge.key: passed(one) for edge, one in zip(edges, ways, strict=True)},
        "elements": rows,
        "status": stats["status"] if stats else None,
        "losses": graph_view.losses(stats) if stats else [],
    }


def _place(element: Mapping[str, Any]) -> str:
    core = element["core"]
    return f"worker {element['worker']}" + ("" if core is None else f", core {core}")


def _goes_over_ports(path: Path, whose: Mapping[str, Any]) -> bool:
    if whose:
        return True
    try:
        with Client(path, PATIENCE) as client:
            client.call("graph.describe")
    except Error:
        return False
    return True


@cache
def _over_ports() -> tuple[str, ...]:
    found = []
    for name in presets.names():
        path = presets.path(name)
        if path and '"dpdk"' in json.dumps(config.read(path), default=str):
            found.append(name)
    return tuple(found)
