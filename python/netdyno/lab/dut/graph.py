"""A graph of elements as a device under test: a second daemon that runs it between ports of its own."""

from __future__ import annotations

import contextlib
from typing import Any, ClassVar

from pydantic import Field

from netdyno.core.client import Client
from netdyno.core.daemon import Daemon
from netdyno.errors import Error
from netdyno.lab.dut.base import Dut, Settings, url_host
from netdyno.lab.dut.reflector import Reflector

OPENING = 60.0
"""Seconds that ports may take to open."""
L2FWD: dict[str, Any] = {
    "ports": {"a": {"device": "net_ring0"}, "b": {"device": "net_ring1"}},
    "elements": {"there": {"kind": "l2fwd"}, "back": {"kind": "l2fwd"}},
    "edges": ["a.rx -> there -> b.tx", "b.rx -> back -> a.tx"],
}


class Options(Settings):
    """The graph."""

    graph: dict[str, Any] = Field(default_factory=lambda: dict(L2FWD))
    """As `netdyno graph run` takes it; default: l2fwd between two rings."""


class GraphDut(Dut):
    """A daemon of its own whose graph forwards."""

    driver: ClassVar[str] = "graph"
    Options = Options
    _daemon: Daemon | None = None
    _client: Client | None = None
    _graph = ""

    def setup(self) -> None:
        """Start the daemon and its graph, for as long as we hold the lease."""
        try:
            log = self.place.log or self.folder / "log"
            self._daemon = Daemon(
                self.folder / "nd-graph.sock", log, namespace=self.place.namespace, notes=self.place.notes
            )
            self.process = self._daemon.process
            self._client = self._daemon.connect()
            self._client.acquire()
            made = self._client.call("graph.run", graph=self.options.graph, timeout=OPENING)
            self._graph = str(made["graph"])
        except BaseException:
            self.teardown()
            raise

    def targets(self) -> dict[str, str]:
        return {"udp": f"udp://{url_host(self.place.address)}:7"}

    def counters(self) -> dict[str, float]:
        """How many elements it has; of each the packets in and out, and drops by reason."""
        assert self._client is not None
        elements = self._client.call("graph.stats", graph=self._graph)["elements"]
        found = {"elements": float(len(elements))}
        for one in elements:
            name = str(one["name"])
            found |= {f"{name}.{key}": float(one[key]) for key in ("packets_in", "packets_out")}
            found |= {f"{name}.{reason}": float(count) for reason, count in one["drops"].items()}
        return found

    def version(self) -> str:
        return Reflector(self.place).version()

    def teardown(self) -> None:
        client, self._client = self._client, None
        daemon, self._daemon = self._daemon, None
        if client is not None:
            with contextlib.suppress(Error):
                client.call("graph.stop", graph=self._graph, timeout=5.0)
            client.close()
        if daemon is not None:
            daemon.stop()
            self.process = None
        super().teardown()
