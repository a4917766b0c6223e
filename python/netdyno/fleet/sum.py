"""The live sum of a fleet: a point of the series is told once every host that still runs has sent its own."""

from __future__ import annotations

from netdyno.core.wire import SeriesPoint
from netdyno.fleet import merge


class LiveSum:
    """Adds up the points of hosts as they come."""

    def __init__(self, hosts: list[str]) -> None:
        self._running = list(hosts)
        self._waiting: dict[int, dict[str, SeriesPoint]] = {}

    def add(self, host: str, point: SeriesPoint) -> list[SeriesPoint]:
        """A host has sent a point; the sums that are whole by it, in the order of time."""
        self._waiting.setdefault(merge.begin(point), {})[host] = point
        return self._complete_points()

    def ended(self, host: str) -> list[SeriesPoint]:
        """No more points come from a host; the sums that waited for it alone."""
        if host in self._running:
            self._running.remove(host)
        return self._complete_points()

    def _complete_points(self) -> list[SeriesPoint]:
        told: list[SeriesPoint] = []
        for at in sorted(self._waiting):
            if any(host not in self._waiting[at] for host in self._running):
                break
            told.append(merge.point(self._waiting.pop(at)))
        return told
