"""Messages of OpenFlow 1.3: those that a controller of flow tables sends and gets.

Sections are those of the OpenFlow Switch Specification 1.3.5; bundles are the ONF's extension 230 for 1.3.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from netdyno.switch.openflow.action import OUTPUT, SELECT, Group
from netdyno.switch.openflow.flow import FlowEntry, match_bytes, match_fields

VERSION = 4
HEADER = 8
"""Bytes: version, type, length, transaction."""

HELLO, ERROR, ECHO_REQUEST, ECHO_REPLY, EXPERIMENTER = 0, 1, 2, 3, 4
FEATURES_REQUEST, FEATURES_REPLY, FLOW_MOD, GROUP_MOD = 5, 6, 14, 15
PACKET_IN, PACKET_OUT = 10, 13
MULTIPART_REQUEST, MULTIPART_REPLY, BARRIER_REQUEST, BARRIER_REPLY = 18, 19, 20, 21
ROLE_REQUEST, ROLE_REPLY = 24, 25
ADD, DELETE_STRICT = 0, 4
DELETE_GROUP = 2
MASTER, SLAVE = 2, 3
ALL_TABLES, ANY = 0xFF, 0xFFFFFFFF
NO_BUFFER = 0xFFFFFFFF
ONF = 0x4F4E4600
BUNDLE_CONTROL, BUNDLE_ADD = 2300, 2301
OPEN, COMMIT = 0, 4
ATOMIC_ORDERED = 3
IN_PORT = 0x80000000
"""Header of the match field, without its length."""
FLOOD = 0xFFFFFFFB
_MORE = 1
_FLOW_STATS, _GROUP_DESC = 1, 7

_ERRORS = {
    0: "HELLO failed", 1: "bad request", 2: "bad action", 3: "bad instruction", 4: "bad match",
    5: "the flow cannot be changed", 6: "the group cannot be changed", 11: "role refused",
    0xFFFF: "experimenter's error",
}  # fmt: skip
_CODES = {(0, 0): "no common version", (1, 10): "this controller is a slave", (5, 1): "the table is full",
          (11, 0): "the generation id is stale"}  # fmt: skip
STALE = (11, 0)
"""Type and code of an error: another master has a newer generation id."""


@dataclass(frozen=True)
class Message:
    """A message: its type, transaction, and what follows the header."""

    kind: int
    xid: int
    body: bytes

    def __bytes__(self) -> bytes:
        return struct.pack("!BBHI", VERSION, self.kind, HEADER + len(self.body), self.xid) + self.body


@dataclass(frozen=True)
class Header:
    """The first 8 bytes of a message."""

    version: int
    kind: int
    length: int
    xid: int

    @staticmethod
    def of(data: bytes) -> Header:
        """From the wire. Raises ValueError if that is no OpenFlow."""
        made = Header(*struct.unpack("!BBHI", data))
        if not 1 <= made.version <= 6 or made.length < HEADER:
            raise ValueError(f"no OpenFlow message: it begins with {data!r}")
        return made


class OpenFlowError(Exception):
    """An error message of a switch."""

    def __init__(self, body: bytes) -> None:
        self.pair: tuple[int, int] = struct.unpack_from("!HH", body) if len(body) >= 4 else (-1, -1)
        kind, code = self.pair
        said = _CODES.get(self.pair) or f"{_ERRORS.get(kind, f'error type {kind}')}, code {code}"
        super().__init__(said)


def hello() -> bytes:
    """Body of a HELLO: version 1.3 alone, as a bitmap."""
    return struct.pack("!HHI", 1, 8, 1 << VERSION)


def speaks_13(header: Header, body: bytes) -> bool:
    """Whether the sender of a HELLO speaks 1.3 (7.5.1): by its bitmap, else by its highest version."""
    at = 0
    while at + 4 <= len(body):
        kind, length = struct.unpack_from("!HH", body, at)
        if kind == 1 and length >= 8 and at + 8 <= len(body):
            return bool(struct.unpack_from("!I", body, at + 4)[0] >> VERSION & 1)
        at += max(8, -(-length // 8) * 8)
    return header.version >= VERSION


def datapath(body: bytes) -> int:
    """Identity of the switch, from a FEATURES_REPLY (7.3.1). Raises ValueError."""
    if len(body) < 8:
        raise ValueError("a features reply of too few bytes")
    return int(struct.unpack_from("!Q", body)[0])


def flow_mod(command: int, flow: FlowEntry) -> bytes:
    """Body of a FLOW_MOD for table 0 (7.3.4.2): an entry is added, or removed by its priority and match."""
    table, mask, out = 0, 0, ANY
    head = struct.pack(
        "!QQBBHHHIIIH2x", flow.cookie, mask, table, command, 0, 0, flow.priority, NO_BUFFER, out, out, 0
    )
    return head + match_bytes(flow.match) + (flow.instructions if command == ADD else b"")


def packet_in(body: bytes) -> tuple[int, bytes]:
    """The port and the frame of a PACKET_IN (7.4.1). Raises ValueError where it is cut short."""
    match, size = match_fields(body[16:])
    port = next((value for header, value in match if header == IN_PORT), b"")
    if len(port) != 4 or len(body) < 16 + size + 2:
        raise ValueError("a packet-in without a port")
    return int.from_bytes(port, "big"), body[16 + size + 2 :]


def packet_out(port: int, out: int, frame: bytes) -> bytes:
    """Body of a PACKET_OUT (7.3.7): a frame that came in by a port leaves by another, or by all (`FLOOD`)."""
    output = struct.pack("!HHIH6x", OUTPUT, 16, out, 0)
    return struct.pack("!IIH6x", NO_BUFFER, port, len(output)) + output + frame


def group_mod(command: int, group: Group | int) -> bytes:
    """Body of a GROUP_MOD (7.3.4.3): a group of type `select` is added, or one is removed by its number."""
    number, buckets = (group, b"") if isinstance(group, int) else (group.number, group.buckets)
    return struct.pack("!HBxI", command, SELECT, number) + buckets


def group_stats() -> bytes:
    """Body of a MULTIPART_REQUEST for the descriptions of all groups (7.3.5.10)."""
    return struct.pack("!HH4x", _GROUP_DESC, 0)


def group_numbers(body: bytes) -> set[int]:
    """Numbers of the groups in a MULTIPART_REPLY. Raises ValueError where it is cut short."""
    at, found = 8, set()
    while at < len(body):
        if len(body) < at + 8:
            raise ValueError("a group is cut short")
        length, number = struct.unpack_from("!H2xI", body, at)
        if length < 8 or at + length > len(body):
            raise ValueError(f"a group of length {length}")
        found.add(number)
        at += length
    return found


def role(kind: int, generation: int) -> bytes:
    """Body of a ROLE_REQUEST (7.3.9)."""
    return struct.pack("!I4xQ", kind, generation)


def flow_stats() -> bytes:
    """Body of a MULTIPART_REQUEST for all flow entries (7.3.5.2)."""
    empty = match_bytes(frozenset())
    return struct.pack("!HH4xB3xII4xQQ", _FLOW_STATS, 0, ALL_TABLES, ANY, ANY, 0, 0) + empty


def more(body: bytes) -> bool:
    """Whether further parts of a MULTIPART_REPLY follow. Raises ValueError."""
    if len(body) < 8:
        raise ValueError("a multipart reply of too few bytes")
    return bool(struct.unpack_from("!H", body, 2)[0] & _MORE)


@dataclass(frozen=True)
class FlowStats:
    """A flow entry of a switch and what it counted."""

    table: int
    flow: FlowEntry
    packets: int


def flow_entries(body: bytes) -> list[FlowStats]:
    """Flow entries in a MULTIPART_REPLY. Raises ValueError where it is cut short."""
    at, found = 8, []
    while at < len(body):
        if len(body) < at + 56:
            raise ValueError("a flow entry is cut short")
        length, table, priority = (
            *struct.unpack_from("!HB", body, at),
            struct.unpack_from("!H", body, at + 12)[0],
        )
        cookie, packets = struct.unpack_from("!QQ", body, at + 24)
        if length < 56 or at + length > len(body):
            raise ValueError(f"a flow entry of length {length}")
        match, size = match_fields(body[at + 48 : at + length])
        flow = FlowEntry(cookie, priority, match, body[at + 48 + size : at + length])
        found.append(FlowStats(table, flow, packets))
        at += length
    return found


def bundle(step: int, number: int) -> bytes:
    """Body of a bundle control message: opened, or committed at once and in order."""
    return struct.pack("!IIIHH", ONF, BUNDLE_CONTROL, number, step, ATOMIC_ORDERED)


def bundled(number: int, message: Message) -> bytes:
    """Body of a message that puts another into a bundle; both have one transaction."""
    return struct.pack("!III2xH", ONF, BUNDLE_ADD, number, ATOMIC_ORDERED) + bytes(message)


def changes(present: list[FlowEntry], wanted: list[FlowEntry]) -> tuple[list[FlowEntry], list[FlowEntry]]:
    """Entries to add and to remove so that a table has what is wanted and nothing else."""
    there = {one.key: one for one in present}
    kept = {one.key for one in wanted}
    return [one for one in wanted if there.get(one.key) != one], [
        one for one in present if one.key not in kept
    ]
