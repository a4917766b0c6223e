"""A function of a chain that forwards frames between `in` and `out`, with one fault: `faulty.py FAULT`."""

from __future__ import annotations

import heapq
import itertools
import re
import select
import signal
import socket
import struct
import sys
import time
from collections.abc import Callable

ALL = socket.htons(3)
TCP, UDP = 6, 17
IP, L4 = 14, 34
CHECKSUM = {TCP: L4 + 16, UDP: L4 + 6}
Send = Callable[[bytes], None]
held: dict[bool, list[bytes]] = {True: [], False: []}
"""By direction, a frame that `swap` keeps until the next has passed."""
LATE = 0.7
"""Seconds after which `late` sends a frame again."""
LARGE = 1000
"""Bytes of the largest frame that `large` passes."""
SLOW = 0.45
"""Seconds that `slow` keeps each frame."""
waiting: list[tuple[float, int, bytes, socket.socket]] = []
count = itertools.count()


def total(data: bytes) -> int:
    """The checksum of the Internet."""
    data += b"\0" * (len(data) % 2)
    found = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while found > 0xFFFF:
        found = (found & 0xFFFF) + (found >> 16)
    return ~found & 0xFFFF


def whole(changed: bytes) -> bytes:
    """A frame with right checksums."""
    frame = bytearray(changed)
    protocol, end = frame[23], IP + struct.unpack_from("!H", frame, 16)[0]
    frame[24:26] = b"\0\0"
    frame[24:26] = struct.pack("!H", total(bytes(frame[IP:L4])))
    at = CHECKSUM[protocol]
    frame[at : at + 2] = b"\0\0"
    pseudo = bytes(frame[26:34]) + struct.pack("!BBH", 0, protocol, end - L4)
    frame[at : at + 2] = struct.pack("!H", total(pseudo + bytes(frame[L4:end])))
    return bytes(frame)


def turned(frame: bytes, at: int, bits: int) -> bytes:
    """A frame with some bits of a byte turned."""
    return frame[:at] + bytes([frame[at] ^ bits]) + frame[at + 1 :]


def flipped(frame: bytes) -> bytes:
    """A frame whose last byte of payload is another, if it has any."""
    end = IP + struct.unpack_from("!H", frame, 16)[0]
    begins = L4 + 8 if frame[23] == UDP else L4 + (frame[L4 + 12] >> 4) * 4
    return whole(turned(frame, end - 1, 1)) if end > begins else frame


def reset(frame: bytes) -> bytes:
    """A reset in the name of who sent a segment."""
    head = frame[:16] + struct.pack("!H", 40) + frame[18 : L4 + 12] + b"\x50\x14" + frame[L4 + 14 : 54]
    return whole(head)


def answer(frame: bytes) -> bytes:
    """A forged answer in the name of who a datagram is for."""
    ends = frame[6:12] + frame[:6], frame[30:34] + frame[26:30], frame[36:38] + frame[34:36]
    return whole(flipped(ends[0] + frame[12:26] + ends[1] + ends[2] + frame[38:]))


def faulty(fault: str, frame: bytes, forward: bool, one: socket.socket, other: socket.socket) -> list[bytes]:
    """What becomes of a datagram or segment of IPv4, or by `slow` of any frame."""
    if fault == "slow":
        heapq.heappush(waiting, (time.monotonic() + SLOW, next(count), frame, other))
        return []
    protocol, of = frame[23], fault.partition("-")[0]
    if fault == "swap" and protocol == UDP and b" number " in frame:
        held[forward].append(frame)
        return [held[forward].pop(), held[forward].pop()] if len(held[forward]) == 2 else []
    if fault == "some" and protocol == UDP and re.search(rb" number [25]$", frame):
        return []
    if of == "size":
        _, only, most = fault.split("-")
        drops = len(frame) > IP + int(most) and protocol == {"tcp": TCP, "udp": UDP}[only]
        return [frame] * (not drops or forward is (only == "tcp"))
    first = protocol == TCP and frame[L4 + 13] & 0x12 == 0x12
    dns = forward and frame[36:38] == b"\0\x35"
    if fault == "reset" and not forward and first:
        return [reset(frame), frame]
    if fault == "checksum" and not forward:
        return [turned(frame, CHECKSUM[protocol], 0x55)]
    if fault == "mac" and not forward:
        return [b"\x02\xde\xad\xbe\xef\x01" + frame[6:]]
    if fault == "port" and protocol == UDP and not forward:
        return [whole(frame[:34] + b"\x27\x0f" + frame[36:])]
    if fault == "payload" and protocol == TCP:
        return [flipped(frame)]
    if fault == "dscp":
        return [whole(turned(frame, 15, 0xB8))]
    if fault in HEADER:
        return [headed(fault, frame)]
    if fault == "leak-udp" and protocol == UDP and dns:
        return [flipped(frame)]
    if fault == "leak-tcp" and protocol == TCP and dns:
        return [whole(turned(frame, L4 + 7, 1))]
    if of == "leak" and dns:
        return []
    if fault == "copy" and protocol == UDP:
        return [flipped(frame), frame]
    if fault == "elsewhere" and protocol == UDP and forward:
        copy = flipped(frame)
        return [whole(copy[:36] + b"\x27\x0f" + copy[38:]), frame]
    if fault == "answer" and protocol == UDP and forward:
        one.send(answer(frame))
    if fault == "large" and len(frame) > LARGE:
        return []
    if fault == "late":
        heapq.heappush(waiting, (time.monotonic() + LATE, next(count), frame, other))
    if fault == "often" and protocol == UDP and forward and next(count) % 3 == 0:
        return [frame, frame]
    return [frame]


HEADER = ("ttl", "ecn", "identity", "options", "window", "unchecked")
"""Faults that change a header, and nothing that an end of a conversation sees."""


def headed(fault: str, frame: bytes) -> bytes:
    """A frame with another header."""
    protocol, first = frame[23], frame[L4 + 12] >> 4
    if fault == "ttl":
        return whole(frame[:22] + bytes([frame[22] - 1]) + frame[23:])
    if fault == "ecn":
        return whole(turned(frame, 15, 3))
    if fault == "identity":
        return whole(frame[:18] + b"\x12\x34\0" + frame[21:])
    if fault == "options" and protocol == TCP:
        return whole(frame[: L4 + 20] + b"\1" * (first * 4 - 20) + frame[L4 + first * 4 :])
    if fault == "window" and protocol == TCP:
        return whole(turned(frame, L4 + 15, 1))
    if fault == "unchecked" and protocol == UDP:
        return frame[: CHECKSUM[UDP]] + b"\0\0" + frame[CHECKSUM[UDP] + 2 :]
    return frame


def opened(interface: str) -> socket.socket:
    """A socket for all of its frames."""
    made = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, ALL)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 22)
    made.bind((interface, 0))
    return made


def run(fault: str) -> None:
    """Forward until SIGTERM."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    inside, outside = opened("in"), opened("out")
    others = {inside: outside, outside: inside}
    while True:
        left = max(0.0, waiting[0][0] - time.monotonic()) if waiting else None
        for one in select.select(list(others), [], [], left)[0]:
            frame, about = one.recvfrom(65_536)
            if about[2] == socket.PACKET_OUTGOING:
                continue
            other = others[one]
            known = fault == "slow" or (frame[12:14] == b"\x08\x00" and frame[23] in CHECKSUM)
            for made in faulty(fault, frame, one is inside, one, other) if known else [frame]:
                other.send(made)
        while waiting and waiting[0][0] <= time.monotonic():
            _, _, frame, other = heapq.heappop(waiting)
            other.send(frame)


if __name__ == "__main__":
    run(sys.argv[1])
