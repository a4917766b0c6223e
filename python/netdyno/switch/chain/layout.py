"""The network of a chain: hosts, links and addresses, from its description; pure."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from netdyno.lab.topology import FORGET, End, Host, Link, Topology
from netdyno.switch.chain.spec import Chain, Version
from netdyno.switch.chain.steering import CLIENT, SERVER, Port, port_names
from netdyno.switch.tunnel import PROBER, SWITCH, underlay

FRAMES = {"tx": False, "tso": False, "gso": False, "gro": False}
"""Frames of the MTU with checksums: what a switch in user space can carry."""


MTU = 1500
VLAN = 4
"""Bytes of a VLAN tag."""
MORE = 16
"""Further addresses of the client for each replica of a function."""
BACKEND = 32
"""Place of the first further address of the server in its network."""
NSH = 22
"""Bytes of an Ethernet header and a network service header of MD type 2 without metadata."""


FORMS: Mapping[Version, tuple[str, str, int, str]] = {
    4: ("198.18.{}.{}", "198.18.{}.0/24", 24, "default"),
    6: ("2001:2:0:{}::{}", "2001:2:0:{}::/64", 64, "::/0"),
}
"""Addresses and networks for benchmarks (RFC 2544 appendix C.2.2, RFC 5180 section 8), default route."""


@dataclass(frozen=True)
class Addresses:
    """Addresses of a chain. Routers and NATs part it into networks 198.18.0.0/24, 198.18.1.0/24, …, and
    2001:2::/64, 2001:2:0:1::/64, …"""

    client: str
    server: str
    inside: Mapping[str, str]
    """Of each router, with the prefix."""
    outside: Mapping[str, str]
    routes: Mapping[str, Mapping[str, str]]
    """Of each host: networks, and by which address they are reached."""
    more: Sequence[str] = ()
    """Further addresses of the client, if functions have replicas."""
    backends: Sequence[str] = ()
    """Further addresses of the server, if a function chooses between them."""


def addresses(chain: Chain, version: Version = 4) -> Addresses:
    """Of all hosts, for one version of IP."""
    form, network, prefix, default = FORMS[version]
    routed = chain.routed(chain.chain)
    last = len(routed)

    def at(place: int, host: int) -> str:
        return str(ipaddress.ip_address(form.format(place, host if version == 4 else f"{host:x}")))

    inside = {name: f"{at(place, 253)}/{prefix}" for place, name in enumerate(routed)}
    outside = {name: f"{at(place + 1, 254)}/{prefix}" for place, name in enumerate(routed)}
    routes: dict[str, dict[str, str]] = {CLIENT: {}, SERVER: {}, **{name: {} for name in routed}}
    if routed:
        routes[CLIENT] = {default: _plain(inside[routed[0]])}
        routes[SERVER] = {default: _plain(outside[routed[-1]])}
    for place, name in enumerate(routed):
        for before in range(place):
            routes[name][network.format(before)] = _plain(outside[routed[place - 1]])
        if place + 1 < last:
            routes[name][default] = _plain(inside[routed[place + 1]])
    most = max((one.replicas for one in chain.vnfs.values()), default=1)
    more = [at(0, 16 + number) for number in range(min(MORE * most, 200) if most > 1 else 0)]
    backends = [at(last, BACKEND + number) for number in range(chain.servers())]
    return Addresses(at(0, 1), at(last, 2), inside, outside, routes, more, backends)


def topology(chain: Chain, paths: Mapping[str, Any] | None = None) -> Topology:
    """Hosts and links; `paths`: how the link of a host treats packets."""
    known = addresses(chain)
    own: dict[str, list[str]] = {CLIENT: [], SERVER: []}
    parameters: dict[str, str | int] = {"net.ipv4.ip_forward": 1}
    if chain.ipv6:
        parameters["net.ipv6.conf.all.forwarding"] = 1
    for version in chain.versions():
        of, prefix = addresses(chain, version), FORMS[version][2]
        own[CLIENT] += [f"{one}/{prefix}" for one in (of.client, *of.more)]
        own[SERVER] += [f"{one}/{prefix}" for one in (of.server, *of.backends)]
    forwards = Host(sysctl=parameters)
    hosts = {
        CLIENT: Host(role="generator", sysctl=FORGET), SERVER: Host(sysctl=FORGET),
        **{one: Host() for one in chain.switches()},
    }  # fmt: skip
    hosts |= {name: forwards if name in known.inside else Host() for name in chain.hosts()}
    mtu = MTU + (NSH if chain.steering == "nsh" else 0)
    links = [
        Link(
            a=End(host=port.host, name=port.interface, addresses=own.get(port.host, []), offloads=FRAMES),
            b=End(host=chain.switch_of(port.host), name=f"p{number}", offloads=FRAMES),
            mtu=MTU if port.host in (CLIENT, SERVER) else mtu,
            impair=(paths or {}).get(port.host),
        )
        for number, port in enumerate(port_names(chain))
    ]
    names = switch_ports(chain)
    links += [
        Link(
            a=End(host=port.host, name=sent(port.interface), offloads=FRAMES),
            b=End(host=SWITCH, name=sent(names[port.name]), offloads=FRAMES),
            mtu=mtu,
        )
        for port in shared_ports(chain)
    ]
    for line in chain.lines():
        gateways, between = underlay(line)
        hosts |= gateways
        links += between
    if chain.wan:
        hosts[PROBER] = Host()
        links.append(
            Link(a=End(host=PROBER, offloads=FRAMES), b=End(host=SWITCH, name=PROBER, offloads=FRAMES))
        )
    return Topology(hosts=hosts, links=links)


def host_mtu(chain: Chain) -> int:
    """Largest packet that client and server send."""
    return min((one.hosts(more_headers(chain)) for one in chain.lines()), default=MTU)


def more_headers(chain: Chain) -> int:
    """Bytes of the encapsulation by which packets are steered."""
    return {"vlan": VLAN, "nsh": NSH}.get(chain.steering, 0)


def switch_ports(chain: Chain, host: str | None = None) -> dict[str, str]:
    """Interfaces of the switches, or of one, by the names that rules have for their ports."""
    found = {
        port.name: f"p{number}"
        for number, port in enumerate(port_names(chain))
        if host in (None, chain.switch_of(port.host))
    }
    return found | ({PROBER: PROBER} if chain.wan and host in (None, SWITCH) else {})


def shared_ports(chain: Chain) -> list[Port]:
    """Ports of functions that share memory with the switch."""
    hosts = chain.hosts()
    return [one for one in port_names(chain) if one.host in hosts and chain.shares(hosts[one.host])]


def sent(name: str) -> str:
    """The interface that shows what is sent by a port over shared memory, at either end of its link."""
    return f"{name}-sent"


def rule_ports(chain: Chain) -> dict[str, str]:
    """Ports of the switches by the names that rules have for them: interfaces and lines."""
    ends = {Port(host, one.port).name: one.device for host in chain.switches() for one in chain.lines()}
    return switch_ports(chain) | ends


def _plain(address: str) -> str:
    return address.partition("/")[0]
