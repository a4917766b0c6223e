"""Listeners whose program asked for a shorter queue than the kernel allows: no parameter lengthens that.

`ss` tells of a listener how many connections wait and how many may; the kernel turns one away once more wait
than may. Who has not been seen with so many is not blamed, whatever a counter says.
"""

from __future__ import annotations

from collections.abc import Container, Iterator
from dataclasses import dataclass

from netdyno.lab.sockets import queues, split_lines, user

EPISODE = 60.0
"""Seconds without such a look at it after which a listener is told of again."""


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


class ShortQueues:
    """What is known of them, look by look."""

    def __init__(self) -> None:
        self._seen: dict[tuple[int, int], ShortQueue] = {}
        """Those that were too full since it was last told, by process and descriptor."""
        self._told: dict[tuple[int, int], float] = {}
        """When those that were told of were last too full."""

    def look(self, text: str) -> None:
        """Lines of `ss -ltnpOH`."""
        for line in split_lines(text):
            cells, by = line.split(), user(line)
            if not by or (found := queues(cells)) is None or found[0] <= found[1]:
                continue
            port = cells[3].rpartition(":")[2]
            key, was = (by.pid, by.fd), self._seen.get((by.pid, by.fd))
            waiting = max(found[0], was.waiting if was else 0)
            self._seen[key] = ShortQueue(
                by.process, by.pid, int(port) if port.isdecimal() else 0, waiting, found[1], ""
            )

    def tell(self, now: float, allowed: int, cut: Container[int]) -> Iterator[ShortQueue]:
        """Those to tell of, each once an episode. `allowed`: what somaxconn is now; `cut`: lengths to which
        it cut listeners before."""
        seen, self._seen = self._seen, {}
        for key, one in seen.items():
            if one.longest >= allowed or one.longest in cut:
                continue
            new = now - self._told.get(key, float("-inf")) > EPISODE
            self._told[key] = now
            if new:
                why = (
                    f"{one.process} (process {one.pid}), port {one.port}: {one.waiting:,} of {one.longest:,} "
                    f"connections wait to be accepted, while net.core.somaxconn allows {allowed:,}: the "
                    f"program asked for {one.longest:,}, or has listened since no more was allowed. No "
                    "kernel parameter helps: raise the backlog of its listen(), or restart it"
                )
                yield ShortQueue(one.process, one.pid, one.port, one.waiting, one.longest, why)
