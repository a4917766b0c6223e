"""Frames of a test's own making on an interface of the kernel, VLAN tags and all."""

from __future__ import annotations

import socket
import struct

ETH_P_ALL = 3
SOL_PACKET, PACKET_AUXDATA = 263, 8
TAGGED, TPID_TOLD = 0x10, 0x40
"""TP_STATUS_VLAN_VALID and TP_STATUS_VLAN_TPID_VALID."""


class RawSocket:
    """A packet socket on an interface of the namespace that it is made in."""

    def __init__(self, interface: str) -> None:
        self._socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL))
        self._socket.bind((interface, ETH_P_ALL))
        self._socket.setsockopt(SOL_PACKET, PACKET_AUXDATA, 1)

    def send(self, frame: bytes) -> None:
        """Send a frame."""
        self._socket.send(frame)

    def receive(self, wait: float) -> bytes | None:
        """The next frame that came in within so many seconds. A tag that the kernel took out is put back."""
        self._socket.settimeout(wait)
        while True:
            try:
                frame, notes, _, address = self._socket.recvmsg(65536, 256)
            except TimeoutError:
                return None
            if address[2] == socket.PACKET_OUTGOING:
                continue
            for level, kind, data in notes:
                if (level, kind) == (SOL_PACKET, PACKET_AUXDATA):
                    status, *_, tci, tpid = struct.unpack("IIIHHHH", data)
                    if status & TAGGED:
                        tpid = tpid if status & TPID_TOLD else 0x8100
                        frame = frame[:12] + struct.pack("!HH", tpid, tci) + frame[12:]
            return frame

    def close(self) -> None:
        """Close it."""
        self._socket.close()


def ipv4(protocol: int, source: str, to: str, rest: bytes) -> bytes:
    """A packet, with the checksum of its header."""
    ends = socket.inet_aton(source) + socket.inet_aton(to)
    head = struct.pack("!BBHHHBBH", 0x45, 0, 20 + len(rest), 0, 0, 64, protocol, 0) + ends
    total = sum(struct.unpack("!10H", head))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return head[:10] + struct.pack("!H", ~total & 0xFFFF) + head[12:] + rest
