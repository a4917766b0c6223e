"""Trials in pairs: A and B in randomised order, repeated where they were disturbed.

A trial is measured again in its own place, before the next: which setting comes first was drawn before, so
that what disturbs a place does so whichever setting is there, and the tests stay exact.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from netdyno.errors import Error
from netdyno.experiment.measurer import SettingMeasurer
from netdyno.stats.discards import Discard
from netdyno.stats.observation import Observation, Setting
from netdyno.stats.paired import Order, design
from netdyno.stats.pairs import DisturbanceLimits, Pair, cause, gated

Progress = Callable[[int, int, Observation], None]
"""Told after each trial: how many are done, of how many, and what it saw."""


@dataclass
class RepeatBudget:
    """Trials that may be repeated, over all pairs together."""

    left: int
    again: Counter[str] = field(default_factory=Counter)
    """How many were, by what they were lost to."""

    def __post_init__(self) -> None:
        """Half of it may go to trials that saw nothing: they failed by themselves, and mostly do again."""
        self._for_failures = self.left // 2

    def take(self, seen: Observation) -> bool:
        """Whether a trial that does not count may be measured again; then it is one of them."""
        failed = not seen.metrics
        if self.left <= 0 or (failed and self._for_failures <= 0):
            return False
        self.left -= 1
        self._for_failures -= failed
        self.again[cause(seen)] += 1
        return True


def measure_with_repeats(
    measure: Callable[[int], Observation],
    spare: RepeatBudget,
    limits: DisturbanceLimits | None = None,
    after: Callable[[Observation], None] = lambda seen: None,
) -> Observation:
    """A trial, again as long as it does not count and there are any to spare.

    `measure` is told how often it was measured before.
    """
    attempt = 0
    while True:
        seen = gated(measure(attempt), limits or DisturbanceLimits())
        again = not seen.valid and spare.take(seen)
        after(seen)
        if not again:
            return seen
        attempt += 1


def measure_pairs(
    bench: SettingMeasurer,
    a: Setting,
    b: Setting,
    pairs: int,
    seed: int,
    *,
    order: Order = "shuffled",
    limits: DisturbanceLimits | None = None,
    spare: RepeatBudget | None = None,
    progress: Progress = lambda done, of, seen: None,
    first: int = 0,
    discarded: list[Discard] | None = None,
    coins: int | None = None,
) -> list[Pair]:
    """Measure A and B in pairs, from pair `first` of so many on.

    A disturbed trial is measured again as long as there are any to `spare`, by default as many as are
    planned; what is left invalid then stays so. Those that were measured again are added to `discarded`.
    `coins`: the seed by which A or B comes first in each pair, by default that of the trials.
    """
    rest = RepeatBudget(2 * (pairs - first)) if spare is None else spare
    found: list[Pair] = []
    done, before = 0, rest.again.total()

    def after(seen: Observation) -> None:
        nonlocal done
        done += 1
        progress(done, 2 * (pairs - first) + rest.again.total() - before, seen)

    def trial(is_b: bool, number: int) -> Observation:
        tries: list[Observation] = []

        def noted(seen: Observation) -> None:
            tries.append(seen)
            after(seen)

        seen = measure_with_repeats(
            lambda _: bench.measure(b if is_b else a, seed * 100_003 + number), rest, limits, noted
        )
        if discarded is not None:
            discarded.extend(Discard(is_b, one) for one in tries[:-1])
        return seen

    for number, a_first in list(enumerate(design(pairs, seed if coins is None else coins, order)))[first:]:
        one = trial(not a_first, number)
        two = trial(a_first, number)
        found.append((one, two) if a_first else (two, one))
    return found


def unequal(said: str, at: str = "") -> Error:
    """That one of two settings lost more trials than the other, so that nothing is concluded."""
    fix = "Look at what the setting does to the machine (steal, pressure, failures): that is a result too"
    return Error("ND-90-34", said, at=at, fix=fix)
