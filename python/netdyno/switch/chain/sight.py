"""What is seen of a packet at the ports of a chain, and whether that is its path; pure."""

from __future__ import annotations

import re
import struct
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from netdyno.switch.chain.steering import Port, Rule, Step, Tag

_NSH, _ETHERNET = b"\x89\x4f", 3
_TAGS = (b"\x81\x00", b"\x88\xa8")
"""Ethernet types of VLAN tags: C-tag and S-tag (IEEE 802.1Q)."""
_ICMP, _ICMPV6 = 1, 58
_IPV6_FRAGMENT = 44
FRAGMENT = "fragment"
"""What keys of fragments begin with."""
ND = (135, 136)
"""Types of ICMPv6: neighbour solicitation and advertisement (RFC 4861 section 4)."""
TUNNEL = "tunnel"
"""What is at fault where packets are not as they are to be between two switches."""
SIGN = b"netdyno-chain"
"""What the payload of each conversation begins with."""
MARK = re.compile(rb"netdyno-chain-[0-9a-f]{16}-(?:there|back)")
Key = tuple[object, ...]
"""Tells a packet at every hop, whatever a NAT changes of its addresses and ports."""


class Content(NamedTuple):
    """Of a datagram or segment, what only some functions may change."""

    macs: bytes
    addresses: bytes
    ports: bytes
    dscp: int
    payload: bytes
    ttl: int = 64
    """The hop limit of IPv6."""
    ecn: int = 0
    identity: bytes = b""
    """Identification, flags and fragment offset of IPv4, flow label of IPv6."""
    ip_options: bytes = b""
    segment: bytes = b""
    """Window, urgent pointer and options of TCP."""
    unchecked: bool = False
    """Whether it is a datagram without a checksum."""


@dataclass(frozen=True)
class Sighting:
    """A frame at a port."""

    at: int
    """Nanoseconds, of one clock for all ports."""
    port: Port
    sends: bool
    """Whether the host of the port sent it."""
    tag: str = ""
    """Its encapsulation in words; empty: none."""
    outer: str = ""
    """The headers of its tunnel in words; empty: it is in none."""
    content: Content | None = None
    """What is in it, of TCP and UDP."""


@dataclass(frozen=True)
class Fault:
    """Where a packet left its path."""

    what: str
    rule: Rule | None = None
    """The rule at fault; None: a function or an end."""
    host: str = ""
    """The host at fault, where it is no rule."""
    also: Rule | None = None
    """A second rule, where two disagree and nothing tells which of them is right."""
    excess: bool = False
    """Whether there is one packet too many: any rule before may have made it."""
    leak: bool = False
    """Whether there is a packet that is not to be there at all."""

    @property
    def certain(self) -> bool:
        """Whether no busy machine makes it, as one loses packets."""
        return self.excess or self.leak

    def __str__(self) -> str:
        if self.rule and self.also:
            return f"{self.rule}; {self.also}: {self.what}"
        return f"{self.rule}: {self.what}" if self.rule else f"{self.host}: {self.what}"


def key(frame: bytes) -> Key | None:
    """What tells a packet of TCP, UDP, ARP or neighbour discovery over Ethernet; None for others.

    TCP's numbers are drawn anew for each connection and pass a NAT unchanged; of UDP it is the payload. A
    mark in TCP's payload is the same in any connection.
    """
    frame, kind, at = _inner(frame)
    if kind == b"\x08\x06" and len(frame) >= at + 28:
        operation, sender, target = frame[at + 6 : at + 8], frame[at + 14 : at + 18], frame[at + 24 : at + 28]
        return "arp", operation, sender, target
    if part := _fragment(frame, kind, at):
        return part
    if (found := _transport(frame, kind, at)) is None:
        return None
    protocol, transport, end, suffix = found
    if protocol == 6 and len(frame) >= transport + 20:
        numbers, words = frame[transport + 4 : transport + 12], frame[transport + 12] >> 4
        if mark := MARK.search(frame, transport + words * 4, end):
            return f"tcp{suffix}", mark[0]
        return f"tcp{suffix}", numbers, frame[transport + 13], end - transport - words * 4
    if protocol == 17 and len(frame) >= transport + 8:
        return f"udp{suffix}", frame[transport + 8 : end]
    if suffix and protocol == _ICMPV6 and len(frame) >= transport + 24 and frame[transport] in ND:
        return "nd", frame[transport], frame[transport + 8 : transport + 24]
    return None


def _fragment(frame: bytes, kind: bytes, at: int) -> Key | None:
    """The identifier and offset of a fragment of IP; None: it is whole."""
    if kind == b"\x08\x00" and len(frame) >= at + 20 and struct.unpack_from("!H", frame, at + 6)[0] & 0x3FFF:
        return FRAGMENT, frame[at + 4 : at + 8]
    if kind == b"\x86\xdd" and len(frame) >= at + 48 and frame[at + 6] == _IPV6_FRAGMENT:
        return FRAGMENT, frame[at + 42 : at + 48]
    return None


def unread(frame: bytes) -> bool:
    """Whether a frame without a key has a mark of a conversation. Errors of ICMP quote what they are of."""
    if SIGN not in frame:
        return False
    inner, kind, at = _inner(frame)
    found = _transport(inner, kind, at)
    return found is None or found[0] not in (_ICMP, _ICMPV6)


def server_port(frame: bytes) -> tuple[int, int, int] | None:
    """IP protocol, source port and destination port of a frame over IP."""
    frame, kind, at = _inner(frame)
    found = _transport(frame, kind, at)
    if found is None or len(frame) < found[1] + 4:
        return None
    source, target = struct.unpack_from("!HH", frame, found[1])
    return found[0], source, target


def content(frame: bytes) -> Content | None:
    """What is in a frame of TCP or UDP; None for others."""
    frame, kind, at = _inner(frame)
    found = _transport(frame, kind, at)
    if found is None or found[0] not in (6, 17) or len(frame) < found[1] + 8:
        return None
    protocol, transport, end, suffix = found
    head = (frame[transport + 12] >> 4) * 4 if protocol == 6 and len(frame) > transport + 12 else 8
    segment = b""
    if protocol == 6 and len(frame) >= transport + 20:
        window, urgent = frame[transport + 14 : transport + 16], frame[transport + 18 : transport + 20]
        segment = window + urgent + frame[transport + 20 : transport + head]
    addresses = frame[at + 8 : at + 40] if suffix else frame[at + 12 : at + 20]
    traffic = struct.unpack_from("!H", frame, at)[0] >> 4 & 0xFF if suffix else frame[at + 1]
    return Content(
        frame[:12], addresses, frame[transport : transport + 4], traffic >> 2,
        frame[transport + head : end],
        ttl=frame[at + 7] if suffix else frame[at + 8],
        ecn=traffic & 3,
        identity=bytes([frame[at + 1] & 15]) + frame[at + 2 : at + 4] if suffix else frame[at + 4 : at + 8],
        ip_options=b"" if suffix else frame[at + 20 : transport],
        segment=segment,
        unchecked=protocol == 17 and frame[transport + 6 : transport + 8] == b"\0\0",
    )  # fmt: skip


def _transport(frame: bytes, kind: bytes, at: int) -> tuple[int, int, int, str] | None:
    """IP protocol, where its header begins and the packet ends, and `6` for IPv6 (no extension headers)."""
    if kind == b"\x08\x00" and len(frame) >= at + 20:
        return frame[at + 9], at + (frame[at] & 15) * 4, at + struct.unpack_from("!H", frame, at + 2)[0], ""
    if kind == b"\x86\xdd" and len(frame) >= at + 40:
        return frame[at + 6], at + 40, at + 40 + struct.unpack_from("!H", frame, at + 4)[0], "6"
    return None


def encapsulation(frame: bytes) -> str:
    """A frame's VLAN tag or network service header in words, as of `Tag`; empty: it has none."""
    if frame[12:14] == b"\x81\x00" and len(frame) >= 18:
        return str(Tag(struct.unpack_from("!H", frame, 14)[0] & 0xFFF))
    if frame[12:14] == _NSH and len(frame) >= 22:
        base, word = struct.unpack_from("!II", frame, 14)
        version, length, metadata, inside = base >> 30, base >> 16 & 0x3F, base >> 8 & 0xF, base & 0xFF
        told = str(Tag(word >> 8, word & 0xFF, base >> 22 & 0x3F))
        if (version, length, metadata, inside) == (0, 2, 2, _ETHERNET):
            return told
        return f"{told} version {version} length {length} MD type {metadata} next protocol {inside}"
    return ""


def _inner(frame: bytes) -> tuple[bytes, bytes, int]:
    """A frame without its network service header, its Ethernet type beyond VLAN tags, and where that ends."""
    if frame[12:14] == _NSH and len(frame) >= 22 and frame[17] == _ETHERNET:
        frame = frame[14 + (frame[15] & 0x3F) * 4 :]
    at = 14
    while frame[at - 2 : at] in _TAGS:
        at += 4
    return frame, frame[at - 2 : at], at


def marked(one: Key) -> bool:
    """Whether a packet is told by a mark in TCP's payload, whatever connection it is in."""
    return len(one) == 2 and str(one[0]).startswith("tcp")


def judge(
    path: Sequence[Step], seen: Sequence[Sighting], sent: int = 1, shared: Collection[Port] = ()
) -> Fault | None:
    """Whether a packet that was sent so often followed its path: each point as often, in order, and no other.
    `shared`: ports of which the switch shows copies.

    The first departure is told, with the rule that brings a packet to that point.
    """
    at: dict[tuple[Port, bool], list[Sighting]] = defaultdict(list)
    for one in seen:
        at[one.port, one.sends].append(one)
    for place, step in enumerate(path[1:], 1):
        here = at.get((step.port, step.sends), [])
        count = len(here)
        if count == sent:
            other = next((one.outer for one in here if one.outer != step.outer), None)
            if other is not None:
                return Fault(f"{step} it in {other or 'no tunnel'}, and not in {step.outer}", host=TUNNEL)
            seen_as = next((one.tag for one in here if one.tag != step.tag), None)
            if seen_as is not None:
                what = f"{step} it with {seen_as or 'no tag'}, and not with {step.tag or 'none'}"
                return _fault(step, path[place - 1], what)
            continue
        if count > sent:
            return _surplus(path, place, at, sent)
        return _fault(step, path[place - 1], f"{step.port} {_missed(step, count, sent)}{_stray(path, seen)}")
    if odd := _off(path, seen):
        return odd
    if sent == 1:
        return _order(path, seen, shared)
    return None


def excess(path: Sequence[Step], seen: Sequence[Sighting]) -> Fault | None:
    """Whether a packet is anywhere more often than it was sent, or beside its path; losses are none."""
    at: dict[tuple[Port, bool], list[Sighting]] = defaultdict(list)
    for one in seen:
        at[one.port, one.sends].append(one)
    sent = len(at.get((path[0].port, True), []))
    for place, step in enumerate(path[1:], 1):
        if len(at.get((step.port, step.sends), [])) > sent:
            return _surplus(path, place, at, sent)
    return _off(path, seen)


def _surplus(
    path: Sequence[Step], place: int, at: Mapping[tuple[Port, bool], Sequence[Sighting]], sent: int
) -> Fault:
    step = path[place]
    what = f"{step} it {len(at[step.port, step.sends])} times, and it was sent {_times(sent)}"
    received = sum(len(of) for (port, sends), of in at.items() if port.host == step.port.host and not sends)
    # a function that sends more than it received does so by itself, and no rule
    return _fault(step, path[place - 1], what, excess=bool(step.rule) or received > sent, leak=True)


def _off(path: Sequence[Step], seen: Sequence[Sighting]) -> Fault | None:
    points = {(step.port, step.sends) for step in path}
    for one in sorted(seen, key=lambda s: s.at):
        if (one.port, one.sends) not in points and not one.sends:
            step = next((step for step in path if step.rule), path[0])
            return _fault(step, step, f"{one.port} receives it, too, and is not on its path", excess=True)
    return None


def _order(path: Sequence[Step], seen: Sequence[Sighting], shared: Collection[Port]) -> Fault | None:
    # a copy is in no order with the rest, and that of what a port over shared memory sent is as late as
    # what the switch sends on at once
    wanted = [step for step in path if not step.copy and not (step.sends and step.port in shared)]
    points = {(step.port, step.sends): step for step in wanted}
    found = [points[one.port, one.sends] for one in sorted(seen, key=lambda s: s.at)
             if (one.port, one.sends) in points]  # fmt: skip
    for place, (step, came) in enumerate(zip(wanted, found, strict=False)):
        if step != came and place:
            return _fault(step, wanted[place - 1], f"{came} it before {step}")
    return None


def _fault(step: Step, before: Step, what: str, *, excess: bool = False, leak: bool = False) -> Fault:
    if step.rule is not None:
        return Fault(what, step.rule, excess=excess, leak=leak)
    return Fault(what, host=before.port.host, excess=excess, leak=leak)


def _missed(step: Step, count: int, sent: int) -> str:
    verb = "sends it" if step.sends else "receives it"
    return f"{verb} {_times(count)}, and it was sent {_times(sent)}" if count else f"never {verb}"


def _stray(path: Sequence[Step], seen: Sequence[Sighting]) -> str:
    points = {(step.port, step.sends) for step in path}
    elsewhere = [one for one in sorted(seen, key=lambda s: s.at) if (one.port, one.sends) not in points]
    return f"; {elsewhere[0].port} receives it instead" if elsewhere else ""


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"
