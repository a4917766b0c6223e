"""A burst of datagrams at a reader that sleeps, over a way that may be slow."""

from __future__ import annotations

import contextlib
import os
import secrets
import socket

from pydantic import Field

from netdyno.errors import Error
from netdyno.lab.dut.base import Settings
from netdyno.lab.workload.base import Site, Workload, WorkloadResult, metric_table
from netdyno.stats.observation import Metric
from netdyno.system import namespace

PORT = 8082
UDP_SEGMENT = 103
"""linux/udp.h: one send of many datagrams."""
SO_RCVBUFFORCE = 33
ETH_P_ALL = 3
SEGMENTS = 64
"""Datagrams of one send at most, in every kernel that can do it."""


class Options(Settings):
    """Settings of the burst."""

    datagrams: int = Field(default=16384, ge=1, le=10_000_000)
    """How many."""
    size: int = Field(default=64, ge=1, le=1472)
    """Bytes of each."""
    together: int = Field(default=1, ge=1, le=SEGMENTS)
    """Datagrams handed to the kernel at once (UDP GSO)."""
    buffer: int = Field(default=0, ge=0, le=1 << 30)
    """Bytes that the reader's buffer has whatever the kernel's parameters say; 0: as they say."""
    taps: int = Field(default=0, ge=0, le=1000)
    """Packet sockets on the server that see every packet, which makes its receive path slow."""
    sender_core: int | None = Field(default=None, ge=0)
    """Core that sends."""


class UdpBurst(Workload):
    """Send, wait, and read what is there."""

    name = "udp-burst"
    about = "a burst of datagrams at a reader that sleeps meanwhile"
    needs_ports = (("udp", PORT),)
    Options = Options
    metrics = metric_table(Metric("loss", "ratio", "lower", zero_is_best=True))

    def open(self, site: Site, stack: contextlib.ExitStack) -> None:
        """Bind the reader."""
        o = self.options

        def make() -> socket.socket:
            made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            if o.buffer:
                made.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, o.buffer)
            made.bind((site.address, PORT))
            return made

        def tap() -> socket.socket:
            made = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL))
            # it need only look at packets, not keep them
            made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)
            return made

        self.reader = stack.enter_context(namespace.inside(site.server, make))
        for _ in range(o.taps):
            stack.enter_context(namespace.inside(site.server, tap))

    def run(self, site: Site, seed: int) -> WorkloadResult:
        """Send, then read."""
        o = self.options
        with namespace.inside(site.client, lambda: self._sender(site)) as sender:
            namespace.inside(site.client, lambda: self._send(sender))
            got = received(self.reader, o.datagrams, sender)
        return WorkloadResult({"loss": 1 - got / o.datagrams})

    def _sender(self, site: Site) -> socket.socket:
        made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 22)
        made.connect((site.address, PORT))
        return made

    def _send(self, sender: socket.socket) -> None:
        o = self.options
        if o.sender_core is not None:
            # of this thread, which ends with the burst
            try:
                os.sched_setaffinity(0, {o.sender_core})
            except OSError as e:
                raise Error("ND-92-06", f"core {o.sender_core}: {e.strerror}", at=self.name) from e
        if o.together > 1:
            sender.setsockopt(socket.IPPROTO_UDP, UDP_SEGMENT, o.size)
        left = o.datagrams
        while left:
            now = min(left, o.together)
            with contextlib.suppress(ConnectionRefusedError):
                sender.send(b"x" * (o.size * now))
            left -= now
        if o.together > 1:
            sender.setsockopt(socket.IPPROTO_UDP, UDP_SEGMENT, 0)


END = b"end "
"""Begins a datagram that is not of the burst."""
SILENCE = 0.3
"""After so many seconds without a datagram an end is sent: when it comes, what was before has come or never
will, however long a busy machine takes to deliver."""
ENDS = 10
"""So many in a row that do not come: nothing gets through."""


def received(reader: socket.socket, most: int, sender: socket.socket) -> int:
    """Datagrams of a burst that are there, or still come."""
    end = END + secrets.token_bytes(8)
    reader.settimeout(SILENCE)
    got, silent = 0, 0
    while got < most and silent <= ENDS:
        try:
            datagram = reader.recv(65535)
        except TimeoutError:
            silent += 1
            with contextlib.suppress(ConnectionRefusedError):
                sender.send(end)
            continue
        silent = 0
        if datagram == end:
            break
        # an end of a burst before may have come twice
        got += not datagram.startswith(END)
    return got
