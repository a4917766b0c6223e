"""The looks of a comparison, kept beside its trials: to go on with more pairs is the next of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from netdyno.experiment.pairs import RepeatBudget
from netdyno.experiment.record import Record
from netdyno.stats.sequential import TEST, Look, look_at, share


@dataclass(frozen=True)
class Stage:
    """Pairs that are measured for one look."""

    first: int
    """Pairs before it."""
    pairs: int
    """With these."""
    spare: RepeatBudget
    """For trials of this stage that are measured again."""


class Looks:
    """The looks that were taken, and the one that is to be taken now.

    What a look was judged by is what it stays: its trials are not measured again, whatever there is to spare.
    A look that found too few pairs judged nothing, and goes on.
    """

    def __init__(self, record: Record, first: int, pairs: int, level: float) -> None:
        """`first`: pairs of the first look, if it is not planned yet. `pairs`: how many are wanted now."""
        self._record, self.level = record, level
        planned = record.noted("looks")
        if not planned:
            record.note("looks", first=first, level=level)
        self.first = int(planned[0]["first"]) if planned else first
        self.taken = record.noted("look")
        after = int(self.taken[-1]["number"]) if self.taken else 1
        self.now: Look = look_at(self.first, level, pairs, after)
        self._spare: RepeatBudget | None = None

    @property
    def new(self) -> bool:
        """Whether this look was not taken before."""
        return not any(one["number"] == self.now.number for one in self.taken)

    def stages(self, spare: int | None, arms: int = 2) -> Iterator[Stage]:
        """What is measured, one stage for each look that was taken, and for this one; without a number there
        are as many trials to spare as a stage has."""
        before = 0
        for one in self.taken:
            yield Stage(before, int(one["pairs"]), RepeatBudget(int(one["spare"])))
            before = int(one["pairs"])
        if self.new:
            planned = arms * (self.now.pairs - before)
            self._spare = RepeatBudget(planned if spare is None else spare)
            yield Stage(before, self.now.pairs, self._spare)

    def judged(self, counted: int) -> None:
        """The look was taken: what it says may be told once this returns."""
        if self.new and self._spare is not None:
            had = self._spare.left + self._spare.again.total()
            data = {**asdict(self.now), "counted": counted, "spare": had}
            self._record.note("look", **data)
            self.taken.append(data)

    def document(self) -> Mapping[str, Any]:
        """The test, its level, and the looks that were taken, as JSON."""
        spent = sum(share(self.level, int(one["number"])) for one in self.taken)
        return {"test": TEST, "level": self.level, "spent": spent, "first": self.first, "taken": self.taken}
