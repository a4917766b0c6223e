"""Who is where in the access network: hosts, cables and addresses. Only data.

Both NATs have a leg in the subscribers' segment and one in the world's. Subscribers reach the server's first
address by the NAT of DPDK, which is their default router, and its second address by the kernel's. Of two DHCP
servers one gives addresses to subscribers, the other public ones to the NAT of DPDK.
"""

from __future__ import annotations

from collections.abc import Mapping

from netdyno.lab.topology import End, Host, Link, Topology

SUBSCRIBERS = ("sub1", "sub2")
SEGMENT, BRIDGE = 24, "br0"
DHCP, ROUTER_INSIDE, KERNEL_INSIDE = "10.0.0.1", "10.0.0.254", "10.0.0.253"
UNLEASED = "10.0.0.50"
"""An address that the DHCP server gives nobody."""
ROUTER, BOX, KERNEL_OUTSIDE = "203.0.113.1", "203.0.113.2", "203.0.113.3"
PRIVATE: Mapping[str, str] = {
    "subnet": "10.0.0.0/24",
    "leases": "10.0.0.100 - 10.0.0.199",
    "router": ROUTER_INSIDE,
}
PUBLIC: Mapping[str, str] = {
    "subnet": "203.0.113.0/24",
    "leases": "203.0.113.100 - 203.0.113.199",
    "router": ROUTER,
}
"""What the two DHCP servers give out."""
SERVER, SERVER_BY_KERNEL = "198.51.100.9", "198.51.100.10"
INSIDE, OUTSIDE = "in0", "out0"
"""Interfaces of both NATs."""

_OFF = {"tso": False, "gso": False, "gro": False, "tx": False, "rx": False}
"""A DPDK port gets frames as they are on a cable; so does the kernel's NAT, for the paths to be alike."""
_QUIET: dict[str, str | int] = {
    "net.ipv6.conf.all.disable_ipv6": 1,
    "net.ipv6.conf.default.disable_ipv6": 1,
}
_ROUTER: dict[str, str | int] = {**_QUIET, "net.ipv4.ip_forward": 1}


def topology() -> Topology:
    """Subscribers and NATs on a bridge of the access network; NATs on a bridge of the world."""
    hosts = {name: Host(sysctl=_QUIET) for name in (*SUBSCRIBERS, "access", "box")}
    hosts |= {name: Host(role="router", sysctl=_ROUTER) for name in ("kernel", "world")}
    inside = [(name, "eth0", "") for name in SUBSCRIBERS]
    inside += [("box", INSIDE, ""), ("kernel", INSIDE, f"{KERNEL_INSIDE}/{SEGMENT}")]
    outside = [("box", OUTSIDE, ""), ("kernel", OUTSIDE, f"{KERNEL_OUTSIDE}/{SEGMENT}")]
    links = [_cable("access", *one) for one in inside] + [_cable("world", *one) for one in outside]
    return Topology(hosts=hosts, links=links)


def _cable(segment: str, host: str, interface: str, address: str) -> Link:
    """From a port of a segment's bridge, named as the host, to the host."""
    far = End(host=host, name=interface, addresses=[address] if address else [], offloads=_OFF)
    return Link(a=End(host=segment, name=host, offloads=_OFF), b=far)
