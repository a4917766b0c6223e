"""Which packets are one subscriber's, or one mapping's, on both sides of a NAT, as pcap-filter(7) says it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from netdyno.errors import Error
from netdyno.nat.running import Running

MOST = 16
"""Subscribers with one address, in VLANs of their own, whose ports are looked for."""
NOBODY = "ND-104-35"


def of_subscriber(nat: Running, address: str) -> tuple[str, bool]:
    """A filter for a subscriber's packets, and whether it has an outside address to be found by."""
    found, _ = nat.pages("nat.subscribers", "subscribers", MOST, subscriber=address)
    return subscriber(address, found), any(one["outside"] for one in found)


def of_mapping(nat: Running, outside: str) -> str:
    """A filter for the packets of an outside address and port."""
    found, _ = nat.pages("nat.sessions", "sessions", 1, outside=outside)
    if not found:
        fix = "`netdyno nat sessions` lists those that there are"
        raise Error(NOBODY, f"nobody has {outside} now", at="--outside", fix=fix)
    return mapping(found[0])


def subscriber(address: str, known: Iterable[Mapping[str, Any]]) -> str:
    """Of a subscriber: what it sends and gets inside, and what comes for its ports outside."""
    parts = [f"(ip and host {address})"]
    for one in known:
        if one["outside"]:
            ports = [f"dst portrange {first}-{last}" for first, last in one["blocks"]]
            parts.append(f"(ip and dst host {one['outside']} and ({' or '.join([*ports, 'icmp'])}))")
    return tagged(" or ".join(parts))


def mapping(session: Mapping[str, Any]) -> str:
    """Of a mapping, whomever it is used with. Identifiers of ICMP are no ports: of these all."""
    protocol = session["protocol"]
    inside, _, port = str(session["inside"]).rpartition(":")
    outside, _, mapped = str(session["outside"]).rpartition(":")
    if protocol == "icmp":
        return tagged(f"(icmp and host {inside}) or (icmp and dst host {outside})")
    return tagged(
        f"({protocol} and host {inside} and port {port})"
        f" or ({protocol} and dst host {outside} and dst port {mapped})"
    )


def tagged(wanted: str) -> str:
    """The same without tags, with one, and with two: each `vlan` moves what stands behind it by a tag."""
    return f"{wanted} or (vlan and ({wanted} or (vlan and ({wanted}))))"
