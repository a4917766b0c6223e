"""Where the servers of a domain are, and in which order they are tried."""

from __future__ import annotations

import ipaddress
import random
import re
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby

from netdyno.errors import Error
from netdyno.sip.failover.dns import Resolver, Srv

TRANSPORTS = ("udp", "tcp", "tls")
SECURE = ("tls",)
SERVICES = {"SIP+D2U": "udp", "SIP+D2T": "tcp", "SIPS+D2T": "tls"}
"""Services of NAPTR records (RFC 3263 section 4.1)."""
WEBSOCKET = {"SIP+D2W": "ws", "SIPS+D2W": "wss"}
"""Those of WebSocket (RFC 7118 section 10.5), which has no names of SRV records without them."""
PORTS = {"tls": 5061, "ws": 80, "wss": 443}
"""Where no record names a port; of UDP and TCP it is 5060."""
_PREFIXES = {"udp": "_sip._udp.", "tcp": "_sip._tcp.", "tls": "_sips._tcp."}
_SRV = re.compile(r"(\d{1,5})\s+(\d{1,5})\s+(\d{1,5})\s+(\S+?)\.?")

SERVERS_MAX = 64
"""Servers of a domain."""
NAPTR_MAX = 16
"""NAPTR records that are followed, the most wanted first."""
PATIENCE = 30.0
"""Seconds for the addresses of all servers."""


@dataclass(frozen=True)
class Server:
    """A server's address, and its SRV record."""

    address: str
    port: int
    priority: int = 0
    weight: int = 0
    transport: str = "udp"
    rank: int = 0
    """Place of the transport among those of NAPTR records; the lowest is tried first."""

    def __str__(self) -> str:
        host = f"[{self.address}]" if ":" in self.address else self.address
        return f"{host}:{self.port}" + ("" if self.transport == "udp" else f";transport={self.transport}")


def written(text: str) -> Srv:
    """An SRV record as `PRIORITY WEIGHT PORT HOST`."""
    found = _SRV.fullmatch(text.strip())
    numbers = [int(found[at]) for at in (1, 2, 3)] if found else []
    if not found or max(numbers) > 65_535 or numbers[2] == 0:
        fix = "Write PRIORITY WEIGHT PORT HOST, like '10 0 5060 192.0.2.1'"
        raise Error("ND-104-22", f"{text!r} is no SRV record", at="--srv", fix=fix)
    return Srv(numbers[0], numbers[1], numbers[2], found[4])


def locate(
    domain: str,
    table: Sequence[Srv],
    resolver: Resolver | None,
    transport: str | None = None,
    least: int = 2,
    secure: bool = False,
) -> list[Server]:
    """The servers of a domain (RFC 3263 section 4), `least` so many: by a table, or by DNS.

    Without a `transport` NAPTR records say which, else SRV of UDP, TCP and TLS in this order; those that are
    `secure`, as a sips: URI asks for, are over TLS alone. Without SRV records it is the addresses of the
    domain, with the usual port of the transport.
    """
    transport = transport or ("tls" if secure and (table or resolver is None) else None)
    found = _services(domain, table, resolver, transport, SECURE if secure else TRANSPORTS)
    if not found:
        name = transport or ("tls" if secure else "udp")
        found = [(name, [Srv(0, 0, PORTS.get(name, 5060), domain)])]
    servers: dict[Server, None] = {}
    end = time.monotonic() + PATIENCE
    for rank, (name, records) in enumerate(found):
        for one in records:
            addresses = _addresses(one.host, resolver)
            servers |= {Server(at, one.port, one.priority, one.weight, name, rank): None for at in addresses}
            if len(servers) > SERVERS_MAX or time.monotonic() > end:
                what = f"{domain} has over {SERVERS_MAX} servers, or its DNS server took over {PATIENCE:g} s"
                raise Error("ND-92-03", what, at="DOMAIN", fix="Give servers as --srv '10 0 5060 192.0.2.1'")
    if len(servers) < least:
        what = f"{domain} has {len(servers)} server{'' if len(servers) == 1 else 's'}: none can take over"
        fix = "Give SRV records of two servers by --dns, or as --srv '10 0 5060 192.0.2.1'"
        raise Error("ND-104-26", what, at="DOMAIN", fix=fix)
    return list(servers)


def _services(
    domain: str, table: Sequence[Srv], resolver: Resolver | None, transport: str | None, usable: Sequence[str]
) -> list[tuple[str, list[Srv]]]:
    """SRV records by transport, the most wanted one first."""
    if table:
        return [(transport or "udp", list(table))]
    if resolver is None:
        return []
    over_websocket = transport in WEBSOCKET.values()
    if transport is None or over_websocket:
        services, wanted = (WEBSOCKET, [transport]) if over_websocket else (SERVICES, usable)
        offered = sorted(resolver.naptr(domain), key=lambda one: (one.order, one.preference))
        known = [(services.get(one.service.upper(), ""), one.name) for one in offered]
        found = [(name, resolver.srv(at)) for name, at in known[:NAPTR_MAX] if name in wanted]
        if (found := [one for one in found if one[1]]) or over_websocket:
            return found
    # without NAPTR a client takes a transport that has SRV records
    for name in (transport,) if transport else usable:
        if records := resolver.srv(_PREFIXES[name] + domain):
            return [(name, records)]
    return []


def _addresses(host: str, resolver: Resolver | None) -> list[str]:
    try:
        return [str(ipaddress.ip_address(host.strip("[]")))]
    except ValueError:
        pass
    found = resolver.addresses(host) if resolver else []
    if not found:
        fix = "Give addresses, or a DNS server with --dns"
        raise Error("ND-92-03", f"{host} has no address", at=host, fix=fix)
    return found


def order(servers: Iterable[Server], rng: random.Random, avoided: Callable[[Server], bool]) -> list[Server]:
    """The order of one request: by transport, priority and weight (RFC 2782); those that failed are last."""

    def order(one: Server) -> tuple[int, int]:
        return one.rank, one.priority

    drawn: list[Server] = []
    for _, group in groupby(sorted(servers, key=order), key=order):
        left = list(group)
        while left:
            # a weight of 0 has a small chance too
            one = rng.choices(left, [server.weight * 100 + 1 for server in left])[0]
            left.remove(one)
            drawn.append(one)
    return sorted(drawn, key=avoided)
