"""Which trial runs next: listed before the first one, or decided from the results that came back."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from netdyno.core.result import Result
from netdyno.experiment.measurer import Action, TrialOutcome
from netdyno.experiment.spec import Experiment, Variant


@dataclass(frozen=True)
class ScheduledTrial:
    """A trial to run: variant, repetition and actions."""

    variant: Variant
    repetition: int
    """Of its variant, from 1."""
    repetitions: int
    """How many its variant is to have, as far as is known."""
    trials: int
    """How many trials there will be in all, as far as is known."""
    actions: tuple[Action, ...] = ()
    """What is done while it runs."""


class Schedule(Protocol):
    """Decides which trial runs next. What is behind it may be a list, or a search."""

    @property
    def variants(self) -> Sequence[Variant]:
        """Those that are known before the first trial; a search may add others."""

    def next(self) -> ScheduledTrial | None:
        """The trial that is to run now; none: the experiment is over."""

    def tell(self, scheduled: ScheduledTrial, outcome: TrialOutcome) -> None:
        """What came of it."""

    def conclude(self, result: Result) -> None:
        """Add to the result what all trials together come to; called once, also after an early end."""


class FixedSchedule:
    """A schedule of a fixed list of trials."""

    def __init__(self, experiment: Experiment, found: Sequence[Variant]) -> None:
        self._variants = found
        self._repeat = experiment.repeat
        self._order = order(experiment, found)
        self._count = len(self._order)
        self._order.reverse()

    @property
    def variants(self) -> Sequence[Variant]:
        """All there will be."""
        return self._variants

    def next(self) -> ScheduledTrial | None:
        """The next one of the list."""
        if not self._order:
            return None
        variant, repetition = self._order.pop()
        return ScheduledTrial(variant, repetition, self._repeat, self._count)

    def tell(self, scheduled: ScheduledTrial, outcome: TrialOutcome) -> None:
        """Changes nothing."""

    def conclude(self, result: Result) -> None:
        """Adds nothing."""


def order(experiment: Experiment, found: Sequence[Variant]) -> list[tuple[Variant, int]]:
    """Which variant runs when, and for which time (from 1). The same for the same seed."""
    draw = random.Random(experiment.seed)
    rounds = range(1, experiment.repeat + 1)
    if experiment.order == "sequential":
        return [(variant, n) for variant in found for n in rounds]
    if experiment.order == "random":
        listed = [(variant, n) for variant in found for n in rounds]
        draw.shuffle(listed)
        return listed
    blocks: list[tuple[Variant, int]] = []
    for n in rounds:
        block = [(variant, n) for variant in found]
        draw.shuffle(block)
        blocks += block
    return blocks
