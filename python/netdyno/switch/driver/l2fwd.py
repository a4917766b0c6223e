"""Our own forwarder between two ports as a switch (`l2fwd`): it looks no address up."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from netdyno.core import daemon
from netdyno.errors import Error
from netdyno.lab.dut.graph_daemon import LOST, GraphDaemon
from netdyno.switch.driver.base import PortSettings, Switch


class Options(PortSettings):
    """Settings of the forwarder."""

    over: Literal["af_xdp", "af_packet"] = "af_xdp"
    """How it takes frames of an interface."""


class L2fwd(GraphDaemon, Switch):
    """A graph that hands each frame of one port to the other."""

    driver: ClassVar[str] = "l2fwd"
    about: ClassVar[str] = "netdyno's forwarder between two ports over packet sockets; it looks no address up"
    most_ports: ClassVar[int | None] = 2
    Options = Options

    @classmethod
    def missing(cls) -> str:
        """Our daemon."""
        try:
            daemon.program()
        except Error as e:
            return e.what
        return ""

    def setup(self) -> None:
        self.open()
        super().setup()

    def graph(self) -> dict[str, Any]:
        ports = {
            name: {"device": f"net_{self.options.over}{number},iface={port}"}
            for number, (name, port) in enumerate(zip("ab", self.ports, strict=True))
        }
        return {
            "ports": ports,
            "elements": {"there": {"kind": "l2fwd"}, "back": {"kind": "l2fwd"}},
            "edges": ["a.rx -> there -> b.tx", "b.rx -> back -> a.tx"],
        }

    def counters(self) -> dict[str, float]:
        """Packets by the elements, losses by the ports."""
        stats = self.ask("graph.stats")
        a, b = self.ports
        found: dict[str, float] = {}
        for one in stats["elements"]:
            if one["name"] in ("there", "back"):
                come, left = (a, b) if one["name"] == "there" else (b, a)
                found[f"{come}.rx_packets"] = float(one["packets_in"])
                found[f"{left}.tx_packets"] = float(one["packets_out"])
        for port, counts in stats["interfaces"].items():
            name = a if port == "a" else b
            found |= {f"{name}.{key}": float(counts[key]) for key in LOST}
        return found
