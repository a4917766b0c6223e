"""How long a domain was without service, from the series of a load at a constant rate. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pydantic import BaseModel

from netdyno.core.wire import SeriesPoint

NONE = 2
"""Intervals between requests that are no outage: one request may have come just before it, one just after."""


class Outage(BaseModel):
    """A time in which requests fell due and none was answered with 2xx."""

    begin: float
    """Seconds after the start, at the end of an interval of the series."""
    length: float | None
    """Seconds; none where it had not ended."""
    requests: int
    """Requests that fell due meanwhile."""


@dataclass
class _Silence:
    """Whole intervals of the series without an answer."""

    begin: float
    seconds: float = 0.0
    due: int = 0
    ended: bool = False


def longest(
    series: Sequence[SeriesPoint], name: str, gap: float, slowest: float | None, fastest: float | None = None
) -> Outage | None:
    """The longest outage of a group; None: there was none.

    `gap`: seconds from one request to the next. `slowest`, `fastest`: seconds that these requests took. The
    series has the length of an outage but for the two intervals that it begins and ends in; the slowest
    request, which waited all the time, says how much of them belongs to it. At the start no answer is due
    before the fastest.
    """
    silences = _silences(series, name)
    first = silences[0]
    begin = min(fastest or 0.0, first.seconds) if first.ended else 0.0
    first.begin, first.seconds = begin, first.seconds - begin
    found = [one for one in silences if one.due and (one.seconds > NONE * gap or not one.ended)]
    worst = max(found, key=lambda one: (not one.ended, one.seconds), default=None)
    if worst is None:
        return None
    length = None
    if worst.ended:
        most = worst.seconds + 2 * max(point.dt for point in series)
        length = round(min(max(slowest or 0.0, worst.seconds), most), 6)
    return Outage(begin=round(worst.begin, 6), length=length, requests=worst.due)


def _silences(series: Sequence[SeriesPoint], name: str) -> list[_Silence]:
    present = _Silence(0.0)
    found = [present]
    for point in series:
        counts = point.groups[name].counts if name in point.groups else None
        if counts is None or not counts.messages_delivered:
            present.seconds += point.dt
            present.due += counts.flows_intended if counts else 0
            continue
        present.ended = True
        present = _Silence(point.t)
        found.append(present)
    return found
