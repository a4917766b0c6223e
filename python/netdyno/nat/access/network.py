"""The access network made real: all of it is up, or nothing."""

from __future__ import annotations

import contextlib
import ipaddress
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from netdyno import paths
from netdyno.errors import Error
from netdyno.lab.dut.base import DutSite
from netdyno.lab.dut.nginx import Nginx
from netdyno.lab.network import Network, await_carrier
from netdyno.lab.node import NamespaceNode, add_address
from netdyno.lab.topology import need_root
from netdyno.nat.access import kernel_nat, plan
from netdyno.nat.access.dhcp_client import DhcpClient, Lease
from netdyno.nat.access.kea import PACKAGE, Kea
from netdyno.nat.access.nat_box import NatBox, graph
from netdyno.system import namespace
from netdyno.system.process import find

PROGRAMS = {
    "ip": "iproute2", "ethtool": "ethtool", "nginx": "nginx", "kea-dhcp4": PACKAGE, "kea-lfc": PACKAGE,
    "udhcpc": "udhcpc", "nft": "nftables",
}  # fmt: skip
"""What it is made of, and the packages that have it."""
PORT = 80
KNOCK = 0.3
"""Seconds for which a connection is waited for once."""


def check() -> None:
    """Refuse where something is missing, before anything is made: all of it at once."""
    need_root()
    missing: list[Error] = []
    for program, package in PROGRAMS.items():
        try:
            find(program, package)
        except Error as e:
            missing.append(e)
    if missing:
        first = missing[0]
        found = tuple(one.as_dict() for one in missing) if len(missing) > 1 else ()
        raise Error(first.code, first.what, first.at, first.fix, found)


@dataclass(frozen=True)
class BootedSubscriber:
    """A subscriber with a DHCP lease."""

    name: str
    mac: str
    lease: Lease
    took: float
    """Seconds from the start of its DHCP client."""


class AccessNetwork:
    """Everything of it ends with the stack, the last first."""

    def __init__(self, token: str, folder: Path, page: int, core: int, stack: ExitStack) -> None:
        self._folder, self._stack = folder, stack
        self.network = stack.enter_context(Network(plan.topology(), token))
        self._segment("access", [*plan.SUBSCRIBERS, "box", "kernel"], f"{plan.DHCP}/{plan.SEGMENT}")
        self._segment("world", ["box", "kernel"], f"{plan.ROUTER}/{plan.SEGMENT}")
        self._node("world").inside(_addresses)
        self._route("kernel", "default", plan.ROUTER)
        kernel_nat.masquerade(self.network.namespace("kernel"))
        self.web = Nginx(self._site("web", "world", "0.0.0.0"), {"sizes": (page,), "port": PORT})
        stack.callback(self.web.teardown)
        self.web.setup()
        self.kea = self._dhcp("kea", "access", plan.DHCP, plan.PRIVATE)
        self._dhcp("kea-public", "world", plan.ROUTER, plan.PUBLIC)
        where = paths.runtime() / f"nd-{token}-nat.sock"
        document = graph(self.kea.leases, core)
        log = folder / "nat.jsonl"
        self.nat = NatBox(self.network.namespace("box"), where, log, document, stack)

    def boot(self) -> Iterator[BootedSubscriber]:
        """Each subscriber gets its address by DHCP, and its way to the kernel's NAT from us."""
        for name in plan.SUBSCRIBERS:
            space = self.network.namespace(name)
            client = DhcpClient(name, space, self.kea.folder, self._folder / f"dhcp-{name}.log")
            self._stack.callback(client.stop)
            began = time.monotonic()
            lease = client.boot()
            took = time.monotonic() - began
            self._route(name, f"{plan.SERVER_BY_KERNEL}/32", plan.KERNEL_INSIDE)
            yield BootedSubscriber(name, self._mac(name), lease, took)

    def reach(self, subscriber: str, server: str, timeout: float) -> None:
        """Wait until a subscriber gets through to a server."""
        until = time.monotonic() + timeout
        while True:
            with contextlib.suppress(OSError), self.connect(subscriber, server, KNOCK):
                return
            if time.monotonic() > until:
                what = f"{subscriber} does not reach {server} within {timeout:g} s"
                raise Error("ND-92-26", what, at=subscriber, fix=f"See the logs in {self._folder}")

    def connect(
        self, subscriber: str, server: str, timeout: float, source: str | None = None
    ) -> socket.socket:
        """A connection from a subscriber to the web server, from an address of its own."""
        own = (source, 0) if source else None
        return namespace.inside(
            self.network.namespace(subscriber), lambda: socket.create_connection((server, PORT), timeout, own)
        )

    @contextlib.contextmanager
    def foreign_address(self, subscriber: str, address: str) -> Iterator[None]:
        """For a while a subscriber has an address that nobody gave it."""
        node, whole = self._node(subscriber), ipaddress.ip_interface(f"{address}/{plan.SEGMENT}")
        node.inside(lambda ip: add_address(ip, _index(ip, "eth0"), whole))
        try:
            yield
        finally:
            gone = {"address": address, "prefixlen": plan.SEGMENT}
            node.inside(lambda ip: ip.addr("del", index=_index(ip, "eth0"), **gone))

    def peers(self) -> set[str]:
        """Who has a connection to the web server, `address:port` as the server's kernel sees it."""
        table = Path("/proc/thread-self/net/tcp")
        lines = namespace.inside(self.network.namespace("world"), table.read_text).splitlines()[1:]
        ends = [line.split()[1:4] for line in lines]
        return {
            _endpoint(far) for near, far, state in ends if state == "01" and near.endswith(f":{PORT:04X}")
        }

    def _dhcp(self, name: str, host: str, address: str, given: Mapping[str, str]) -> Kea:
        """A DHCP server that is ready."""
        server = Kea(self._site(name, host, address), given)
        self._stack.callback(server.teardown)
        server.setup()
        return server

    def _mac(self, host: str) -> str:
        found: list[str] = []

        def work(ip: Any) -> None:
            found.append(str(ip.get_links(_index(ip, "eth0"))[0].get_attr("IFLA_ADDRESS")))

        self._node(host).inside(work)
        return found[0]

    def _site(self, name: str, host: str, address: str) -> DutSite:
        space = self.network.namespace(host)
        return DutSite(name, address, space, log=self._folder / f"{name}.log")

    def _node(self, host: str) -> NamespaceNode:
        node = self.network.nodes[host]
        assert isinstance(node, NamespaceNode)
        return node

    def _segment(self, host: str, ports: list[str], address: str) -> None:
        """A bridge with these ports, which has an address itself."""

        def work(ip: Any) -> None:
            ip.link("add", ifname=plan.BRIDGE, kind="bridge")
            bridge = _index(ip, plan.BRIDGE)
            for port in ports:
                ip.link("set", index=_index(ip, port), master=bridge)
            ip.link("set", index=bridge, state="up")
            add_address(ip, bridge, ipaddress.ip_interface(address))

        self._run_on(host, work)
        # Kea never listens on an interface that does not carry when it starts
        await_carrier(self._node(host), [plan.BRIDGE])

    def _route(self, host: str, to: str, router: str) -> None:
        self._run_on(host, lambda ip: ip.route("add", dst=to, gateway=router))

    def _run_on(self, host: str, work: Callable[[Any], None]) -> None:
        # a large library, of which most commands need nothing
        from pyroute2.netlink.exceptions import NetlinkError

        try:
            self._node(host).inside(work)
        except (NetlinkError, OSError) as e:
            fix = "`netdyno doctor` shows whether namespaces and links work here"
            raise Error("ND-92-26", f"{host} cannot be set up: {e}", at=host, fix=fix) from e


def _addresses(ip: Any) -> None:
    """Of the web server."""
    for address in (plan.SERVER, plan.SERVER_BY_KERNEL):
        add_address(ip, 1, ipaddress.ip_interface(f"{address}/32"))


def _index(ip: Any, interface: str) -> int:
    return int(ip.link_lookup(ifname=interface)[0])


def _endpoint(text: str) -> str:
    """`address:port` of the kernel's table, which has both in hexadecimal, the address as the CPU has it."""
    address, _, port = text.partition(":")
    return f"{ipaddress.IPv4Address(bytes.fromhex(address)[::-1])}:{int(port, 16)}"
