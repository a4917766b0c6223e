"""Pauses of workers: what they add up to, and how many packets they may have cost. Pure.

A worker that has no CPU takes nothing from its ring, which then overflows; and one that sends makes up for it
by a burst. Either way at most what was offered meanwhile is lost, and nothing if the ring holds it.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from netdyno import quantities
from netdyno.core.wire import PauseLength, Pauses

FIRST, LENGTHS = 100_000, 8
"""What the shortest last at least, ns, and how many lengths are told apart, each twice the one before."""
PAUSED = " paused for "
"""In the words of each trial that pauses disturbed."""


@dataclass(frozen=True)
class WorkerPauses:
    """Pauses of one worker during a trial."""

    who: str
    """In words: `worker 2 of the DUT`."""
    core: int | None
    pauses: Pauses


def since(now: Pauses, then: Pauses) -> Pauses:
    """What came between two readings. Of the longest only a bound is known, unless none before was longer."""
    before = {one.from_ns: one for one in then.lengths}
    lengths = []
    for one in now.lengths:
        old = before.get(one.from_ns, PauseLength(from_ns=one.from_ns))
        if one.count > old.count:
            lengths.append(
                PauseLength(from_ns=one.from_ns, count=one.count - old.count, ns=max(0, one.ns - old.ns))
            )
    longest = now.longest_ns if now.longest_ns > then.longest_ns else 0
    if lengths and not longest:
        most = max(lengths, key=lambda one: one.from_ns)
        longest = min(most.ns, now.longest_ns)
    return _of(lengths, longest if lengths else 0)


def total(parts: Sequence[Pauses]) -> Pauses:
    """All of them together."""
    counts: Counter[int] = Counter()
    times: Counter[int] = Counter()
    for one in (length for part in parts for length in part.lengths):
        counts[one.from_ns] += one.count
        times[one.from_ns] += one.ns
    lengths = [PauseLength(from_ns=ns, count=counts[ns], ns=times[ns]) for ns in sorted(counts)]
    return _of(lengths, max((part.longest_ns for part in parts), default=0))


def _of(lengths: Sequence[PauseLength], longest: int) -> Pauses:
    return Pauses(
        count=sum(one.count for one in lengths),
        ns=sum(one.ns for one in lengths),
        longest_ns=longest,
        lengths=list(lengths),
    )


def lasted(each: Sequence[int]) -> Pauses:
    """Pauses that lasted so many nanoseconds, as the core tells them."""
    counts: Counter[int] = Counter()
    times: Counter[int] = Counter()
    for ns in each:
        at = FIRST << min(LENGTHS - 1, max(0, (ns // FIRST).bit_length() - 1))
        counts[at] += 1
        times[at] += ns
    lengths = [PauseLength(from_ns=at, count=counts[at], ns=times[at]) for at in sorted(counts)]
    return _of(lengths, max(each, default=0))


def explained(pauses: Pauses, rate: float, room: int) -> int:
    """How many packets pauses may have cost at most, at so many a second, where a ring has room for so many.

    What a ring holds costs nothing. A pause that is too long for it may cost all that came: the ring need not
    have been empty, as one before it may have filled it. A load beyond the DUT's capacity always loses more.
    """
    most = 0
    for place, one in enumerate(pauses.lengths, 1):
        end = pauses.longest_ns if place == len(pauses.lengths) else 2 * one.from_ns
        if end * rate / 1e9 > room:
            most += math.floor(one.ns * rate / 1e9)
    return most


def counted(found: Sequence[WorkerPauses]) -> list[WorkerPauses]:
    """Those that may excuse a loss: not of workers that share a core, as these take it from each other."""
    cores = Counter(one.core for one in found if one.core is not None)
    return [one for one in found if one.pauses.count and (one.core is None or cores[one.core] == 1)]


def excuse(found: Sequence[WorkerPauses], lost: int, rate: float, room: int) -> str:
    """Why a loss is no evidence against the DUT, in words; nothing if pauses do not explain all of it."""
    each = [(one, explained(one.pauses, rate, room)) for one in counted(found)]
    whole = sum(most for _, most in each)
    if not 0 < lost <= whole:
        return ""
    told = [pause_words(one) for one, most in sorted(each, key=lambda pair: -pair[1]) if most]
    return f"{', '.join(told)}: up to {whole:,} packets at {quantities.si(rate, 'pps', 3)}; {lost:,} lost"


def pause_words(one: WorkerPauses) -> str:
    """`worker 2 of the DUT paused for 3.1 ms in 4 pauses`."""
    many = "1 pause" if one.pauses.count == 1 else f"{one.pauses.count:,} pauses"
    return f"{one.who}{PAUSED}{one.pauses.ns / 1e6:.3g} ms in {many}"
