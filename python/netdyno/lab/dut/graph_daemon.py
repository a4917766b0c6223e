"""A device under test that is a daemon of its own with a graph between its ports."""

from __future__ import annotations

import contextlib
from abc import abstractmethod
from typing import Any

from netdyno.core.client import Client
from netdyno.core.daemon import Daemon
from netdyno.core.result import DutWorker
from netdyno.core.wire import Pauses
from netdyno.errors import Error
from netdyno.lab.dut.base import Dut
from netdyno.lab.dut.reflector import Reflector

OPENING = 60.0
"""Seconds that ports may take to open."""
LOST = ("rx_dropped", "tx_dropped", "rx_errors", "tx_errors")
"""What a port counts that no element does."""


class GraphDaemon(Dut):
    """Its graph forwards, or answers, as long as we hold the daemon's lease."""

    _daemon: Daemon | None = None
    _client: Client | None = None
    _graph = ""

    @abstractmethod
    def graph(self) -> dict[str, Any]:
        """As `netdyno graph run` takes it."""

    def setup(self) -> None:
        """Start the daemon and its graph."""
        graph = self.graph()
        ports = graph.get("ports")
        try:
            log = self.place.log or self.folder / "log"
            self._daemon = Daemon(
                self.folder / "nd-graph.sock", log, namespace=self.place.namespace, notes=self.place.notes,
                cores=self.place.cores,
            )  # fmt: skip
            self.process = self._daemon.process
            self._client = self._daemon.connect()
            self._client.acquire()
            self._daemon.opens(ports.values() if isinstance(ports, dict) else ())
            self._graph = str(self._client.call("graph.run", graph=graph, timeout=OPENING)["graph"])
            self._daemon.opened()
        except BaseException:
            self.teardown()
            raise

    def ask(self, method: str, **params: Any) -> dict[str, Any]:
        """What the daemon says of the graph."""
        assert self._client is not None
        said: dict[str, Any] = self._client.call(method, graph=self._graph, **params)
        return said

    def workers(self) -> list[DutWorker]:
        return [
            DutWorker(
                worker=one["worker"],
                core=one.get("core"),
                pauses=one.get("pauses") or Pauses(),
                long_turns=one.get("long_turns") or Pauses(),
            )
            for one in self.ask("graph.stats")["workers"]
        ]

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
