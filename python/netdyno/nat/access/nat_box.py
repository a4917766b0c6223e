"""The NAT of DPDK ports: a daemon in the box's namespace that runs its graph."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from netdyno.core.client import Client
from netdyno.core.daemon import Daemon
from netdyno.errors import Error
from netdyno.nat import config
from netdyno.nat import graph as nat_graph
from netdyno.nat.access import plan
from netdyno.nat.cores import Topology
from netdyno.system.machine import Core

OPENING = 60.0
"""Seconds that ports may take to open."""
FRAMES = 4096
"""Frames that a port holds each way; as usual these are 512."""
UNKNOWN_METHOD = "ND-104-28"
PAGE = 1000
"""Sessions that are asked for at once."""


def configuration(leases: Path) -> dict[str, Any]:
    """Only who has a lease is let through; each is a site, whose public address comes by DHCP."""
    return {
        "format": "netdyno-nat/1",
        "name": "demo",
        "inside": {"device": _device(0, plan.INSIDE), "ip": f"{plan.ROUTER_INSIDE}/{plan.SEGMENT}"},
        "outside": {
            "device": _device(1, plan.OUTSIDE),
            "ip": f"{plan.BOX}/{plan.SEGMENT}",
            "gateway": plan.ROUTER,
        },
        "sites": {"most": 16, "by": "subscriber"},
        "leases": {"file": str(leases), "server": "kea"},
    }


def graph(leases: Path, core: int) -> dict[str, Any]:
    """The graph of this configuration, on one core."""
    nat = config.checked(configuration(leases), "the NAT of the demo")
    there = Topology.of([Core(core, 0, (core,))])
    return nat_graph.document(nat, nat_graph.layout(nat, there))


def _device(number: int, interface: str) -> str:
    """A kernel interface, with room for what comes while the worker of a small machine waits for its core."""
    return f"net_af_packet{number},iface={interface},framecnt={FRAMES},qdisc_bypass=1"


class NatBox:
    """The graph at work; it ends with the stack."""

    def __init__(
        self, space: str, socket: Path, log: Path, document: Mapping[str, Any], stack: ExitStack
    ) -> None:
        self.daemon = stack.enter_context(Daemon(socket, log, namespace=space))
        self._client: Client = stack.enter_context(self.daemon.connect())
        self._client.acquire()
        self.graph = str(self._client.call("graph.run", graph=document, timeout=OPENING)["graph"])

    def shape(self) -> dict[str, Any]:
        """Its elements and edges."""
        return dict(self._client.call("graph.describe", graph=self.graph))

    def stats(self) -> dict[str, Any]:
        """What each element did since the start. Raises when a port was lost."""
        found: dict[str, Any] = self._client.call("graph.stats", graph=self.graph)
        if found["status"].get("error"):
            raise Error.of(found["status"]["error"])
        return found

    def sites(self) -> list[dict[str, Any]]:
        """The sites, each with its public address where it has one."""
        return list(self._client.call("nat.sites", graph=self.graph)["sites"])

    def sessions(self) -> list[dict[str, Any]] | None:
        """All sessions; None where the daemon tells of none."""
        try:
            return list(self._pages())
        except Error as e:
            if e.code == UNKNOWN_METHOD:
                return None
            raise

    def _pages(self) -> Iterator[dict[str, Any]]:
        cursor: str | None = None
        while True:
            page = self._client.call("nat.sessions", graph=self.graph, limit=PAGE, cursor=cursor)
            yield from page["sessions"]
            cursor = page.get("next")
            if cursor is None:
                return
