"""A graph of elements as a device under test: a daemon of its own that runs it between its ports."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

from pydantic import Field

from netdyno.lab.dut.base import DutSite, Settings, url_host
from netdyno.lab.dut.graph_daemon import LOST, GraphDaemon
from netdyno.lazy import Lazy
from netdyno.systems import named

L2FWD: dict[str, Any] = {
    "ports": {"a": {"device": "net_ring0"}, "b": {"device": "net_ring1"}},
    "elements": {"there": {"kind": "l2fwd"}, "back": {"kind": "l2fwd"}},
    "edges": ["a.rx -> there -> b.tx", "b.rx -> back -> a.tx"],
}


class Options(Settings):
    """The graph."""

    graph: dict[str, Any] = Field(default_factory=lambda: dict(L2FWD))
    """As `netdyno graph run` takes it; default: l2fwd between two rings."""


class Part(ABC):
    """What a graph can do more as it has elements of some kind."""

    def __init__(self, dut: GraphDut) -> None:
        self.dut = dut

    @abstractmethod
    def counters(self) -> dict[str, float]:
        """What it counts beside the elements."""


PARTS: Mapping[str, type[Part]] = Lazy({}, named("elements"))
"""By kind of element; each is a system's (`netdyno/systems.py`)."""


class GraphDut(GraphDaemon):
    """A daemon of its own whose graph forwards."""

    driver: ClassVar[str] = "graph"
    Options = Options

    def __init__(self, place: DutSite, options: Mapping[str, Any] | None = None) -> None:
        super().__init__(place, options)
        self._parts: dict[str, Part] = {}

    def graph(self) -> dict[str, Any]:
        graph: dict[str, Any] = self.options.graph
        return graph

    def targets(self) -> dict[str, str]:
        return {"udp": f"udp://{url_host(self.place.address)}:7"}

    def counters(self) -> dict[str, float]:
        """How many elements it has; of each the packets in and out, and drops by reason; of each port what it
        lost; what its parts count."""
        stats = self.ask("graph.stats")
        elements = stats["elements"]
        found = {"elements": float(len(elements))}
        for one in elements:
            name = str(one["name"])
            found |= {f"{name}.{key}": float(one[key]) for key in ("packets_in", "packets_out")}
            found |= {f"{name}.{reason}": float(count) for reason, count in one["drops"].items()}
        for port, counts in stats["interfaces"].items():
            found |= {f"{port}.{key}": float(counts[key]) for key in LOST}
        for part in self.parts:
            found |= part.counters()
        return found

    @property
    def parts(self) -> list[Part]:
        """What it can do more, by the kinds of its elements."""
        kinds = {str(one.get("kind")) for one in self.options.graph["elements"].values()}
        for kind in kinds & PARTS.keys() - self._parts.keys():
            self._parts[kind] = PARTS[kind](self)
        return [self._parts[kind] for kind in sorted(kinds & self._parts.keys())]
