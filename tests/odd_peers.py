"""Servers that are right by their standard and odd: an MQTT 5.0 broker and a CoAP server, each of which says what it saw.

odd_peers.py mqtt|coap PORT LOG
"""

from __future__ import annotations

import json
import socket
import struct
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

LOG: list[list[Any]] = []
LOCK = threading.Lock()
PATH = Path(sys.argv[3])


def note(*what: Any) -> None:
    with LOCK:
        LOG.append([*what])
        fresh = PATH.with_suffix(".new")
        fresh.write_text(json.dumps(LOG))
        fresh.replace(PATH)


# ---- MQTT: each session loses one connection at a place that its client identifier names


@dataclass
class Session:
    """What the broker keeps of a client."""

    connections: int = 0
    received: set[int] = field(default_factory=set)
    """Identifiers of QoS 2 messages that were not released (5.0 section 4.3.3)."""
    published: int = 0
    owed: list[bytes] = field(default_factory=list)
    """Identifiers whose PUBACK is sent once the client is back, as mochi does."""
    lost: bool = False


SESSIONS: dict[str, Session] = {}


def exactly(sock: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        more = sock.recv(size - len(data))
        if not more:
            raise ConnectionError
        data += more
    return data


def packets(sock: socket.socket) -> Iterator[tuple[int, bytes]]:
    while True:
        first, size, shift = exactly(sock, 1)[0], 0, 0
        while True:
            byte = exactly(sock, 1)[0]
            size, shift = size | (byte & 127) << shift, shift + 7
            if byte < 128:
                break
        yield first, exactly(sock, size)


def broker(sock: socket.socket) -> None:
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    client, one, open_ = "", Session(), set[int]()
    try:
        for first, body in packets(sock):
            kind = first >> 4
            number = int.from_bytes(body[:2]) if body else 0
            if kind == 1:
                at = 11 + body[10]
                client = body[at + 2 : at + 2 + int.from_bytes(body[at : at + 2])].decode()
                one = SESSIONS.setdefault(client, Session())
                one.connections += 1
                said = b"\x21\x00\x02" if client.startswith("few") and one.connections > 1 else b""
                if client.startswith("alive"):
                    said = b"\x13\x00\x01"
                    sock.settimeout(1.5)
                present = int(one.connections > 1 and not body[7] & 2)
                note(client, "CONNECT", present)
                owed = b"".join(b"\x40\x02" + number for number in one.owed)
                one.owed.clear()
                sock.sendall(bytes([0x20, 3 + len(said), present, 0, len(said)]) + said + owed)
            elif kind == 3:
                size, qos = int.from_bytes(body[:2]), first >> 1 & 3
                number = int.from_bytes(body[2 + size : 4 + size])
                one.published += 1
                open_.add(number)
                note(
                    client,
                    "PUBLISH",
                    number,
                    first >> 3 & 1,
                    len(open_),
                    body[5 + size :].decode(),
                )
                if client.startswith("owed") and one.connections == 1:
                    one.owed.append(body[2 + size : 4 + size])
                    if one.published == 4:
                        break
                    continue
                if client.startswith("few"):
                    if one.connections == 1:
                        if one.published == 4:
                            break
                        continue
                    # time for those that must wait to come too early
                    time.sleep(0.05)
                if qos == 2:
                    one.received.add(number)
                    sock.sendall(b"\x50\x02" + body[2 + size : 4 + size])
                elif qos == 1:
                    open_.discard(number)
                    sock.sendall(b"\x40\x02" + body[2 + size : 4 + size])
            elif kind == 6:
                known = number in one.received
                note(client, "PUBREL", number, known)
                one.received.discard(number)
                open_.discard(number)
                if client.startswith("comp") and known and not one.lost:
                    one.lost = True
                    break
                # section 3.7.2.1
                sock.sendall(b"\x70\x02" + body[:2] if known else b"\x70\x03" + body[:2] + b"\x92")
            elif kind == 12:
                note(client, "PINGREQ")
                sock.sendall(b"\xd0\x00")
            elif kind == 14:
                note(client, "DISCONNECT")
                return
    except TimeoutError:
        note(client, "SILENT")
    except OSError:
        pass
    finally:
        sock.close()


# ---- CoAP: each request has to be repeated with the Echo option (RFC 9175 section 2.3)


def options(message: bytes) -> Iterator[tuple[int, bytes]]:
    at, number = 4 + (message[0] & 15), 0
    while at < len(message) and message[at] != 0xFF:
        parts = [message[at] >> 4, message[at] & 15]
        at += 1
        for i in (0, 1):
            if parts[i] == 13:
                parts[i], at = message[at] + 13, at + 1
        number += parts[0]
        yield number, message[at : at + parts[1]]
        at += parts[1]


def fresh(sock: socket.socket) -> None:
    while True:
        message, peer = sock.recvfrom(2048)
        head, token = message[2:4], message[4 : 4 + (message[0] & 15)]
        found = dict(options(message))
        value = struct.pack("!H", peer[1]) + b"\x01\x02\x03"
        known = found.get(252) == value
        note(peer[1], known, found.get(252, b"").hex())
        time.sleep(0.05)
        first = bytes([0x60 | len(token)])
        if known:
            sock.sendto(first + bytes([2 << 5 | 5]) + head + token + b"\xffgood", peer)
        else:
            # option 252 with 5 bytes: a delta of 13 + 239
            sock.sendto(first + bytes([4 << 5 | 1]) + head + token + b"\xd5\xef" + value, peer)


def main() -> None:
    what, port = sys.argv[1], int(sys.argv[2])
    if what == "coap":
        sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        sock.bind(("127.0.0.1", port))
        note("begin")
        return fresh(sock)
    listener = socket.create_server(("127.0.0.1", port), backlog=64)
    note("begin")
    while True:
        threading.Thread(target=broker, args=(listener.accept()[0],), daemon=True).start()


if __name__ == "__main__":
    main()
