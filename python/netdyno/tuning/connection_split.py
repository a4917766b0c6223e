"""Connections of one load, alternately with one setting and the other: A and B in the same seconds.

Connections of the tuned host are taken in the order in which they are seen, two by two, and of each two it is
drawn which has A. What is set is an option of the socket itself, on a copy of the program's descriptor; it
goes with the connection. What counts of a connection is from then on.
"""

from __future__ import annotations

import random
import socket
import statistics
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from netdyno.errors import Error
from netdyno.lab.sockets import Connection
from netdyno.stats.discards import LEVEL, fisher
from netdyno.stats.observation import Metric, Setting, Value
from netdyno.tuning import live_sockets
from netdyno.tuning.live_sockets import OwnedConnection

Arm = Literal["a", "b"]
EVERY = 0.05
"""Seconds between two looks, at least."""
REST = 3
"""A look is followed by a rest of so many times what it took."""
BEGUN = 16 * 1024
"""Bytes, either way, after which a connection is set: one of control carries less. That is before it has an
arm, and so favours none."""
LIVED = 0.5
"""Seconds that a connection must be seen for, from when it was set, to count."""
METRICS = {
    "throughput": Metric("throughput", "bit/s", "higher"),
    "rtt": Metric("rtt", "ms", "lower"),
    "retransmitted": Metric("retransmitted", "ratio", "lower", zero_is_best=True),
}
"""Means over the connections of an arm; of `rtt` the median over the looks at a connection."""


def _congestion(copy: socket.socket, value: Value) -> None:
    copy.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, str(value).encode())


def _unsent(copy: socket.socket, value: Value) -> None:
    copy.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, min(int(value), 2**31 - 1))


def _send_buffer(copy: socket.socket, value: Value) -> None:
    copy.setsockopt(socket.SOL_SOCKET, live_sockets.SO_SNDBUFFORCE, int(value) // 2)


def _receive_buffer(copy: socket.socket, value: Value) -> None:
    copy.setsockopt(socket.SOL_SOCKET, live_sockets.SO_RCVBUFFORCE, int(value) // 2)
    copy.setsockopt(socket.IPPROTO_TCP, socket.TCP_WINDOW_CLAMP, int(value))


OPTIONS: Mapping[str, Callable[[socket.socket, Value], None]] = {
    "net.ipv4.tcp_congestion_control": _congestion,
    "net.ipv4.tcp_notsent_lowat": _unsent,
    "net.ipv4.tcp_wmem.max": _send_buffer,
    "net.ipv4.tcp_rmem.max": _receive_buffer,
}
"""What a single connection can have of its own, by the parameter that stands for it. A buffer is of that size
then, where the parameter lets it grow so far."""


def check(setting: Setting, at: str) -> None:
    """Refuse what no single connection has."""
    for name in setting:
        if name not in OPTIONS:
            fix = f"Those of one connection: {', '.join(OPTIONS)}. Leave out --per-connection for others"
            raise Error("ND-104-43", f"{name} is not of a single connection", at=at, fix=fix)


@dataclass
class _ArmConnection:
    """A connection with its arm, from when it was set."""

    arm: Arm
    since: float
    first: Connection
    last: Connection
    seen: float
    trips: list[float] = field(default_factory=list)

    def moved(self, name: str) -> float:
        """By how much a sum grew."""
        return self.last.values.get(name, 0.0) - self.first.values.get(name, 0.0)

    @property
    def lived(self) -> float:
        """Seconds that were looked at."""
        return self.seen - self.since

    def metrics(self) -> dict[str, float]:
        """What it got."""
        octets = max(self.moved("bytes_acked"), self.moved("bytes_received"))
        sent = self.moved("bytes_sent")
        return {
            "throughput": 8 * octets / self.lived,
            "rtt": statistics.median(self.trips),
            "retransmitted": self.moved("bytes_retrans") / sent if sent > 0 else 0.0,
        }


class ConnectionSplit:
    """Looks at the connections of a namespace while a block lasts, and sets each when it is first seen."""

    def __init__(
        self, arms: Mapping[Arm, Setting], seed: int, give: Callable[[OwnedConnection, Setting], None]
    ):
        """`give` sets the socket of a connection."""
        self._arms, self._give = arms, give
        self._draw = random.Random(seed)
        self._next: list[Arm] = []
        self._followed: dict[tuple[str, str], _ArmConnection] = {}
        self._over: list[_ArmConnection] = []
        self.lost = 0
        """Connections that were gone before they were set."""

    def observe(self, now: float, seen: Iterable[OwnedConnection]) -> None:
        """One look."""
        for one in seen:
            key = one.seen.local, one.seen.peer
            known = self._followed.get(key)
            if known and _carried(one.seen) < _carried(known.last):
                # the same ends, another connection
                self._over.append(self._followed.pop(key))
                known = None
            if known is None:
                if _carried(one.seen) >= BEGUN:
                    self._begin(now, key, one)
                continue
            known.last, known.seen = one.seen, now
            if trip := one.seen.values.get("rtt"):
                known.trips.append(trip)

    def _begin(self, now: float, key: tuple[str, str], one: OwnedConnection) -> None:
        if not self._next:
            self._next = ["a", "b"]
            self._draw.shuffle(self._next)
        try:
            self._give(one, self._arms[self._next[0]])
        except ProcessLookupError:
            self.lost += 1
            return
        self._followed[key] = _ArmConnection(self._next.pop(0), now, one.seen, one.seen, now)

    def result(self) -> tuple[dict[str, float], str]:
        """`a.throughput`, … and how many connections each was given and has; why it does not count, if it
        does not."""
        found: dict[str, float] = {}
        every = [*self._over, *self._followed.values()]
        for arm in self._arms:
            mine = [one for one in every if one.arm == arm]
            told = [one.metrics() for one in mine if one.lived >= LIVED and one.trips]
            found[f"{arm}.given"] = float(len(mine))
            found[f"{arm}.connections"] = float(len(told))
            if told:
                found |= {f"{arm}.{name}": statistics.fmean(one[name] for one in told) for name in METRICS}
        few = min(found[f"{arm}.connections"] for arm in self._arms) < 1
        gone = f", {self.lost} were over before they were set" if self.lost else ""
        return found, f"A and B have no connection each that lived for {LIVED:g} s{gone}" if few else ""


def _carried(one: Connection) -> float:
    return max(one.values.get("bytes_acked", 0.0), one.values.get("bytes_received", 0.0))


def _widest(seen: Connection) -> int:
    """The largest window that a connection can offer, by the scale that it has said (RFC 7323)."""
    return 65535 << int(seen.values.get("rcv_wscale", 0))


def give(one: OwnedConnection, setting: Setting) -> None:
    """Set the socket of a connection; ProcessLookupError where it is gone, also with nothing to set: else
    those without a setting would count as there, and the others not."""
    if int(setting.get("net.ipv4.tcp_rmem.max", 0)) > (most := _widest(one.seen)):
        what = f"its windows are of {most:,} bytes at most, as agreed when it began"
        fix = f"Give net.ipv4.tcp_rmem.max up to {most}, or compare without --per-connection"
        raise Error("ND-92-33", f"a connection cannot have a larger one: {what}", at=one.seen.local, fix=fix)
    try:
        with live_sockets.borrowed(one.pid, one.fd, one.seen.local, one.seen.peer) as copy:
            for name, value in setting.items():
                OPTIONS[name](copy, value)
    except OSError as e:
        if isinstance(e, ProcessLookupError) or e.errno in live_sockets.GONE:
            raise ProcessLookupError(str(e)) from e
        words = ", ".join(f"{name} = {value}" for name, value in setting.items())
        what = f"a connection cannot be given {words}: {e.strerror}"
        fix = "`netdyno tune params` says what there is; it needs root, and Linux 5.6 or newer"
        raise Error("ND-92-33", what, at=one.seen.local, fix=fix) from e


class Splitter:
    """A `ConnectionSplit` over a namespace, in a thread."""

    def __init__(self, where: str | None, split: ConnectionSplit) -> None:
        self._where, self._split = where, split
        self._end = threading.Event()
        self._failed: Exception | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        rest = EVERY
        while not self._end.wait(rest):
            began = time.monotonic()
            try:
                self._split.observe(began, live_sockets.owned_connections(self._where))
            except (OSError, Error) as e:
                self._failed = e
                return
            rest = max(EVERY, REST * (time.monotonic() - began))

    def __enter__(self) -> Splitter:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join(10.0)

    def check(self) -> None:
        """Raise what kept it from looking."""
        if self._failed:
            raise self._failed


@dataclass
class Survival:
    """Connections of A and of B over all blocks, also those that do not count as a whole."""

    given: dict[Arm, int] = field(default_factory=lambda: {"a": 0, "b": 0})
    counted: dict[Arm, int] = field(default_factory=lambda: {"a": 0, "b": 0})

    def add(self, seen: Mapping[str, float]) -> None:
        """Those of a block."""
        for arm in self.given:
            self.given[arm] += int(seen.get(f"{arm}.given", 0))
            self.counted[arm] += int(seen.get(f"{arm}.connections", 0)) if f"{arm}.given" in seen else 0

    @property
    def unequal(self) -> str:
        """That unequal shares of them lived long enough to count, in a sentence: Fisher's exact test, as of
        trials; empty where it does not say so."""
        p = fisher(self.counted["a"], self.given["a"], self.counted["b"], self.given["b"])
        if p > LEVEL:
            return ""
        b, a = (f"{self.counted[arm]:,} of {self.given[arm]:,}" for arm in ("b", "a"))
        return f"unequal shares of connections lived for {LIVED:g} s: {b} with B, {a} with A (p = {p:.2g})"

    def document(self) -> dict[str, dict[Arm, int]]:
        """For a result."""
        return {"given": dict(self.given), "counted": dict(self.counted)}


def separate(seen: Mapping[str, float], arm: Arm) -> dict[str, float]:
    """The metrics of an arm."""
    return {name: seen[f"{arm}.{name}"] for name in METRICS if f"{arm}.{name}" in seen}
