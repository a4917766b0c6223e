"""Which packets are one subscriber's, or one mapping's, on both sides of a NAT, as pcap-filter(7) says it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from netdyno.errors import Error
from netdyno.nat.running import Running

MOST = 16
"""Subscribers with one address, in VLANs of their own, that are looked for; and sessions of a mapping."""
NOBODY = "ND-104-35"
ALL = 1 << 16
"""Subscribers with one address among which the one in a VLAN is looked for."""
TAGS = 2
"""Most VLAN tags of a packet."""


def of_subscriber(nat: Running, wanted: str) -> tuple[str, bool]:
    """A filter for a subscriber's packets, and whether it has an outside address to be found by.

    Without VLANs it is any subscriber of this address; `@0` is the one without tags.
    """
    address, at, tags = wanted.partition("@")
    vlans = [int(one) for one in tags.split(".") if int(one)] if at else None
    most = MOST if vlans is None else ALL
    found, _ = nat.pages("nat.subscribers", "subscribers", most, subscriber=address)
    meant = [one for one in found if vlans is None or one["vlans"] == vlans]
    return subscriber(address, meant, vlans), any(one["outside"] for one in meant)


def of_mapping(nat: Running, outside: str) -> str:
    """A filter for the packets of an outside address and port, of whichever protocol."""
    if ":" not in outside:
        fix = "Give it with its port, or the subscriber by --subscriber"
        raise Error("ND-104-07", f"{outside} is many subscribers' address", at="--outside", fix=fix)
    found, _ = nat.pages("nat.sessions", "sessions", MOST, outside=outside)
    if not found:
        fix = "`netdyno nat sessions` lists those that there are"
        raise Error(NOBODY, f"nobody has {outside} now", at="--outside", fix=fix)
    return mapping(found)


def subscriber(address: str, known: Iterable[Mapping[str, Any]], vlans: Sequence[int] | None = None) -> str:
    """Of a subscriber: what it sends and gets inside, and what comes for its ports outside."""
    outside = []
    for one in known:
        if one["outside"]:
            ports = [f"dst portrange {first}-{last}" for first, last in one["blocks"]]
            outside.append(f"(ip and dst host {one['outside']} and ({' or '.join([*ports, 'icmp'])}))")
    inside = f"(ip and host {address})"
    if vlans is None:
        return tagged([" or ".join([inside, *outside])] * (TAGS + 1))
    # where a tag stands in the frame does not depend on how many were skipped
    ids = [f"ether[{14 + 4 * at}:2] & 0xfff = {vlan}" for at, vlan in enumerate(vlans)]
    its = f"({' and '.join([*ids, f'ip and host {address}'])})"
    return tagged(
        [" or ".join([*([its] if depth == len(vlans) else []), *outside]) for depth in range(TAGS + 1)]
    )


def mapping(sessions: Iterable[Mapping[str, Any]]) -> str:
    """Of a mapping, whomever it is used with. Identifiers of ICMP are no ports: of these all."""
    parts = dict.fromkeys(part for one in sessions for part in _endpoints(one))
    return tagged([" or ".join(parts)] * (TAGS + 1))


def _endpoints(session: Mapping[str, Any]) -> tuple[str, str]:
    protocol = session["protocol"]
    inside, _, port = str(session["inside"]).rpartition(":")
    outside, _, mapped = str(session["outside"]).rpartition(":")
    if protocol == "icmp":
        return f"(icmp and host {inside})", f"(icmp and dst host {outside})"
    return (
        f"({protocol} and host {inside} and port {port})",
        f"({protocol} and dst host {outside} and dst port {mapped})",
    )


def tagged(wanted: Sequence[str]) -> str:
    """What is wanted without tags, with one, and so on: each `vlan` moves what stands behind it by a tag."""
    made = ""
    for one in reversed(wanted):
        deeper = f"(vlan and ({made}))" if made else ""
        made = " or ".join(part for part in (one, deeper) if part)
    return made
