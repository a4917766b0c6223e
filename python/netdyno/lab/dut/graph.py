"""A graph of elements as a device under test: a daemon of its own that runs it between its ports."""

from __future__ import annotations

import time
from typing import Any, ClassVar

from pydantic import Field

from netdyno.lab.dut.base import Settings, url_host
from netdyno.lab.dut.graph_daemon import LOST, GraphDaemon
from netdyno.lab.dut.sessions import KeepsSessions
from netdyno.nat import running

L2FWD: dict[str, Any] = {
    "ports": {"a": {"device": "net_ring0"}, "b": {"device": "net_ring1"}},
    "elements": {"there": {"kind": "l2fwd"}, "back": {"kind": "l2fwd"}},
    "edges": ["a.rx -> there -> b.tx", "b.rx -> back -> a.tx"],
}


class Options(Settings):
    """The graph."""

    graph: dict[str, Any] = Field(default_factory=lambda: dict(L2FWD))
    """As `netdyno graph run` takes it; default: l2fwd between two rings."""


class GraphDut(GraphDaemon, KeepsSessions):
    """A daemon of its own whose graph forwards."""

    driver: ClassVar[str] = "graph"
    Options = Options

    def graph(self) -> dict[str, Any]:
        graph: dict[str, Any] = self.options.graph
        return graph

    def targets(self) -> dict[str, str]:
        return {"udp": f"udp://{url_host(self.place.address)}:7"}

    def counters(self) -> dict[str, float]:
        """How many elements it has; of each the packets in and out, and drops by reason; of each port what it
        lost; a NAT's sessions."""
        stats = self.ask("graph.stats")
        elements = stats["elements"]
        found = {"elements": float(len(elements))}
        for one in elements:
            name = str(one["name"])
            found |= {f"{name}.{key}": float(one[key]) for key in ("packets_in", "packets_out")}
            found |= {f"{name}.{reason}": float(count) for reason, count in one["drops"].items()}
        for port, counts in stats["interfaces"].items():
            found |= {f"{port}.{key}": float(counts[key]) for key in LOST}
        if self._tracks():
            found |= {"sessions": float(self.sessions()), **self.cleared}
        return found

    def _tracks(self) -> bool:
        return any(one.get("kind") == "conntrack" for one in self.options.graph["elements"].values())

    def sessions(self) -> int:
        return sum(int(one["sessions"]) for one in self.ask("nat.status")["workers"])

    def clear_sessions(self) -> float:
        assert self._client is not None
        began = time.monotonic()
        running.clear(self._client, self._graph, all=True)
        return time.monotonic() - began
