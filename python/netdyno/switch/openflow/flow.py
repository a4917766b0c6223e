"""Flow entries of OpenFlow 1.3 in one comparable form: match fields and instructions as on the wire.

Fields follow section 7.2.3.7 of the OpenFlow Switch Specification 1.3.5, instructions 7.2.4, actions 7.2.5.
"""

from __future__ import annotations

import ipaddress
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from netdyno.switch.openflow import action
from netdyno.switch.openflow.action import VLAN_PRESENT, Action, Group

BASIC = 0x8000
"""Class of the fields that the specification defines."""
APPLY_ACTIONS = 4
NSH = {"nsh_spi": (4, 3), "nsh_si": (5, 1)}
"""Number of each field of the network service header, and its bytes."""

_PROTOCOLS: Mapping[str, Mapping[str, int]] = {
    "ip": {"eth_type": 0x0800},
    "arp": {"eth_type": 0x0806},
    "icmp": {"eth_type": 0x0800, "ip_proto": 1},
    "tcp": {"eth_type": 0x0800, "ip_proto": 6},
    "udp": {"eth_type": 0x0800, "ip_proto": 17},
    "ipv6": {"eth_type": 0x86DD},
    "tcp6": {"eth_type": 0x86DD, "ip_proto": 6},
    "udp6": {"eth_type": 0x86DD, "ip_proto": 17},
}
_FIELDS = {
    "in_port": (0, 4), "eth_dst": (3, 6), "eth_src": (4, 6), "eth_type": (5, 2), "vlan_vid": (6, 2),
    "ip_dscp": (8, 1), "ip_proto": (10, 1), "ipv4_src": (11, 4), "ipv4_dst": (12, 4), "tcp_src": (13, 2),
    "tcp_dst": (14, 2), "udp_src": (15, 2), "udp_dst": (16, 2),
}  # fmt: skip
_NAMES = {"dl_src": "eth_src", "dl_dst": "eth_dst", "dl_type": "eth_type", "nw_proto": "ip_proto",
          "nw_src": "ipv4_src", "nw_dst": "ipv4_dst", "dl_vlan": "vlan_vid"}  # fmt: skip
"""Names of ovs-fields(7) with one meaning for every protocol."""


class MatchError(ValueError):
    """A match field or value that OpenFlow 1.3 cannot carry as it is written."""


@dataclass(frozen=True)
class FlowEntry:
    """A flow entry of table 0. Two are equal if a switch treats packets alike by them."""

    cookie: int
    priority: int
    match: frozenset[tuple[int, bytes]]
    """Fields: class, number and mask bit as in an OXM header, without the length, and the value."""
    instructions: bytes
    """As on the wire; empty: packets are dropped."""
    groups: tuple[Group, ...] = field(default=(), compare=False, repr=False)
    """Groups that it names. A switch does not tell them with an entry."""

    @property
    def key(self) -> tuple[int, frozenset[tuple[int, bytes]]]:
        """What a table has once: priority and match."""
        return self.priority, self.match

    def document(self) -> dict[str, Any]:
        """As JSON."""
        return {"cookie": self.cookie, "priority": self.priority, "match": match_bytes(self.match).hex(),
                "instructions": self.instructions.hex(),
                "groups": [one.buckets.hex() for one in self.groups]}  # fmt: skip

    @staticmethod
    def of(plain: Mapping[str, Any]) -> FlowEntry:
        """From JSON."""
        match, _ = match_fields(bytes.fromhex(plain["match"]))
        named = tuple(Group(bytes.fromhex(one)) for one in plain["groups"])
        return FlowEntry(
            plain["cookie"], plain["priority"], match, bytes.fromhex(plain["instructions"]), named
        )


def entry(
    cookie: int,
    priority: int,
    in_port: int | None,
    match: Mapping[str, str],
    actions: Sequence[Action],
) -> FlowEntry:
    """A flow entry from names and port numbers.

    `match` has names of ovs-fields(7), like `{"tcp": "", "tp_dst": "80"}`; ports in `actions` are numbers.
    Raises MatchError.
    """
    known = values({**({} if in_port is None else {"in_port": str(in_port)}), **match})
    fields = frozenset(
        action.nsh_field(NSH[name][0], value)
        if name in NSH
        else (BASIC << 16 | _FIELDS[name][0] << 9, value.to_bytes(_FIELDS[name][1], "big"))
        for name, value in known.items()
    )
    acts, named = action.wire(actions), tuple(action.groups(actions))
    instructions = struct.pack("!HH4x", APPLY_ACTIONS, 8 + len(acts)) + acts if acts else b""
    return FlowEntry(cookie, priority, fields, instructions, named)


def match_bytes(match: frozenset[tuple[int, bytes]]) -> bytes:
    """A match on the wire, padded. Fields are in order of their numbers, which puts prerequisites first."""
    fields = b"".join(struct.pack("!I", header | len(value)) + value for header, value in sorted(match))
    made = struct.pack("!HH", 1, 4 + len(fields)) + fields
    return made.ljust(-(-len(made) // 8) * 8, b"\0")


def match_fields(data: bytes) -> tuple[frozenset[tuple[int, bytes]], int]:
    """A match from the wire, and its length with padding. Raises ValueError where it is cut short."""
    kind, length = _unpack("!HH", data, 0)
    if kind != 1 or not 4 <= length <= len(data):
        raise ValueError(f"a match of type {kind} and length {length} in {len(data)} bytes")
    at, found = 4, set()
    while at < length:
        (header,) = _unpack("!I", data, at)
        end = at + 4 + (header & 0xFF)
        if end > length:
            raise ValueError("a match field is longer than its match")
        found.add((header & ~0xFF, data[at + 4 : end]))
        at = end
    return frozenset(found), -(-length // 8) * 8


def values(match: Mapping[str, str]) -> dict[str, int]:
    """Match fields by their names in OpenFlow 1.3, with those that they need. Raises MatchError."""
    found: dict[str, int] = {}
    for name in match:
        found |= _PROTOCOLS.get(name, {})
    transport = {6: "tcp", 17: "udp"}.get(found.get("ip_proto", 0))
    for name, text in match.items():
        if name in _PROTOCOLS:
            continue
        known = _NAMES.get(name, name)
        if name in ("tp_src", "tp_dst"):
            if transport is None:
                raise MatchError(f"{name} needs tcp or udp")
            known = f"{transport}_{name[3:]}"
        size = (_FIELDS | NSH).get(known)
        if size is None:
            there = ", ".join([*_PROTOCOLS, *_NAMES, *_FIELDS, *NSH])
            raise MatchError(f"the field {name!r} is not supported; there are {there}")
        value = _number(known, text)
        if not 0 <= value < 1 << 8 * size[1]:
            raise MatchError(f"{name}={text} is out of range")
        found[known] = value | (VLAN_PRESENT if name == "dl_vlan" else 0)
    return found


def _number(field: str, text: str) -> int:
    try:
        if field in ("ipv4_src", "ipv4_dst"):
            return int(ipaddress.IPv4Address(text))
        if field in ("eth_src", "eth_dst"):
            parts = [int(part, 16) for part in text.split(":")]
            if len(parts) != 6:
                raise ValueError
            return int.from_bytes(bytes(parts), "big")
        return int(text, 0)
    except ValueError:
        raise MatchError(f"{text!r} is no value of {field}") from None


def _unpack(form: str, data: bytes, at: int) -> tuple[Any, ...]:
    if len(data) < at + struct.calcsize(form):
        raise ValueError(f"{len(data)} bytes are too few")
    return struct.unpack_from(form, data, at)
