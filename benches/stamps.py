"""When datagrams pass an interface, by the kernel's clock: a witness of delay that no process can mislead.

    stamps.py see INTERFACE PORT     prints a line for each datagram to that port once its standard input ends
    stamps.py send ADDRESS PORT      sends one each millisecond until its standard input ends

Each datagram carries its number. Both ends of a link are on one machine, and so on one clock.
"""

from __future__ import annotations

import ctypes
import select
import socket
import struct
import sys
import time

SO_TIMESTAMPNS, SO_ATTACH_FILTER, ETH_P_ALL = 35, 26, 3
HEADERS = 14 + 20 + 8
"""Bytes before the payload: Ethernet, IPv4 without options, UDP."""


def only(port: int) -> bytes:
    """A classic BPF program: IPv4 and UDP to that port, whole; nothing else."""
    steps = [
        (0x28, 0, 0, 12),  # half word at 12: EtherType
        (0x15, 0, 5, 0x0800),
        (0x30, 0, 0, 23),  # byte at 23: protocol
        (0x15, 0, 3, socket.IPPROTO_UDP),
        (0x28, 0, 0, 36),  # half word at 36: destination port
        (0x15, 0, 1, port),
        (0x06, 0, 0, 0x40000),
        (0x06, 0, 0, 0),
    ]
    return b"".join(struct.pack("=HBBI", *step) for step in steps)


def see(interface: str, port: int) -> None:
    """Note when each passed."""
    tap = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL))
    program = ctypes.create_string_buffer(only(port))
    tap.setsockopt(socket.SOL_SOCKET, SO_ATTACH_FILTER, struct.pack("HP", 8, ctypes.addressof(program)))
    tap.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
    tap.bind((interface, ETH_P_ALL))
    print("ready", flush=True)
    seen = []
    while True:
        ready, _, _ = select.select([tap, sys.stdin], [], [])
        if tap not in ready:
            break
        frame, ancillary, _, _ = tap.recvmsg(64, 64)
        (number,) = struct.unpack_from("!Q", frame, HEADERS)
        seconds, nanoseconds = struct.unpack_from("qq", ancillary[0][2])
        seen.append((number, seconds * 1_000_000_000 + nanoseconds))
    for number, stamp in seen:
        print(number, stamp)


def send(address: str, port: int) -> None:
    """One a millisecond, each at its time as well as can be."""
    out = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    began, number = time.monotonic(), 0
    while not select.select([sys.stdin], [], [], 0)[0]:
        out.sendto(struct.pack("!Q", number), (address, port))
        number += 1
        time.sleep(max(0.0, began + number / 1000 - time.monotonic()))


if __name__ == "__main__":
    {"see": see, "send": send}[sys.argv[1]](sys.argv[2], int(sys.argv[3]))
