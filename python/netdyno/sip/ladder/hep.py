"""HEP version 3 export: messages of calls to a capture server such as Homer, with credentials hidden."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterable
from ipaddress import ip_address

from netdyno.errors import Error
from netdyno.sip.ladder.calls import Call

AGENT = 2026
"""Capture agent id of our packets."""
SIP = 1
"""Protocol type of SIP."""
LARGEST = 65_000
"""Bytes of a datagram."""


def _chunk(kind: int, data: bytes) -> bytes:
    """A chunk of the generic vendor."""
    return struct.pack("!HHH", 0, kind, 6 + len(data)) + data


def packet(source: str, to: str, transport: str, at: float, message: bytes, call_id: str) -> bytes:
    """A message with its addresses and time (seconds since 1970)."""
    (sender, port), (receiver, other) = _party(source), _party(to)
    version4 = len(sender) == 4
    seconds = int(at)
    chunks = [
        _chunk(1, struct.pack("!B", socket.AF_INET if version4 else socket.AF_INET6)),
        _chunk(2, struct.pack("!B", socket.IPPROTO_UDP if transport == "udp" else socket.IPPROTO_TCP)),
        _chunk(3 if version4 else 5, sender),
        _chunk(4 if version4 else 6, receiver),
        _chunk(7, struct.pack("!H", port)),
        _chunk(8, struct.pack("!H", other)),
        _chunk(9, struct.pack("!I", seconds)),
        _chunk(10, struct.pack("!I", min(999_999, round((at - seconds) * 1e6)))),
        _chunk(11, struct.pack("!B", SIP)),
        _chunk(12, struct.pack("!I", AGENT)),
        _chunk(17, call_id.encode()),
        _chunk(15, message),
    ]
    body = b"".join(chunks)
    return b"HEP3" + struct.pack("!H", 6 + len(body)) + body


def _party(text: str) -> tuple[bytes, int]:
    host, _, port = text.rpartition(":")
    return ip_address(host.strip("[]")).packed, int(port)


def send(address: str, calls: Iterable[Call]) -> int:
    """Send all messages of calls; how many were sent. Messages too long for a datagram are left out."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal() or not 1 <= int(port) <= 65535:
        raise Error("ND-104-22", f"{address!r} is not ADDRESS:PORT", at="--hep", fix="Like 192.0.2.9:9060")
    try:
        family, kind, _, _, where = socket.getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_DGRAM)[0]
    except OSError as e:
        raise Error("ND-92-03", f"{host} cannot be resolved: {e}", at="--hep") from e
    sent = 0
    with socket.socket(family, kind) as wire:
        for call in calls:
            for one in call.arrows:
                at = call.began + one.at_ms / 1000
                data = packet(one.source, one.to, call.transport, at, one.text.encode(), call.call_id)
                if len(data) <= LARGEST:
                    wire.sendto(data, where)
                    sent += 1
    return sent
