"""How messages look: HTTP, MQTT, CoAP, lines of text, and datagrams that are sent back."""

from __future__ import annotations

from collections.abc import Callable

from failing.behaviour import Message

Dialect = Callable[[bytes], tuple[Message, int] | None]
"""The first whole message in these bytes and its length; None: more is to come."""

BODY = b"hello"


def response(
    body: bytes = BODY,
    status: str = "200 OK",
    length: int | None = None,
    *fields: bytes,
) -> bytes:
    """An HTTP response, that may lie about its length."""
    said = len(body) if length is None else length
    head = [f"HTTP/1.1 {status}".encode(), b"Content-Length: %d" % said, *fields]
    return b"\r\n".join(head) + b"\r\n\r\n" + body


def http(data: bytes) -> tuple[Message, int] | None:
    """A request without a body (RFC 9112)."""
    head, end, _ = data.partition(b"\r\n\r\n")
    if not end:
        return None
    if b"connection: close" in head.lower():
        answer = response(BODY, "200 OK", None, b"Connection: close")
        return Message(head, answer, last=True), len(head + end)
    return Message(head, response()), len(head + end)


def line(data: bytes) -> tuple[Message, int] | None:
    """A line of text, answered with `ok`."""
    text, end, _ = data.partition(b"\n")
    return (Message(text, b"ok\n"), len(text) + 1) if end else None


CONNECT, PUBLISH, PUBREL, SUBSCRIBE, PINGREQ, DISCONNECT = 1, 3, 6, 8, 12, 14


def mqtt(data: bytes) -> tuple[Message, int] | None:
    """A control packet of MQTT 3.1.1 or 5.0."""
    frame = _packet(data)
    if frame is None:
        return None
    start, end = frame
    kind, flags, body, packet = data[0] >> 4, data[0] & 15, data[start:end], data[:end]
    if kind == CONNECT:
        # the level stands behind the name of the protocol; 5.0 has properties in its answers
        v5 = body[2 + int.from_bytes(body[:2])] == 5
        connack = b"\x20\x03\x00\x00\x00" if v5 else b"\x20\x02\x00\x00"
        return Message(packet, connack, greeting=True), end
    if kind == PUBLISH:
        qos, topic = flags >> 1 & 3, 2 + int.from_bytes(body[:2])
        number = body[topic : topic + 2]
        return Message(packet, (b"", b"\x40\x02" + number, b"\x50\x02" + number)[qos]), end
    answers = {
        PUBREL: b"\x70\x02" + body[:2],
        PINGREQ: b"\xd0\x00",
        SUBSCRIBE: b"\x90\x03" + body[:2] + b"\0",
    }
    return Message(packet, answers.get(kind, b""), greeting=True, last=kind == DISCONNECT), end


def _packet(data: bytes) -> tuple[int, int] | None:
    """Where the body of the first packet begins and ends; None: it is not all there."""
    length = 0
    for at, byte in enumerate(data[1:5]):
        length |= (byte & 127) << 7 * at
        if byte < 128:
            return (at + 2, at + 2 + length) if len(data) >= at + 2 + length else None
    return None


def coap(data: bytes) -> tuple[Message, int] | None:
    """A confirmable request (RFC 7252 section 3), answered in its acknowledgement with 2.05."""
    token = data[4 : 4 + (data[0] & 15)]
    answer = bytes([0x60 | len(token), 0x45]) + data[2:4] + token + b"\xff" + BODY
    return Message(data, answer), len(data)


def echo(data: bytes) -> tuple[Message, int] | None:
    """A datagram, which comes back as it is."""
    return Message(data, data), len(data)


def icmp(data: bytes) -> tuple[Message, int] | None:
    """An echo request, without its IPv4 header (RFC 792); anything else is no message."""
    if len(data) < 8 or data[0] != 8:
        return None
    return Message(data, summed(b"\0\0\0\0" + data[4:])), len(data)


def summed(message: bytes) -> bytes:
    """An ICMP message with its checksum put right (RFC 1071)."""
    blank = message[:2] + b"\0\0" + message[4:]
    total = sum(int.from_bytes(blank[at : at + 2].ljust(2, b"\0")) for at in range(0, len(blank), 2))
    while total > 0xFFFF:
        total = (total & 0xFFFF) + (total >> 16)
    return message[:2] + (total ^ 0xFFFF).to_bytes(2) + message[4:]
