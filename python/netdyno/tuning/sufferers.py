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

_USER = re.compile(r'users:\(\("([^"]*)",pid=(\d+)')
_DROPS = re.compile(r"skmem:\(.*?,d(\d+)\)")
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


@dataclass(frozen=True)
class _Line:
    state: str
    waiting: int
    longest: int
    local: str
    peer: str
    process: str
    pid: int
    drops: int

    @property
    def port(self) -> int:
        return _port(self.local)


def _port(address: str) -> int:
    text = address.rpartition(":")[2]
    return int(text) if text.isascii() and text.isdigit() else 0


def _lines(text: str) -> list[_Line]:
    """Lines of `ss -O` with a state, whoever has the socket; those of nobody have process 0."""
    found = []
    for line in text.splitlines():
        cells = line.split()
        if len(cells) < 5 or not (cells[1].isdigit() and cells[2].isdigit()):
            continue
        user, drops = _USER.search(line), _DROPS.search(line)
        process, pid = (user[1], int(user[2])) if user else ("", 0)
        lost = int(drops[1]) if drops else 0
        found.append(_Line(cells[0], int(cells[1]), int(cells[2]), cells[3], cells[4], process, pid, lost))
    return found


def of_queue(text: str) -> Sufferer | None:
    """The listener whose queue is fullest: `ss -ltnpOH`."""
    found = []
    for one in _lines(text):
        if one.pid and one.longest:
            words = f"{one.waiting:,} of {one.longest:,} connections wait to be accepted"
            found.append(Sufferer(_owner(one), words, one.waiting / one.longest))
    return most(found)


def of_half_open(text: str) -> Sufferer | None:
    """The listener with most connections that are half open: `ss -tanpOH`."""
    lines = _lines(text)
    listeners = {one.port: one for one in lines if one.state == "LISTEN" and one.pid}
    counts: dict[int, int] = defaultdict(int)
    for one in lines:
        counts[one.port] += one.state == "SYN-RECV"
    return most(
        Sufferer(_owner(one), f"{counts[port]:,} connections are half open", counts[port])
        for port, one in listeners.items()
    )


def of_datagrams(text: str) -> Sufferer | None:
    """The socket that dropped most: `ss -uanpmOH`."""
    return most(
        Sufferer(_owner(one), f"{one.drops:,} datagrams dropped since it was opened", one.drops)
        for one in _lines(text) if one.pid
    )  # fmt: skip


def of_connections(text: str, spans: Mapping[Ends, Span], counter: str) -> Sufferer | None:
    """The owner whose connections were held back most in a window: `ss -tanpOH`, and that window."""
    lines = [one for one in _lines(text) if one.pid]
    listeners = {one.port: one for one in lines if one.state == "LISTEN"}
    open_ = {(one.local, one.peer): one for one in lines}
    of: dict[Owner, list[Span]] = defaultdict(list)
    for (local, peer), span in spans.items():
        # one that has ended since was of who listens on its port
        if one := open_.get((local, peer)) or listeners.get(_port(local)):
            of[_owner(one, listeners)].append(span)
    return most(Sufferer(owner, _words(mine), _weight(mine, counter)) for owner, mine in of.items())


def _owner(one: _Line, served: Iterable[int] | None = None) -> Owner:
    serves = served is None or one.port in served
    return Owner(one.process, one.pid, one.port if serves else _port(one.peer), serves)


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


def find(counter: str, ss: Callable[[str], str], spans: Mapping[Ends, Span]) -> Sufferer | None:
    """Who meets the limit that a counter tells of. `ss` runs it in the namespace, with these options."""
    if counter == QUEUE:
        return of_queue(ss("-ltnpOH"))
    if counter == HALF_OPEN:
        return of_half_open(ss("-tanpOH"))
    if counter == DATAGRAMS:
        return of_datagrams(ss("-uanpmOH"))
    return of_connections(ss("-tanpOH"), spans, counter) if counter.startswith(HELD) else None
