"""What holds connections back, as gauges: readings of `ss` in, one number for each kind of limit out.

A reading tells sums since a connection began; what counts is by how much they moved within a window.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from netdyno.lab.sockets import Connection

Ends = tuple[str, str]
"""Addresses of a connection, ours first."""
FAR = 5.0
"""Milliseconds of round trip from which on a path is long."""
BURST = 20
"""Segments that are more than a first window may hold (ten, RFC 6928)."""
LOST = 0.003
"""The share of what was sent that is sent again, from which on losses hold a loss-based control down."""
STANDING = 1.5
"""Times the least round trip that a round trip takes when a queue stands on the way."""
BULK = 10 * 1460
"""Bytes in a round trip, a first window, from which on a connection is said to carry much."""
FULL = 0.5
"""The share of the window that comes in each round trip when it is the window that limits."""


@dataclass(frozen=True)
class Reading:
    """A connection at a time."""

    time: float
    seen: Connection

    def of(self, name: str) -> float:
        """A value; what is zero is not told."""
        return self.seen.values.get(name, 0.0)


@dataclass(frozen=True)
class Span:
    """A connection from one reading to another; from its beginning where there is none before."""

    before: Reading | None
    after: Reading
    seconds: float

    def moved(self, name: str) -> float:
        """By how much a sum grew."""
        return self.after.of(name) - (self.before.of(name) if self.before else 0.0)

    @property
    def received(self) -> float:
        """Bytes a second."""
        return self.moved("bytes_received") / self.seconds

    @property
    def sent(self) -> float:
        """Bytes a second that were acknowledged."""
        return self.moved("bytes_acked") / self.seconds

    @property
    def pace(self) -> float:
        """Bytes a second while there was something to send."""
        return 1e3 * self.moved("bytes_acked") / max(self.moved("busy"), 1.0)

    @property
    def far(self) -> bool:
        """Whether its path is long."""
        return (self.after.of("minrtt") or self.after.of("rtt")) >= FAR

    @property
    def burst(self) -> bool:
        """Whether it sent more than a first window."""
        return self.moved("bytes_sent") >= BURST * (self.after.of("mss") or 1448.0)

    @property
    def lossy(self) -> bool:
        """Whether it loses what no queue of its own making can explain, and would send more."""
        lost = self.moved("bytes_retrans") >= LOST * self.moved("bytes_sent")
        queue = self.after.of("rtt") > STANDING * self.after.of("minrtt")
        return self.burst and self.far and lost and not queue and not self.after.of("app_limited")

    def bulk(self, rate: float) -> float:
        """A rate, if it is one of much."""
        return rate if rate * self.after.of("minrtt") / 1e3 >= BULK else 0.0

    @property
    def full(self) -> bool:
        """Whether all that the window holds comes, in each round trip."""
        trip = (self.after.of("minrtt") or self.after.of("rcv_rtt")) / 1e3
        window = self.after.of("rcv_ssthresh") or self.after.of("rb") / 2
        return self.received * trip >= FULL * window > 0

    def window_full(self, most: float) -> bool:
        """Whether its receive buffer has grown to all that it may be, and it is full."""
        return self.after.of("rb") >= most > 0 and self.full

    def stuck(self, most: float) -> bool:
        """Whether the kernel might let its buffer grow, and does not although it is full."""
        before = self.before.of("rb") if self.before else 0.0
        return before == self.after.of("rb") < most and self.full


class Connections:
    """The connections of a namespace, window by window."""

    def __init__(self) -> None:
        self._before: dict[Ends, Reading] = {}
        self._latest: dict[Ends, Reading] = {}
        self._begun: float | None = None
        self._last: float | None = None
        self._rested: set[Ends] = set()
        self.spans: Mapping[Ends, Span] = {}
        """Those of the last window."""

    def glance(self, time: float, seen: Iterable[Connection]) -> None:
        """A reading. Several in a window see also those that live for less, and rest for less."""
        self._last = time
        for one in seen:
            key, now = (one.local, one.peer), Reading(time, one)
            if self._begun is None:
                # the first window: what was before we looked is not known
                self._before.setdefault(key, now)
            known = self._latest.get(key)
            if known and now.of("bytes_received") + now.of("bytes_sent") < (
                known.of("bytes_received") + known.of("bytes_sent")
            ):
                # the same ends, another connection
                self._before.pop(key, None)
            self._latest[key] = now
            if now.of("lastsnd") > now.of("rto") > 0 and now.of("cwnd") >= BURST:
                self._rested.add(key)

    def window(self, most: float, most_sent: float = 0.0) -> dict[str, float]:
        """The gauges of the time since the last window, where a receive buffer may have `most` bytes, and the
        kernel lets a send buffer grow to `most_sent`."""
        spans = {
            key: Span(self._before.get(key), now, now.time - since)
            for key, now in self._latest.items()
            if (since := self._since(key)) is not None and now.time > since
        }
        rested, self.spans = self._rested, spans
        self._before = {key: one for key, one in self._latest.items() if one.time == self._last}
        self._latest, self._rested = dict(self._before), set()
        self._begun = self._last
        return gauges(spans.values(), [span for key, span in spans.items() if key in rested], most, most_sent)

    def _since(self, key: Ends) -> float | None:
        before = self._before.get(key)
        return before.time if before else self._begun


def gauges(
    spans: Iterable[Span], rested: Sequence[Span], most: float, most_sent: float = 0.0
) -> dict[str, float]:
    """What connections, and those of them that rested for longer than their RTO, say together."""
    spans = list(spans)
    busy = sum(span.moved("busy") for span in spans)
    # one below what the kernel allows was fixed by its program (SO_SNDBUF), or has not had to grow
    held = sum(s.moved("sndbuf_limited_ms") for s in spans if s.after.of("tb") >= most_sent)
    bursts = [span for span in rested if span.burst and span.far]
    found = {
        "tcp.windows_full": float(sum(span.window_full(most) for span in spans)),
        "tcp.windows_stuck": float(sum(span.stuck(most) for span in spans)),
        "tcp.received": max((span.bulk(span.received) for span in spans), default=0.0),
        "tcp.sent": max((span.bulk(span.sent) for span in spans), default=0.0),
        "tcp.sndbuf_limited": held / busy if busy else 0.0,
        "tcp.far": float(sum(span.far for span in spans)),
        "tcp.restarts": float(len(bursts)),
        "tcp.burst_pace": median(span.pace for span in bursts) if bursts else 0.0,
    }
    paces: dict[str, list[float]] = {}
    for span in spans:
        if span.burst and span.far:
            paces.setdefault(span.after.seen.congestion, []).append(span.pace)
    for control, listed in paces.items():
        found[f"tcp.pace.{control}"] = median(listed)
        lossy = [s for s in spans if s.lossy and s.after.seen.congestion == control]
        found[f"tcp.lossy.{control}"] = float(len(lossy))
    return found


def ports_taken(waiting: Iterable[Connection], low: int, high: int) -> float:
    """The share of the local ports that wait (TIME-WAIT) after connections to one and the same peer."""
    taken = Counter(
        (one.local.rpartition(":")[0], one.peer)
        for one in waiting
        if one.port is not None and low <= one.port <= high
    )
    return max(taken.values(), default=0) / max(1, high - low + 1)


def shortage(taken: float, rates: Mapping[str, float]) -> float:
    """The share of ports that wait, where none of them is taken again meanwhile."""
    return 0.0 if rates.get("TcpExtTWRecycled") else taken
