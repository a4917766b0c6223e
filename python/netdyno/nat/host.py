"""The exception path: what is for the box itself goes to its host's kernel, and what that sends goes out."""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from ipaddress import IPv4Address, IPv4Interface
from typing import Any

from netdyno.errors import Error
from netdyno.system.journal import Journal

CODE = "ND-92-43"
RATE = "10k/s"
"""Packets that go each way in a second, unless it is said."""
VHOST = "/dev/vhost-net"
TAP = "net_tap"
"""DPDK's driver of such interfaces without vhost-net."""
NO_ADDRESSES = 1
"""Of IPv6: none is made up for the interface (IN6_ADDR_GEN_MODE_NONE)."""
SHORT = {"inside": "in", "outside": "out"}
"""What the names of a port's elements begin with."""


@dataclass(frozen=True)
class Kernel:
    """The kernel's interface to a port of the NAT."""

    interface: str
    rate: str = RATE
    driver: str = "auto"

    @property
    def device(self) -> str:
        """The DPDK port at whose other end it is."""
        virtio = self.driver == "virtio" or (self.driver == "auto" and os.access(VHOST, os.R_OK | os.W_OK))
        return f"virtio:{VHOST},iface={self.interface},queue_size=1024" if virtio else f"tap:{self.interface}"


@dataclass(frozen=True)
class Parts:
    """What a graph has for one."""

    ports: Mapping[str, Any]
    elements: Mapping[str, Any]
    edges: tuple[str, ...]


def as_begun(port: str, kernel: Kernel, shape: Mapping[str, Any]) -> Kernel:
    """The interface of a NAT that runs: `auto` chose its driver when that began."""
    name = f"{SHORT[port]}-kernel"
    drivers = [one["driver"] for one in shape["ports"] if one["name"] == name]
    if kernel.driver != "auto" or not drivers:
        return kernel
    return replace(kernel, driver="tap" if drivers == [TAP] else "virtio")


def parts(port: str, kernel: Kernel, vlans: list[int]) -> Parts:
    """Of a port and its VLANs: frames to the kernel without tags, its own with them, both limited."""
    short = SHORT[port]
    limit = {"kind": "police", "limit": {"packets": kernel.rate}}
    elements: dict[str, Any] = {f"{short}-to-kernel": limit}
    # whoever floods the box must not keep others from finding it
    elements |= {f"{short}-resolution": limit, f"{short}-from-kernel": limit}
    untag, tag = "", ""
    if vlans:
        elements[f"{short}-untag"] = {"kind": "vlan", "pop": len(vlans)}
        elements[f"{short}-tag"] = {"kind": "vlan", "push": [{"id": one} for one in vlans]}
        untag, tag = f" -> {short}-untag", f" -> {short}-tag"
    edges = (
        f"{short}-host.host -> {short}-to-kernel{untag} -> {short}-kernel.tx",
        f"{short}-host.resolution -> {short}-resolution{untag} -> {short}-kernel.tx",
        f"{short}-kernel.rx -> {short}-from-kernel{tag} -> {port}.tx",
    )
    return Parts({f"{short}-kernel": {"device": kernel.device, "optional": True}}, elements, edges)


def names(made: Parts) -> list[str]:
    """Its elements and queues, for a placement."""
    return [f"{port}.{way}" for port in made.ports for way in ("rx", "tx")] + list(made.elements)


def free(port: str, kernel: Kernel) -> None:
    """Refuse an interface that is there already: it is somebody else's."""
    if kernel.interface in (name for _, name in socket.if_nameindex()):
        what = f"an interface named {kernel.interface} is there already"
        raise Error(CODE, what, at=f"{port}.host", fix="Choose another name; the NAT makes the interface")


def settle(shape: Mapping[str, Any], sides: Mapping[str, tuple[Kernel, IPv4Interface]]) -> None:
    """Give each interface the MAC address of its port, and the box's address there.

    Nothing of it has to be put back: the interface is gone when the daemon, which the journal has, closes it.
    """
    macs = {one["name"]: one["mac"] for one in shape["ports"]}
    for port, (kernel, address) in sides.items():
        _give(port, kernel.interface, macs[port], address)


def route(side: str, kernel: Kernel, gateway: IPv4Address, notes: Journal) -> tuple[list[int], str]:
    """Give the kernel its way out by the NAT's router: the entries of the journal, and what is to be said.

    A default route that the host has already stays as it is, and is the only one.
    """
    from pyroute2 import IPRoute
    from pyroute2.netlink.exceptions import NetlinkError

    entries: list[int] = []
    try:
        with IPRoute() as ip:
            if ip.get_default_routes(family=socket.AF_INET):
                return [], f"the host has a default route already: none is added by {kernel.interface}"
            (index,) = ip.link_lookup(ifname=kernel.interface)
            entries.append(
                notes.write("route", gateway=str(gateway), interface=kernel.interface, index=index)
            )
            ip.route("add", dst="default", gateway=str(gateway), oif=index)
    except (NetlinkError, OSError, ValueError) as e:
        notes.undo(*entries)
        what = f"the host's default route by {gateway} and {kernel.interface} cannot be made: {e}"
        raise Error(CODE, what, at=f"{side}.host", fix="`ip route` shows what is there; run as root") from e
    return entries, f"default route of the host: by {gateway}, {kernel.interface}"


def undo_route(entry: dict[str, Any]) -> bool:
    """The host's default route by a NAT, which is gone with the interface at the latest."""
    from pyroute2 import IPRoute
    from pyroute2.netlink.exceptions import NetlinkError

    with IPRoute() as ip:
        if ip.link_lookup(ifname=str(entry["interface"])) != [entry["index"]]:
            return False
        try:
            ip.route("del", dst="default", gateway=str(entry["gateway"]), oif=entry["index"])
        except NetlinkError as e:
            if e.code in (errno.ESRCH, errno.ENODEV):
                return False
            raise OSError(e.code, str(e)) from e
    return True


def _give(port: str, interface: str, mac: str, address: IPv4Interface) -> None:
    # a large library, of which most commands need nothing
    from pyroute2 import IPRoute
    from pyroute2.netlink.exceptions import NetlinkError

    silent = {"attrs": [["AF_INET6", {"attrs": [["IFLA_INET6_ADDR_GEN_MODE", NO_ADDRESSES]]}]]}
    try:
        with IPRoute() as ip:
            (index,) = ip.link_lookup(ifname=interface)
            # down, so that IPv6 addresses made up so far go
            ip.link("set", index=index, state="down")
            ip.link("set", index=index, IFLA_AF_SPEC=silent)
            ip.link("set", index=index, address=mac, state="up")
            ip.addr("add", index=index, address=str(address.ip), prefixlen=address.network.prefixlen)
    except (NetlinkError, OSError, ValueError) as e:
        what = f"the interface {interface} cannot be given {address} and {mac}: {e}"
        fix = "Run as root; `ip -d link` shows the interface"
        raise Error(CODE, what, at=f"{port}.host", fix=fix) from e


def describe(sides: Mapping[str, tuple[Kernel, IPv4Interface]]) -> Iterator[str]:
    """What the host has now, in words."""
    for port, (kernel, address) in sides.items():
        yield f"{kernel.interface}: {address}, the host's interface on {port}"
