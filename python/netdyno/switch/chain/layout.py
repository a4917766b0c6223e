"""The network of a chain: hosts, links and addresses, from its description; pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from netdyno.lab.topology import End, Host, Link, Topology
from netdyno.switch.chain.spec import Chain
from netdyno.switch.chain.steering import CLIENT, SERVER, port_names

SWITCH = "switch"
FRAMES = {"tx": False, "tso": False, "gso": False, "gro": False}
"""Frames of the MTU with checksums: what a switch in user space can carry."""


@dataclass(frozen=True)
class Addresses:
    """Addresses of a chain. Routers and NATs part it into networks 198.18.0.0/24, 198.18.1.0/24, …"""

    client: str
    server: str
    inside: Mapping[str, str]
    """Of each router, with the prefix."""
    outside: Mapping[str, str]
    routes: Mapping[str, Mapping[str, str]]
    """Of each host: networks, and by which address they are reached."""


def addresses(chain: Chain) -> Addresses:
    """Of all hosts."""
    routed = chain.routed(chain.chain)
    last = len(routed)
    inside = {name: f"198.18.{at}.253/24" for at, name in enumerate(routed)}
    outside = {name: f"198.18.{at + 1}.254/24" for at, name in enumerate(routed)}
    routes: dict[str, dict[str, str]] = {CLIENT: {}, SERVER: {}, **{name: {} for name in routed}}
    if routed:
        routes[CLIENT] = {"default": _plain(inside[routed[0]])}
        routes[SERVER] = {"default": _plain(outside[routed[-1]])}
    for at, name in enumerate(routed):
        for before in range(at):
            routes[name][f"198.18.{before}.0/24"] = _plain(outside[routed[at - 1]])
        if at + 1 < last:
            routes[name]["default"] = _plain(inside[routed[at + 1]])
    return Addresses("198.18.0.1", f"198.18.{last}.2", inside, outside, routes)


def topology(chain: Chain, paths: Mapping[str, Any] | None = None) -> Topology:
    """Hosts and links; `paths`: how the link of a host treats packets."""
    known = addresses(chain)
    own = {CLIENT: [f"{known.client}/24"], SERVER: [f"{known.server}/24"]}
    forwards = Host(sysctl={"net.ipv4.ip_forward": 1})
    hosts = {CLIENT: Host(role="generator"), SERVER: Host(), SWITCH: Host()}
    hosts |= {name: forwards if name in known.inside else Host() for name in chain.vnfs}
    links = [
        Link(
            a=End(host=port.host, name=port.interface, addresses=own.get(port.host, []), offloads=FRAMES),
            b=End(host=SWITCH, name=f"p{number}", offloads=FRAMES),
            impair=(paths or {}).get(port.host),
        )
        for number, port in enumerate(port_names(chain))
    ]
    return Topology(hosts=hosts, links=links)


def switch_ports(chain: Chain) -> dict[str, str]:
    """Interfaces of the switch, by the names that rules have for its ports."""
    return {port.name: f"p{number}" for number, port in enumerate(port_names(chain))}


def _plain(address: str) -> str:
    return address.partition("/")[0]
