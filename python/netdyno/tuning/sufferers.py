"""Which process, and which port of it, meets a limit: what sock_diag tells of each socket, added up.

The kernel's counters say that something was turned away, or that connections are held back; not whose they
are. `ss` (iproute2) asks sock_diag for each socket; its output and the spans of a window go in, the one that
it hits most comes out.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from netdyno.tuning.gauges import Ends, Span
from netdyno.tuning.socket_drops import SocketLine, dropped, parse, port_of

_INTERFACE = re.compile(r"%[^]:]*")
QUEUE, HALF_OPEN, DATAGRAMS = "TcpExtListenOverflows", "listen.refused", "udp.rcvbuf_errors"
SENT_AGAIN = ("tcp.lossy.",)
"""Counters, or how they begin, of which it is the path that loses."""
HELD = ("tcp.", "TcpExtTCPRcvQDrop")
"""Those of connections that are open."""


@dataclass(frozen=True)
class Owner:
    """A process, and the port that it serves, or that it is connected to."""

    process: str
    pid: int
    port: int
    serves: bool = True

    def __str__(self) -> str:
        """In words."""
        to = "port" if self.serves else "connected to port"
        return f"{self.process} (process {self.pid}), {to} {self.port}"


@dataclass(frozen=True)
class Sufferer:
    """Who meets a limit, and what its sockets say."""

    owner: Owner
    what: str
    weight: float
    """Of several the largest is told."""


def listeners_of(lines: Iterable[SocketLine]) -> dict[str, SocketLine]:
    """Those that processes have, by address and port; an interface's name behind a % is left out."""
    return {_INTERFACE.sub("", one.local): one for one in lines if one.state == "LISTEN" and one.pid}


def _listener(listeners: Mapping[str, SocketLine], local: str) -> SocketLine | None:
    """Who listens on this end: on its address, else on all of them."""
    host, _, port = _INTERFACE.sub("", local).rpartition(":")
    every = ("[::]", "*") if host.startswith("[") else ("0.0.0.0", "*")
    return next((listeners[key] for one in (host, *every) if (key := f"{one}:{port}") in listeners), None)


def of_queue(text: str) -> Sufferer | None:
    """The listener whose queue is fullest, of those that are at least half full: `ss -ltnpOH`."""
    found = []
    for one in parse(text):
        if one.pid and one.longest and 2 * one.waiting >= one.longest:
            words = f"{one.waiting:,} of {one.longest:,} connections wait to be accepted"
            found.append(Sufferer(owner_of(one), words, one.waiting / one.longest))
    return most(found)


def of_overflow(one: SocketLine, dropped: int) -> Sufferer:
    """A listener whose queue was full for moments, between looks: the kernel counts what it drops."""
    words = f"its queue of {one.longest:,} was full for moments, and {dropped:,} connections were turned away"
    return Sufferer(owner_of(one), words, 0.5)


def of_half_open(text: str) -> Sufferer | None:
    """The listener with most connections that are half open: `ss -tanpOH`."""
    lines = parse(text)
    listeners = listeners_of(lines)
    of: dict[Owner, int] = defaultdict(int)
    for line in lines:
        if line.state == "SYN-RECV" and (one := _listener(listeners, line.local)):
            of[owner_of(one)] += 1
    return most(Sufferer(owner, f"{count:,} connections are half open", count) for owner, count in of.items())


@dataclass(frozen=True)
class Listener:
    """A listening socket, by process and descriptor."""

    process: str
    pid: int
    fd: int
    port: int


def unaccepted(text: str) -> dict[Listener, set[str]]:
    """Peers of the connections that wait to be accepted, by listener: `ss -tanpOH`."""
    lines = parse(text)
    listeners = listeners_of(lines)
    found: dict[Listener, set[str]] = defaultdict(set)
    for line in lines:
        if (
            line.state in ("ESTAB", "CLOSE-WAIT")
            and not line.pid
            and (one := _listener(listeners, line.local))
        ):
            found[Listener(one.process, one.pid, one.fd, one.port)].add(line.peer)
    return found


def of_datagrams(looks: tuple[str, str]) -> Sufferer | None:
    """The socket that dropped most from one look to the next: `ss -uanpmOH`, twice."""
    return most(
        Sufferer(owner_of(one), f"{lost:,} more datagrams dropped", lost)
        for one, lost in dropped(*looks)
        if one.pid
    )


def of_connections(text: str, spans: Mapping[Ends, Span], counter: str) -> Sufferer | None:
    """The owner whose connections were held back most in a window: `ss -tanpOH`, and that window."""
    lines = [one for one in parse(text) if one.pid]
    listeners = listeners_of(lines)
    open_ = {(one.local, one.peer): one for one in lines}
    of: dict[Owner, list[Span]] = defaultdict(list)
    for (local, peer), span in spans.items():
        # one that has ended since was of who listens on its port
        if one := open_.get((local, peer)) or _listener(listeners, local):
            of[owner_of(one, listeners)].append(span)
    return most(Sufferer(owner, _words(mine), _weight(mine, counter)) for owner, mine in of.items())


def owner_of(one: SocketLine, listeners: Mapping[str, SocketLine] | None = None) -> Owner:
    """Whose a socket is, and the port that it serves; with the listeners of the namespace also that of the
    peer, where it is connected and does not serve."""
    serves = listeners is None or _listener(listeners, one.local) is not None
    return Owner(one.process, one.pid, one.port if serves else port_of(one.peer), serves)


def _sum(spans: Iterable[Span], name: str) -> float:
    return sum(max(0.0, span.moved(name)) for span in spans)


def _weight(spans: list[Span], counter: str) -> float:
    if counter.startswith(SENT_AGAIN):
        return _sum(spans, "bytes_retrans")
    if counter == "tcp.sndbuf_limited":
        return _sum(spans, "sndbuf_limited_ms")
    return sum(max(span.received, span.sent) for span in spans)


def _words(spans: list[Span]) -> str:
    """What holds its connections back, as TCP has counted the time in which there was something to send."""
    busy = _sum(spans, "busy")
    several = f"{len(spans)} connection{'s' if len(spans) > 1 else ''}"
    waits = [span.after.of("recv_q") for span in spans]
    unread = f"{sum(waits):,.0f} bytes not read yet"
    if busy <= 0:
        return f"{several}, {unread}"
    buffer, window = _sum(spans, "sndbuf_limited_ms"), _sum(spans, "rwnd_limited_ms")
    path = max(0.0, busy - buffer - window)
    shares = (
        f"held back by the send buffer in {buffer / busy:.0%}, by the receiver's window in "
        f"{window / busy:.0%} and by the path in {path / busy:.0%} of the time"
    )
    return f"{several}, {shares}; {_sum(spans, 'bytes_retrans'):,.0f} bytes sent again; {unread}"


def most(found: Iterable[Sufferer | None]) -> Sufferer | None:
    """The one that is hit most, of those that are."""
    return max((one for one in found if one and one.weight > 0), key=lambda one: one.weight, default=None)


def find(
    counter: str, ss: Callable[[str], str], spans: Mapping[Ends, Span], datagrams: tuple[str, str]
) -> Sufferer | None:
    """Who meets the limit that a counter tells of. `ss` runs it in the namespace, with these options;
    `datagrams` are the last two looks at their sockets."""
    if counter == QUEUE:
        return of_queue(ss("-ltnpOH"))
    if counter == HALF_OPEN:
        return of_half_open(ss("-tanpOH"))
    if counter == DATAGRAMS:
        return of_datagrams(datagrams)
    return of_connections(ss("-tanpOH"), spans, counter) if counter.startswith(HELD) else None
