"""A graph of elements as a device under test: a second daemon that runs it between ports of its own."""

from __future__ import annotations

import contextlib
import time
from typing import Any, ClassVar

from pydantic import Field

from netdyno.core.client import Client
from netdyno.core.daemon import Daemon
from netdyno.core.model import Pauses
from netdyno.core.result import DutWorker
from netdyno.errors import Error
from netdyno.lab.dut.base import Dut, Settings, url_host
from netdyno.lab.dut.reflector import Reflector
from netdyno.lab.dut.sessions import KeepsSessions
from netdyno.nat import running

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


class GraphDut(Dut, KeepsSessions):
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
        """How many elements it has; of each the packets in and out, and drops by reason; a NAT's sessions."""
        assert self._client is not None
        elements = self._client.call("graph.stats", graph=self._graph)["elements"]
        found = {"elements": float(len(elements))}
        for one in elements:
            name = str(one["name"])
            found |= {f"{name}.{key}": float(one[key]) for key in ("packets_in", "packets_out")}
            found |= {f"{name}.{reason}": float(count) for reason, count in one["drops"].items()}
        if self._tracks():
            found |= {"sessions": float(self.sessions()), **self.cleared}
        return found

    def workers(self) -> list[DutWorker]:
        assert self._client is not None
        stats = self._client.call("graph.stats", graph=self._graph)
        return [
            DutWorker(
                worker=one["worker"],
                core=one.get("core"),
                pauses=one.get("pauses") or Pauses(),
                long_turns=one.get("long_turns") or Pauses(),
            )
            for one in stats["workers"]
        ]

    def _tracks(self) -> bool:
        return any(one.get("kind") == "conntrack" for one in self.options.graph["elements"].values())

    def sessions(self) -> int:
        assert self._client is not None
        workers = self._client.call("nat.status", graph=self._graph)["workers"]
        return sum(int(one["sessions"]) for one in workers)

    def clear_sessions(self) -> float:
        assert self._client is not None
        began = time.monotonic()
        running.clear(self._client, self._graph, all=True)
        return time.monotonic() - began

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
