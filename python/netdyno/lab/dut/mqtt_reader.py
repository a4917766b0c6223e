"""Just enough of an MQTT 3.1.1 client to read a broker's own counters, independent of the core's."""

from __future__ import annotations

import contextlib
import socket
import struct
import time
from collections.abc import Iterator
from typing import NamedTuple

LONGEST = 1 << 20
"""Bytes of a packet; those of counters have some hundred."""


class Message(NamedTuple):
    """A PUBLISH that the broker sent."""

    topic: str
    payload: str
    retained: bool


def _string(text: str) -> bytes:
    data = text.encode()
    return struct.pack("!H", len(data)) + data


def _packet(kind: int, body: bytes) -> bytes:
    length = len(body)
    head = bytearray([kind])
    while True:
        length, digit = divmod(length, 128)
        head.append(digit | (0x80 if length else 0))
        if not length:
            return bytes(head) + body


def subscribe(connection: socket.socket, topic: str) -> Iterator[Message]:
    """Messages of one topic filter; ends with the connection, raises TimeoutError after a quiet time."""
    stream = connection.makefile("rb")
    # clean session, keep-alive off [MQTT-3.1]
    connection.sendall(_packet(0x10, _string("MQTT") + b"\x04\x02\x00\x00" + _string("netdyno-witness")))
    connection.sendall(_packet(0x82, b"\x00\x01" + _string(topic) + b"\x00"))
    while head := stream.read(1):
        length, shift = 0, 0
        while True:
            digit = stream.read(1)
            if not digit:
                return
            length |= (digit[0] & 0x7F) << shift
            shift += 7
            if not digit[0] & 0x80:
                break
            if shift >= 28:
                raise ConnectionError("the broker sends a length that is none")
        if length > LONGEST:
            raise ConnectionError(f"the broker sends a packet of {length} bytes")
        body = stream.read(length)
        if len(body) < length:
            return
        if head[0] >> 4 == 2 and body[1:2] != b"\0":
            raise ConnectionError(f"the broker refuses with CONNACK code {body[1:2].hex() or 'none'}")
        if head[0] >> 4 == 3 and len(body) >= 2:
            end = 2 + struct.unpack("!H", body[:2])[0]
            topic, payload = (part.decode(errors="replace") for part in (body[2:end], body[end:]))
            yield Message(topic, payload, bool(head[0] & 1))


def leave(connection: socket.socket, within: float = 5.0) -> None:
    """Disconnect, and wait until the broker has closed: until then it counts us among its clients."""
    until = time.monotonic() + within
    with contextlib.suppress(OSError):
        connection.sendall(_packet(0xE0, b""))
        while (left := until - time.monotonic()) > 0:
            connection.settimeout(left)
            # what it still sends is of no use any more
            if not connection.recv(LONGEST):
                return
