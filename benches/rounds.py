"""Rounds in turn: who plays when, which of them count, and which of a peer's settings is its best."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field

Figures = dict[str, float]
Round = Callable[[float], Figures]
"""Plays so many seconds."""

TRIES = 3
"""Rounds that each setting of a peer is tried for before the comparison."""


class UnusableError(Exception):
    """A round that does not count, and why: our run was not valid, or a side failed what it was asked."""


@dataclass(frozen=True)
class Peer:
    """Who is compared with, and a round of it for each setting worth a trial."""

    name: str
    settings: Mapping[str, Round]


@dataclass(frozen=True)
class Sides:
    """Who plays a case.

    `cannot` says by metric what this machine does not allow, so that no goal is judged; `absent` by name
    why a peer is not there.
    """

    ours: Round
    peers: tuple[Peer, ...] = ()
    cannot: Mapping[str, str] = field(default_factory=dict)
    absent: Mapping[str, str] = field(default_factory=dict)


@dataclass
class Record:
    """Rounds by side, alike in number; None is one that does not count, and `unusable` says why."""

    rounds: dict[str, list[Figures | None]]
    unusable: list[dict[str, str | int]] = field(default_factory=list)

    def of(self, side: str, metric: str) -> list[float | None]:
        """One figure of one side, round by round."""
        return [None if one is None else one.get(metric) for one in self.rounds[side]]

    def measures(self, side: str, metric: str) -> bool:
        """Whether a side gives this figure; one without any round that counts is taken to."""
        good = [figures for figures in self.rounds[side] if figures is not None]
        return not good or metric in good[0]


Watch = Callable[[], AbstractContextManager[None]]
"""Raises at its end where the machine disturbed what was played within."""


def play(
    sides: Mapping[str, Callable[[], Figures]],
    rounds: int,
    *,
    pause: float = 0.5,
    watch: Watch = nullcontext,
) -> Record:
    """Play all sides in turn until so many rounds count for all of them, half as many again at most.

    Who begins changes from round to round, so that a drift of the machine favours none. What does not count
    of one side is played again with all others: only rounds that lie next to each other are pairs.
    """
    record = Record({side: [] for side in sides})
    names, whole = list(sides), 0
    for number in range(rounds + max(2, rounds // 2)):
        if whole == rounds:
            break
        good: dict[str, Figures | None] = dict.fromkeys(names)
        first = number % len(names)
        for side in names[first:] + names[:first]:
            try:
                with watch():
                    figures = sides[side]()
                good[side] = figures
            except UnusableError as why:
                record.unusable.append({"round": number + 1, "side": side, "why": str(why)})
            time.sleep(pause)
        for side, seen in good.items():
            record.rounds[side].append(seen)
        whole += None not in good.values()
    return record


def best(peer: Peer, seconds: float, *, pause: float = 0.2) -> tuple[str, dict[str, list[float]]]:
    """The setting with the highest median rate, of short rounds in turn; and the rates that say so.

    A peer of one setting is not tried.
    """
    names = list(peer.settings)
    if len(names) == 1:
        return names[0], {}
    rates: dict[str, list[float]] = {name: [] for name in names}
    for turn in range(TRIES):
        for name in names[turn % len(names) :] + names[: turn % len(names)]:
            try:
                rates[name].append(peer.settings[name](seconds)["rate"])
            except UnusableError:
                continue
            finally:
                time.sleep(pause)
    return max(names, key=lambda name: _middle(rates[name])), rates


def _middle(rates: Sequence[float]) -> float:
    return statistics.median(rates) if rates else 0.0
