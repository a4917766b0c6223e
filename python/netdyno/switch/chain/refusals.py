"""What the switch drops where it comes in: a frame for each such rule, and whether any port gets it."""

from __future__ import annotations

import secrets
import socket
import struct
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import dpkt

from netdyno.switch.chain import layout, transit
from netdyno.switch.chain.capture import Captures
from netdyno.switch.chain.lab import ChainLab
from netdyno.switch.chain.sight import Fault, Key, Sighting, key
from netdyno.switch.chain.spec import Version
from netdyno.switch.chain.steering import CLIENT, SERVER, TAG_TYPES, TWO_TAGS, Direction, Port, Rule
from netdyno.switch.chain.talk import ANSWER, PROTOCOLS, dscp_of, free_port, port_of
from netdyno.system import namespace

_ROUNDS = 3
"""Of a chain whose description asks for changed packets, so many rounds must agree."""
_OTHER = 30_000
"""Port of the end to which a frame goes."""
_TYPES = {4: b"\x08\x00", 6: b"\x86\xdd"}
_SYN = 2
_OUTER_VLAN, _INNER_VLAN = 5, 7


@dataclass(frozen=True)
class Refusal:
    """Frames of one kind that an end sent, and that the switch is to drop."""

    traffic: str
    direction: Direction
    protocol: str
    source: Port
    packets: int
    fault: Fault | None = None
    untested: str = ""
    counts: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class _Sent:
    rule: Rule
    protocol: str
    frame: bytes
    """From its Ethernet type on."""

    @property
    def key(self) -> Key:
        """What tells it at every port."""
        found = key(bytes(12) + self.frame)
        assert found is not None, "it is TCP or UDP"
        return found


def proofs(lab: ChainLab, captures: Captures) -> list[Refusal]:
    """Of each class and direction in which the switch drops all: whether it does."""
    wanted = [rule for rule in lab.rules if rule.refuses]
    if not wanted:
        return []
    found: list[Refusal] = []
    for _ in range(1 if captures.exact else _ROUNDS):
        found = _round(lab, captures, wanted)
        if not any(one.fault for one in found):
            break
    return found


def _round(lab: ChainLab, captures: Captures, rules: Sequence[Rule]) -> list[Refusal]:
    sent = [one for rule in rules for one in _frames(lab, rule)]
    others = {CLIENT: lab.mac(SERVER, "eth0"), SERVER: lab.mac(CLIENT, "eth0")}
    captures.clear()
    for end, other in others.items():
        _send(lab, end, other, [one.frame for one in sent if one.rule.source.host == end])
    until = time.monotonic() + ANSWER
    while not all(captures.of(one.key) for one in sent) and time.monotonic() < until:
        time.sleep(0.01)
    captures.quiet(transit.quiet(lab), ANSWER + transit.quiet(lab))
    by: dict[tuple[str, Direction, str], list[_Sent]] = {}
    for one in sent:
        by.setdefault((one.rule.traffic, one.rule.direction, one.protocol), []).append(one)
    return [_judged(captures, *about, frames) for about, frames in by.items()]


def _judged(
    captures: Captures, traffic: str, direction: Direction, protocol: str, frames: Sequence[_Sent]
) -> Refusal:
    source = frames[0].rule.source
    seen = [(one.rule, captures.of(one.key)) for one in frames]
    count = sum(any(s.port == source and s.sends for s in every) for _, every in seen)
    fault = next((odd for rule, every in seen if (odd := _passed(rule, every))), None)
    untested = "" if count == len(frames) else f"{source.host} sent {count} of {len(frames)} packets"
    return Refusal(
        traffic, direction, protocol, source, len(frames), fault, untested, {f"{source} sends": count}
    )


def _passed(rule: Rule, seen: Sequence[Sighting]) -> Fault | None:
    beyond = sorted((one for one in seen if one.port != rule.source), key=lambda one: one.at)
    if not beyond:
        return None
    return Fault(f"{beyond[0].port} gets it, and the switch is to drop it", rule, leak=True)


def _frames(lab: ChainLab, rule: Rule) -> Iterator[_Sent]:
    """Those that meet a rule: of a class without a protocol, one of each."""
    if rule.traffic == TWO_TAGS:
        yield _tagged(lab, rule)
        return
    match = lab.chain.classes[rule.traffic].match
    ports = port_of(lab.chain, rule.traffic), _OTHER
    version: Version = rule.version or 4
    for protocol in [match.protocol] if match.protocol else PROTOCOLS:
        packet = _packet(lab, version, protocol, SERVER, ports, dscp_of(lab.chain, rule.traffic))
        yield _Sent(rule, f"{protocol}{'6' if version == 6 else ''}", _TYPES[version] + packet)


def _tagged(lab: ChainLab, rule: Rule) -> _Sent:
    """A datagram in two VLAN tags, of which the inner has the type that a rule matches."""
    end, (kind,) = rule.source.host, rule.flow.match.values()
    tags = struct.pack("!HHHH", TAG_TYPES[0], _OUTER_VLAN, int(kind, 0), _INNER_VLAN)
    return _Sent(rule, "udp", tags + _TYPES[4] + _packet(lab, 4, "udp", end, (_OTHER, free_port(lab.chain))))


def _packet(
    lab: ChainLab, version: Version, protocol: str, end: str, ports: tuple[int, int], dscp: int = 0
) -> bytes:
    """An IP packet from one end to the other: a datagram, or the first segment of a connection."""
    known = layout.addresses(lab.chain, version)
    family, own, number = (socket.AF_INET, 20, 4) if version == 4 else (socket.AF_INET6, 40, 6)
    way = (known.client, known.server) if end == CLIENT else (known.server, known.client)
    ends = b"".join(socket.inet_pton(family, one) for one in way)
    if protocol == "tcp":
        body = struct.pack("!HHIIBBHHH", *ports, secrets.randbits(32), 0, 5 << 4, _SYN, 64_240, 0, 0)
        at = 16
    else:
        text = b"netdyno-drop " + secrets.token_hex(8).encode()
        body, at = struct.pack("!HHHH", *ports, 8 + len(text), 0) + text, 6
    pseudo = ends + struct.pack("!II", len(body), PROTOCOLS[protocol])
    body = body[:at] + _check(pseudo + body) + body[at + 2 :]
    if number == 6:
        return struct.pack("!IHBB", 6 << 28 | dscp << 22, len(body), PROTOCOLS[protocol], 64) + ends + body
    head = struct.pack("!BBHHHBBH", 0x45, dscp << 2, own + len(body), 0, 0x4000, 64, PROTOCOLS[protocol], 0)
    return head[:10] + _check(head + ends) + ends + body


def _check(data: bytes) -> bytes:
    return struct.pack("!H", dpkt.in_cksum(data))


def _send(lab: ChainLab, end: str, other: str, frames: Sequence[bytes]) -> None:
    """Frames from one end to the Ethernet address of the other."""

    def out() -> None:
        with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as made:
            made.bind(("eth0", 0))
            for frame in frames:
                made.send(bytes.fromhex(other.replace(":", "")) + made.getsockname()[4] + frame)

    if frames:
        namespace.inside(lab.network.namespace(end), out)
