"""The reflector on a DPDK port: a second daemon that sends every frame back where it came from."""

from __future__ import annotations

from typing import Any, ClassVar

from pydantic import Field

from netdyno.lab.dut.base import Settings, url_host
from netdyno.lab.dut.graph_daemon import GraphDaemon

NAME = "reflector"
"""Of its port."""


class Options(Settings):
    """Settings of the port."""

    device: str = "net_memif0,role=server"
    """A PCI address or a DPDK virtual device."""
    mac: str | None = None
    """Its Ethernet address; default the device's own."""
    huge_pages: bool = False
    """Packet memory in huge pages, which must be there."""
    port: int = Field(default=7, ge=1, le=65535)
    """UDP port in its URL; frames to every port come back."""


class ReflectorDpdk(GraphDaemon):
    """A graph with one port, whose frames a `reflector` answers."""

    driver: ClassVar[str] = "reflector-dpdk"
    Options = Options

    def graph(self) -> dict[str, Any]:
        o = self.options
        port = {"device": o.device, "ip": self.place.address} | ({"mac": o.mac} if o.mac else {})
        return {
            "ports": {NAME: port},
            "elements": {"answers": {"kind": "reflector", "port": NAME}},
            "edges": [f"{NAME}.rx -> answers -> {NAME}.tx"],
            "huge_pages": o.huge_pages,
        }

    def attached(self) -> dict[str, str]:
        other = peer(self.options.device)
        return {NAME: other} if other else {}

    def targets(self) -> dict[str, str]:
        return {"udp": f"udp://{url_host(self.place.address)}:{self.options.port}"}

    def counters(self) -> dict[str, float]:
        """Those of its port."""
        counts = self.ask("graph.stats")["interfaces"][NAME]
        return {name: float(value) for name, value in counts.items()}


def peer(device: str) -> str | None:
    """The device by which another process reaches a port in shared memory; None for other ports."""
    name, *arguments = device.removeprefix("net_").split(",")
    given = dict(one.split("=", 1) for one in arguments if "=" in one)
    if name.startswith("memif"):
        given["role"] = "client" if given.get("role") == "server" else "server"
        return ",".join(["net_memif0", *(f"{key}={value}" for key, value in given.items() if key != "mac")])
    if name.startswith("vhost") and "iface" in given:
        server = ",server=1" if given.get("client") == "1" else ""
        return f"virtio_user0,path={given['iface']}{server}"
    if name.startswith("virtio_user") and "path" in given:
        client = ",client=1" if given.get("server") == "1" else ""
        return f"net_vhost0,iface={given['path']}{client}"
    return None
