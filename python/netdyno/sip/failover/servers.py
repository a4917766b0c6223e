"""Where the servers of a domain are, and in which order they are tried."""

from __future__ import annotations

import ipaddress
import random
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby

from netdyno.errors import Error
from netdyno.sip.failover.dns import Resolver, Srv

_SRV = re.compile(r"(\d{1,5})\s+(\d{1,5})\s+(\d{1,5})\s+(\S+?)\.?")


@dataclass(frozen=True)
class Server:
    """A server's address, and its SRV record."""

    address: str
    port: int
    priority: int = 0
    weight: int = 0

    def __str__(self) -> str:
        return f"[{self.address}]:{self.port}" if ":" in self.address else f"{self.address}:{self.port}"


def written(text: str) -> Srv:
    """An SRV record as `PRIORITY WEIGHT PORT HOST`."""
    found = _SRV.fullmatch(text.strip())
    numbers = [int(found[at]) for at in (1, 2, 3)] if found else []
    if not found or max(numbers) > 65_535 or numbers[2] == 0:
        fix = "Write PRIORITY WEIGHT PORT HOST, like '10 0 5060 192.0.2.1'"
        raise Error("ND-104-22", f"{text!r} is no SRV record", at="--srv", fix=fix)
    return Srv(numbers[0], numbers[1], numbers[2], found[4])


def locate(domain: str, table: Sequence[Srv], resolver: Resolver | None) -> list[Server]:
    """The servers of a domain: by a table, or by DNS (SRV, else A and AAAA with port 5060)."""
    records = list(table)
    if not records and resolver:
        records = resolver.srv(f"_sip._udp.{domain}")
    if not records:
        records = [Srv(0, 0, 5060, domain)]
    servers: list[Server] = []
    for one in records:
        addresses = _addresses(one.host, resolver)
        servers += [Server(address, one.port, one.priority, one.weight) for address in addresses]
    servers = list(dict.fromkeys(servers))
    if len(servers) < 2:
        what = f"{domain} has {len(servers)} server{'' if len(servers) == 1 else 's'}: none can take over"
        fix = "Give SRV records of two servers by --dns, or as --srv '10 0 5060 192.0.2.1'"
        raise Error("ND-104-26", what, at="DOMAIN", fix=fix)
    return servers


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
    """The order of one request: by priority, drawn by weight (RFC 2782); those that failed come last."""
    drawn: list[Server] = []
    for _, group in groupby(sorted(servers, key=lambda one: one.priority), key=lambda one: one.priority):
        left = list(group)
        while left:
            # a weight of 0 has a small chance too
            one = rng.choices(left, [server.weight * 100 + 1 for server in left])[0]
            left.remove(one)
            drawn.append(one)
    return sorted(drawn, key=avoided)
