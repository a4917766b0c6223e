"""The NAT of DPDK ports: a daemon in the box's namespace that runs its graph."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from netdyno.core.client import Client
from netdyno.core.daemon import Daemon
from netdyno.errors import Error
from netdyno.lab.access import plan

OPENING = 60.0
"""Seconds that ports may take to open."""
FRAMES = 4096
"""Frames that a port holds each way; as usual these are 512."""
UNKNOWN_METHOD = "ND-104-28"
PAGE = 1000
"""Sessions that are asked for at once."""


def graph(leases: Path, core: int) -> dict[str, Any]:
    """The NAT on one core: only who has a lease is let through."""
    return {
        "description": "A NAT between the access network and the world, that follows the leases of Kea.",
        "ports": {
            "inside": {
                "device": _device(0, plan.INSIDE),
                "ip": f"{plan.ROUTER_INSIDE}/{plan.SEGMENT}",
            },
            "outside": {"device": _device(1, plan.OUTSIDE), "ip": f"{plan.BOX}/{plan.SEGMENT}"},
        },
        "elements": {
            "in-validity": {"kind": "validity", "port": "inside"},
            "out-validity": {"kind": "validity", "port": "outside"},
            "nat": {"kind": "nat", "leases": {"file": str(leases), "server": "kea"}},
            "conntrack": {
                "kind": "conntrack", "inside": "inside", "outside": "outside", "pool": [plan.POOL],
            },
            "in-host": {"kind": "nat-host", "port": "inside"},
            "out-host": {
                "kind": "nat-host", "port": "outside", "gateway": plan.ROUTER, "answers_for": [plan.POOL],
            },
        },
        "edges": [
            "inside.rx -> in-validity -> nat -> conntrack",
            "outside.rx -> out-validity -> conntrack",
            "conntrack.outside -> outside.tx",
            "conntrack.inside -> inside.tx",
            "in-validity.local -> in-host -> inside.tx",
            "out-validity.local -> out-host -> outside.tx",
        ],
        "placement": [{"core": core, "elements": ["inside.rx"]}],
    }  # fmt: skip


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
