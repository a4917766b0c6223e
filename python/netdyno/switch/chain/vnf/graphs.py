"""Functions that are graphs of netdyno's elements, in a daemon of their own: `graph`, `impair`, `cgnat`."""

from __future__ import annotations

import ipaddress
from abc import abstractmethod
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, ClassVar, Literal, get_args

from pydantic import Field, field_validator

from netdyno import config
from netdyno.errors import Error
from netdyno.lab import impairment
from netdyno.lab.dut.base import DutSite, Settings
from netdyno.lab.dut.graph import GraphDut
from netdyno.switch.chain.vnf.base import IN, OUT, TRANSLATED, Changed, Vnf
from netdyno.switch.driver.ovs_dpdk import MEMIF_QUEUES

PORT: dict[str, str] = {
    IN: "net_af_packet0,iface=in,qdisc_bypass=0",
    OUT: "net_af_packet1,iface=out,qdisc_bypass=0",
}
"""DPDK ports over packet sockets. What bypasses the kernel's queues is not captured when it leaves, and what
is taken by AF_XDP is not when it comes: nobody could tell what the function received and sent."""

Over = Literal["packet-sockets", "vhost-user", "memif"]
"""How a DPDK process gets and sends frames."""
DEVICES = {
    # the switch comes to the process: one that listened would stand still until somebody came
    "vhost-user": "net_virtio_user{number},path={path},server=1,queue_size=1024",
    "memif": "net_memif{number},role=client,id=0,socket-abstract=no,socket={path}",
}
"""DPDK devices that share memory with the switch."""


def devices_of(vnf: Vnf) -> dict[str, str]:
    """Its DPDK devices by port."""
    return {
        port: DEVICES[vnf.options.over].format(number=number, path=vnf.site.sockets[port])
        if vnf.site.sockets
        else PORT[port]
        for number, port in enumerate((IN, OUT))
    }


def queues_of(vnf: Vnf) -> dict[str, int]:
    """How many queues its ports have, where that is not one."""
    return {"queues": MEMIF_QUEUES} if vnf.site.sockets and vnf.options.over == "memif" else {}


def ready(vnf: Vnf) -> None:
    """Set its interfaces up."""
    for port in (IN, OUT):
        vnf.run("ip", "link", "set", port, "up", "promisc", "on")


POOL = 224
"""Place of the first address that a NAT gives to flows in the network outside it."""


class Forwarder(Vnf):
    """A daemon whose graph forwards between both ports."""

    _dut: GraphDut | None = None

    @abstractmethod
    def graph(self) -> dict[str, Any]:
        """As `netdyno graph run` takes it."""

    def setup(self) -> None:
        """Its ports up, and the daemon."""
        ready(self)
        site = self.site
        log = site.folder / f"vnf-{site.name}.log"
        self._dut = GraphDut(
            DutSite(site.name, "", site.namespace, log=log, notes=site.notes), {"graph": self.graph()}
        )
        self._dut.setup()
        self.process = self._dut.process

    def teardown(self) -> None:
        """End the daemon."""
        dut, self._dut, self.process = self._dut, None, None
        if dut is not None:
            dut.teardown()


class GraphOptions(Settings):
    """The graph."""

    graph: str
    """Its file, as `netdyno graph run` takes it, with two ports. Their devices are replaced by the function's
    interfaces."""
    over: Over = "packet-sockets"
    """`packet-sockets` of its interfaces; `vhost-user` or `memif`: it shares memory with `ovs-dpdk`."""
    inside: str = ""
    """Its port towards the client; default: the first in the file."""


class Graph(Forwarder):
    """Elements of the user's choice."""

    kind: ClassVar[str] = "graph"
    about: ClassVar[str] = "a graph of netdyno's elements (DPDK, packet sockets)"
    Options = GraphOptions

    @classmethod
    def changes(cls, options: Mapping[str, Any]) -> Collection[Changed]:
        """Whatever its elements do."""
        return get_args(Changed)

    def graph(self) -> dict[str, Any]:
        """The file, over our interfaces."""
        at = f"vnfs.{self.site.name}.options"
        file = Path(self.options.graph)
        read = config.read(file)
        ports = read.get("ports") if isinstance(read, dict) else None
        if (
            not isinstance(ports, dict)
            or len(ports) != 2
            or not all(isinstance(p, dict) for p in ports.values())
        ):
            fix = "Name one with an inside and an outside port, like examples/graphs/mirror.yaml"
            raise Error("ND-104-82", f"{file} is no graph with two ports", at=f"{at}.graph", fix=fix)
        inside = self.options.inside or next(iter(ports))
        if inside not in ports:
            fix = f"There are: {', '.join(ports)}"
            raise Error("ND-104-82", f"{file} has no port {inside[:80]!r}", at=f"{at}.inside", fix=fix)
        device = devices_of(self)
        queues = queues_of(self)
        own = {
            name: {**of, "device": device[IN if name == inside else OUT], **queues}
            for name, of in ports.items()
        }
        return {**read, "ports": own}


MARKED: tuple[Changed, ...] = ("ecn",)
"""What a bad path changes."""


class ImpairOptions(Settings):
    """What happens to packets."""

    over: Over = "packet-sockets"
    """`packet-sockets` of its interfaces; `vhost-user` or `memif`: it shares memory with `ovs-dpdk`."""
    path: str = "delay=10ms"
    """In both directions: words of `netdyno impair`, such as `delay=20ms,loss=1%,rate=100Mbit/s`."""

    @field_validator("path")
    @classmethod
    def _path(cls, value: str) -> str:
        if "=" not in value:
            raise ValueError("a function takes words like delay=40ms,loss=1%; presets are for paths of links")
        try:
            _impaired(value)
        except Error as e:
            raise ValueError(f"{e.what}. {e.fix}") from None
        return value


def _impaired(path: str) -> dict[str, Any]:
    return dict(impairment.changed({}, {"a_to_b": impairment.words(path, "path")})["a_to_b"])


class Impair(Forwarder):
    """A bad path."""

    kind: ClassVar[str] = "impair"
    about: ClassVar[str] = "a bad path: delay, loss, rate (netdyno)"
    Options = ImpairOptions

    @classmethod
    def changes(cls, options: Mapping[str, Any]) -> Collection[Changed]:
        """Its queue may mark congestion (RFC 3168)."""
        return MARKED

    def graph(self) -> dict[str, Any]:
        """The same for both directions."""
        way = {"kind": "impair", "impair": _impaired(self.options.path)}
        return {
            "ports": {
                name: {"device": device, **queues_of(self)} for name, device in devices_of(self).items()
            },
            "elements": {"there": {**way, "seed": 1}, "back": {**way, "seed": 2}},
            "edges": ["in.rx -> there -> out.tx", "out.rx -> back -> in.tx"],
        }


class CgnatOptions(Settings):
    """The NAT."""

    nat44: dict[str, Any] = Field(default_factory=dict)
    """Further options of the element `nat44`, such as `{ports_per_block: 64}`."""


class Cgnat(Forwarder):
    """Carrier-grade source NAT."""

    kind: ClassVar[str] = "cgnat"
    about: ClassVar[str] = "netdyno's carrier-grade NAT (DPDK, packet sockets; IPv4)"
    routed: ClassVar[bool] = True
    hides: ClassVar[bool] = True
    only_ipv4: ClassVar[bool] = True
    Options = CgnatOptions

    @classmethod
    def changes(cls, options: Mapping[str, Any]) -> Collection[Changed]:
        """Addresses and ports."""
        return TRANSLATED

    def graph(self) -> dict[str, Any]:
        """As in examples/graphs/nat.yaml, with the addresses of the chain."""
        site = self.site
        gateway = site.routes.get("default", site.server[0])
        behind = [{"to": to, "via": via} for to, via in site.routes.items() if to != "default"]
        subscribers = [str(ipaddress.ip_interface(site.inside[0]).network), *(one["to"] for one in behind)]
        # 16 addresses of the network outside that nobody has
        outside = ipaddress.ip_interface(site.outside[0]).network
        pool = [str(ipaddress.ip_network(f"{outside[POOL]}/28"))]
        return {
            "ports": {
                "in": {"device": PORT[IN], "ip": site.inside[0]},
                "out": {"device": PORT[OUT], "ip": site.outside[0]},
            },
            "elements": {
                "in-validity": {"kind": "validity", "port": "in"},
                "out-validity": {"kind": "validity", "port": "out"},
                "subscribers": {"kind": "subscriber-table", "subscribers": subscribers},
                "nat": {
                    **self.options.nat44, "kind": "nat44", "inside": "in", "outside": "out", "pool": pool,
                    "subscribers": subscribers,
                },
                "in-host": {"kind": "nat-host", "port": "in", "on_link": subscribers[:1], "routes": behind},
                "out-host": {"kind": "nat-host", "port": "out", "gateway": gateway, "answers_for": pool},
            },
            "edges": [
                "in.rx -> in-validity",
                "in-validity.out -> subscribers -> nat",
                "out.rx -> out-validity",
                "out-validity.out -> nat",
                "nat.outside -> out.tx",
                "nat.inside -> in.tx",
                "in-validity.local -> in-host -> in.tx",
                "out-validity.local -> out-host -> out.tx",
            ],
        }  # fmt: skip
