"""Sockets whose buffer their own program fixed (SO_RCVBUF, SO_SNDBUF), and that lose or wait for want of it.

Such a buffer stays as it is: neither the defaults nor tcp_rmem and tcp_wmem enlarge it, and rmem_max and
wmem_max only cap what a program asks for.
"""

from __future__ import annotations

import contextlib
import socket
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

from netdyno.tuning.gauges import Ends, Span
from netdyno.tuning.live_sockets import RECEIVING, SENDING, SO_BUF_LOCK, borrowed
from netdyno.tuning.short_queues import EPISODE
from netdyno.tuning.socket_drops import SocketLine
from netdyno.tuning.sufferers import Owner, listeners_of, owner_of

SHARE = 0.2
"""The share of the time with something to send from which on a send buffer is said to hold back."""
LOOKED_AT = 64
"""So many connections are looked at, those first that wait most."""


@dataclass(frozen=True)
class FixedBuffer:
    """A program whose sockets are held back by a buffer that it fixed."""

    process: str
    pid: int
    port: int
    serves: bool
    """Whether the port is its own; else it is connected to it."""
    option: str
    """What it was fixed by."""
    size: int
    """As the kernel counts it: twice what was asked for."""
    why: str


Locks = Callable[[SocketLine], int | None]


def locks(one: SocketLine) -> int | None:
    """Which buffers of a socket the kernel leaves alone, `RECEIVING` and `SENDING`; None where it does not
    say (before Linux 5.14), or the socket is gone."""
    with contextlib.suppress(OSError), borrowed(one.pid, one.fd, one.local) as copy:
        return copy.getsockopt(socket.SOL_SOCKET, SO_BUF_LOCK)
    return None


class FixedBuffers:
    """Those that were told, and when."""

    def __init__(self, locks: Locks = locks) -> None:
        self._locks = locks
        self._told: dict[tuple[int, str], float] = {}

    def datagrams(
        self, now: float, lost: Iterable[tuple[SocketLine, int]], sizes: Collection[int], most: int | None
    ) -> Iterator[FixedBuffer]:
        """Of sockets that dropped datagrams, and how many. `sizes`: those that a parameter gives, or gave;
        `most`: what rmem_max lets a program ask for, if it is known."""
        for one, count in lost:
            if not one.pid or not one.receive_buffer or one.receive_buffer in sizes:
                continue
            if not self._new(now, (one.pid, one.local)):
                continue
            fixed = self._locks(one)
            begin = (
                f"{one}: {count:,} datagrams dropped, its receive buffer holds {one.receive_buffer:,} bytes"
            )
            if fixed is not None and not fixed & RECEIVING:
                why = (
                    f"{begin}, which was the default when the socket was opened. No kernel parameter changes "
                    "it: restart the program"
                )
            else:
                who = "which its program fixed with setsockopt(SO_RCVBUF)"
                if fixed is None:
                    who += ", or which was the default when the socket was opened"
                raised = _raise("SO_RCVBUF", "rmem_max", most)
                why = f"{begin}, {who}. No kernel parameter enlarges it: {raised}"
            yield FixedBuffer(one.process, one.pid, one.port, True, "SO_RCVBUF", one.receive_buffer, why)

    def connections(
        self, now: float, lines: Iterable[SocketLine], spans: Mapping[Ends, Span], most: int | None
    ) -> Iterator[FixedBuffer]:
        """Of connections that their send buffer held back in a window: those of a program that fixed it, told
        once of each program and port. `most`: what wmem_max lets a program ask for."""
        lines = [one for one in lines if one.pid]
        listeners, open_ = listeners_of(lines), {(one.local, one.peer): one for one in lines}
        held = sorted(
            ((span, one) for ends, span in spans.items() if (one := open_.get(ends))),
            key=lambda each: -each[0].moved("sndbuf_limited_ms"),
        )
        of: dict[Owner, list[Span]] = defaultdict(list)
        for span, one in held[:LOOKED_AT]:
            fixed = self._locks(one)
            if fixed is not None and fixed & SENDING:
                of[owner_of(one, listeners)].append(span)
        for owner, found in of.items():
            if not self._new(now, (owner.pid, str(owner.port))):
                continue
            spent = sum(span.moved("sndbuf_limited_ms") for span in found)
            busy = sum(span.moved("busy") for span in found)
            size = min(int(span.after.of("tb")) for span in found)
            several = f"{len(found)} connection{'s' if len(found) > 1 else ''}"
            raised = _raise("SO_SNDBUF", "wmem_max", most)
            why = (
                f"{owner}: {several} held back by the send buffer in {spent / max(busy, 1):.0%} of the "
                f"time, which its program fixed with setsockopt(SO_SNDBUF) at {size:,} bytes. No kernel "
                f"parameter enlarges it, and net.ipv4.tcp_wmem is not raised for it: "
                f"{raised}, or leave the option out, so that the kernel sizes it"
            )
            yield FixedBuffer(owner.process, owner.pid, owner.port, owner.serves, "SO_SNDBUF", size, why)

    def _new(self, now: float, key: tuple[int, str]) -> bool:
        new = now - self._told.get(key, float("-inf")) > EPISODE
        self._told[key] = now
        return new


def held_back(spans: Mapping[Ends, Span], most_sent: float) -> dict[Ends, Span]:
    """Connections below what the kernel allows that their send buffer held back for much of a window."""
    return {
        ends: span
        for ends, span in spans.items()
        if span.after.of("tb") < most_sent
        and span.moved("sndbuf_limited_ms") >= SHARE * max(span.moved("busy"), 1.0)
    }


def _raise(option: str, parameter: str, most: int | None) -> str:
    up_to = "" if most is None else f", which net.core.{parameter} caps at {most:,}"
    return f"raise it in the program ({option}{up_to}; {option}FORCE is not capped)"
