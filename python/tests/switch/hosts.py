"""Hosts around a namespace for a switch, and what passes between them."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import time
from collections.abc import Iterator

from netdyno.lab.network import Network
from netdyno.lab.topology import End, Host, Link, Topology
from netdyno.system import namespace

OFF = {"tx": False, "tso": False, "gso": False, "gro": False}


def topology(hosts: int) -> Topology:
    """Hosts `h0`, `h1`, … at 198.18.0.1, … whose links end in ports `p0`, `p1`, … of the host `sw`."""
    return Topology(
        hosts={"sw": Host(), **{f"h{i}": Host() for i in range(hosts)}},
        links=[
            Link(
                a=End(host=f"h{i}", addresses=[f"198.18.0.{i + 1}/24"], offloads=OFF),
                b=End(host="sw", name=f"p{i}", offloads={"tx": False, "gro": False}),
            )
            for i in range(hosts)
        ],
    )


@contextlib.contextmanager
def lab(hosts: int, name: str) -> Iterator[Network]:
    """The hosts, with nothing between the ports yet."""
    with Network(topology(hosts), f"{name}{os.getpid() % 10000}") as made:
        yield made


def passes(net: Network, a: str, b: str, seconds: float = 30.0, count: int = 1) -> bool:
    """Whether datagrams get from a to b: as many as these, with as many tries as time allows."""
    until = time.monotonic() + seconds
    with (
        namespace.inside(net.namespace(b), _receiver) as into,
        namespace.inside(net.namespace(a), _sender) as out,
    ):
        seen = 0
        while seen < count and time.monotonic() < until:
            out.sendto(b"x", (net.address(b), 4000))
            with contextlib.suppress(TimeoutError):
                into.recv(16)
                seen += 1
    return seen >= count


def _receiver() -> socket.socket:
    made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    made.bind(("", 4000))
    made.settimeout(0.3)
    return made


def _sender() -> socket.socket:
    return socket.socket(socket.AF_INET, socket.SOCK_DGRAM)


class Watch:
    """Frames that arrive at a host and hold some bytes, counted until it is closed."""

    def __init__(self, net: Network, host: str, mark: bytes) -> None:
        self.count, self._mark = 0, mark
        self._socket = namespace.inside(net.namespace(host), self._open)
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    @staticmethod
    def _open() -> socket.socket:
        made = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
        made.bind(("eth0", 0))
        made.settimeout(0.1)
        return made

    def _read(self) -> None:
        while True:
            try:
                frame, about = self._socket.recvfrom(2048)
            except TimeoutError:
                continue
            except OSError:
                return
            if about[2] != socket.PACKET_OUTGOING and self._mark in frame:
                self.count += 1

    def close(self) -> None:
        self._socket.close()
        self._thread.join(5.0)
