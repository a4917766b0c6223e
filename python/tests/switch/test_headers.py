"""Headers that functions change: all that `verify` compares is read, and only a router takes one from the TTL."""

from __future__ import annotations

import struct
from dataclasses import replace

import pytest

from netdyno.switch.chain import steering
from netdyno.switch.chain.changes import changed
from netdyno.switch.chain.sight import Content, Sighting, content
from netdyno.switch.chain.spec import checked

UDP = struct.pack("!HHHH", 1000, 2000, 12, 0x1234) + b"data"
TCP = struct.pack("!HHIIBBHHH", 1000, 2000, 1, 2, 0x60, 2, 500, 0, 7) + b"\2\4\5\xb4"


def four(protocol: int, rest: bytes, options: bytes = b"") -> bytes:
    """A frame over IPv4 with DSCP 46, ECT(1) and DF."""
    head = struct.pack(
        "!BBHHHBBH",
        0x45 + len(options) // 4,
        0xB9,
        20 + len(options) + len(rest),
        77,
        0x4000,
        63,
        protocol,
        0,
    )
    return bytes(12) + b"\x08\x00" + head + bytes(8) + options + rest


def six(protocol: int, rest: bytes) -> bytes:
    """A frame over IPv6 with DSCP 46, ECT(1) and a flow label."""
    head = struct.pack("!IHBB", 6 << 28 | 0xB9 << 20 | 0x54321, len(rest), protocol, 62)
    return bytes(12) + b"\x86\xdd" + head + bytes(32) + rest


def test_headers_are_read() -> None:
    one = content(four(17, UDP, b"\1\1\1\0"))
    assert one and one.payload == b"data"
    assert (one.dscp, one.ecn, one.ttl, one.identity) == (46, 1, 63, b"\0\x4d\x40\0")
    assert (one.ip_options, one.segment, one.unchecked) == (b"\1\1\1\0", b"", False)
    two = content(four(6, TCP))
    assert two and (two.segment, two.payload) == (b"\x01\xf4\0\7\2\4\5\xb4", b"")
    three = content(six(17, UDP[:6] + b"\0\0" + UDP[8:]))
    assert three and (three.dscp, three.ecn, three.ttl, three.identity) == (46, 1, 62, b"\5\x43\x21")
    assert three.unchecked and not three.ip_options


CHAIN = checked({"vnfs": {"r": {"kind": "router"}, "b": {"kind": "bridge"}}, "chain": ["b", "r"]}, "x")
PATH = steering.expected(steering.rules(CHAIN), "default", "forward")
WHOLE = Content(bytes(12), bytes(8), bytes(4), 0, b"data")


def told(at: dict[str, int]) -> str:
    """What is told of a packet with this TTL from some hosts on."""
    seen, now = [], WHOLE
    for number, step in enumerate(PATH):
        now = now._replace(ttl=at.get(str(step), now.ttl))
        seen.append(Sighting(number, step.port, step.sends, content=now))
    return str(changed(CHAIN, PATH, seen) or "")


def test_a_router_takes_one_from_the_ttl_and_a_bridge_none() -> None:
    assert not told({"r.out sends": 63})
    assert told({}) == "r: r.out sends it with another TTL"
    assert told({"r.out sends": 62}) == "r: r.out sends it with another TTL"
    assert told({"b.out sends": 63, "r.out sends": 62}) == "b: b.out sends it with another TTL"


@pytest.mark.parametrize(
    ("part", "value", "words"),
    [
        ("ip_options", b"\1\1\1\0", "other IP options"),
        ("identity", b"abcd", "another IP identification"),
        ("unchecked", True, "no checksum"),
    ],
)
def test_a_changed_header_is_told(part: str, value: object, words: str) -> None:
    way = PATH[:3]
    seen = [Sighting(number, step.port, step.sends, content=WHOLE) for number, step in enumerate(way)]
    seen[2] = replace(seen[2], content=WHOLE._replace(**{part: value}))
    assert words in str(changed(CHAIN, way, seen))
