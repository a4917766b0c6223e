"""Listeners that turn connections away, and that no parameter helps: their program asked for a shorter queue
than the kernel allows. And where it cannot be told which listener it was: those that it may have been.

The kernel counts on each listening socket what it dropped (sk_drops), so that a queue is found that was full
for too short a time for `ss` to see it so. Connections that are half open are dropped there too: as long as
the kernel's counters say that some were, only a queue that was seen too full is blamed.
"""

from __future__ import annotations

from collections.abc import Container, Iterator
from dataclasses import dataclass

from netdyno.lab.sockets import queues, split_lines, user
from netdyno.tuning.socket_drops import SocketLine, dropped, parse, port_of

EPISODE = 60.0
"""Seconds without such a look at it after which a listener is told of again."""
NAMED = 5
"""So many listeners are named, others counted."""
RECENT = 2.5
"""Seconds for which what a listener dropped explains a counter: the two are not read at one moment."""


@dataclass(frozen=True)
class ShortQueue:
    """A listener that turned connections away, and whose program asked for no longer queue."""

    process: str
    pid: int
    port: int
    waiting: int
    """Connections that were seen to wait."""
    longest: int
    why: str
    dropped: int = 0
    """Connections that it turned away since it was last told."""


@dataclass(frozen=True)
class UnknownListener:
    """Connections were turned away, and it cannot be told by which listener."""

    listeners: tuple[str, ...]
    """Those that it may have been."""
    why: str


class ShortQueues:
    """What is known of them, look by look."""

    def __init__(self, text: str = "") -> None:
        """`text`: lines of `ss -ltnpmOH` at the beginning."""
        self._text = text
        self._lost: list[SocketLine] = []
        """Who dropped something at the last look, for whatever reason."""
        self._seen: dict[tuple[int, int], ShortQueue] = {}
        """Those that were too full since it was last told, by process and descriptor."""
        self._told: dict[tuple[int, int], float] = {}
        """When those that were told of were last too full."""
        self._explained = float("-inf")
        """When it was last known whose queue it was."""
        self._unknown = float("-inf")
        """When it was last not known."""

    def look(self, text: str) -> None:
        """Lines of `ss -ltnpOH`."""
        for line in split_lines(text):
            cells, by = line.split(), user(line)
            if not by or (found := queues(cells)) is None or found[0] <= found[1]:
                continue
            self._add(ShortQueue(by.process, by.pid, port_of(cells[3]), found[0], found[1], ""), by.fd)

    def count(self, now: float, text: str, exact: bool) -> list[tuple[SocketLine, int]]:
        """Lines of `ss -ltnpmOH` after connections were turned away: who dropped some since the last such
        look, and how many. `exact`: that all which the kernel dropped overflowed a queue."""
        lost = dropped(self._text, text)
        self._text, self._lost = text, [one for one, _ in lost]
        self.look(text)
        if exact and lost:
            self._explained = now
            for one, count in lost:
                if one.pid:
                    queue = ShortQueue(one.process, one.pid, one.port, one.waiting, one.longest, "", count)
                    self._add(queue, one.fd)
            return lost
        return []

    def _add(self, one: ShortQueue, fd: int) -> None:
        was = self._seen.get((one.pid, fd))
        waiting = max(one.waiting, was.waiting if was else 0)
        count = one.dropped + (was.dropped if was else 0)
        self._seen[one.pid, fd] = ShortQueue(one.process, one.pid, one.port, waiting, one.longest, "", count)

    def tell(self, now: float, allowed: int, cut: Container[int]) -> Iterator[ShortQueue]:
        """Those to tell of, each once an episode. `allowed`: what somaxconn is now; `cut`: lengths to which
        it cut listeners before."""
        seen, self._seen = self._seen, {}
        for key, one in seen.items():
            self._explained = now
            if one.longest >= allowed or one.longest in cut:
                continue
            new = now - self._told.get(key, float("-inf")) > EPISODE
            self._told[key] = now
            if new:
                why = (
                    f"{one.process} (process {one.pid}), port {one.port}: {_what(one)}, while "
                    f"net.core.somaxconn allows {allowed:,}: the "
                    f"program asked for {one.longest:,}, or has listened since no more was allowed. No "
                    "kernel parameter helps: raise the backlog of its listen(), or restart it"
                )
                yield ShortQueue(one.process, one.pid, one.port, one.waiting, one.longest, why, one.dropped)

    def unknown(self, now: float, rate: float) -> Iterator[UnknownListener]:
        """What to say, once an episode, where nobody is known whose queue was full."""
        if now - self._explained <= RECENT:
            return
        new = now - self._unknown > EPISODE
        self._unknown = now
        if not new:
            return
        listeners = self._lost or [one for one in parse(self._text) if one.state == "LISTEN"]
        named = tuple(f"{one}, queue of {one.longest:,}" for one in listeners)
        begin = (
            f"{rate:.4g} connections a second are turned away (TcpExtListenOverflows), and it cannot be told"
        )
        if named:
            more = f" and {len(named) - NAMED} more" if len(named) > NAMED else ""
            why = f"{begin} by which listener: {'; '.join(named[:NAMED])}{more}"
        else:
            why = f"{begin} by whom: nobody listens any more"
        yield UnknownListener(named, why)


def _what(one: ShortQueue) -> str:
    """What was seen of a queue."""
    if one.waiting > one.longest:
        return f"{one.waiting:,} of {one.longest:,} connections wait to be accepted"
    return (
        f"its queue of {one.longest:,} was full for moments, and {one.dropped:,} connections were turned away"
    )
