"""What two throughput searches found, beside each other: by the intervals of what each of them looked for."""

from __future__ import annotations

import math
from dataclasses import dataclass

from netdyno.core.search import SearchFinding, SearchPart, SearchReport
from netdyno.errors import Error


@dataclass(frozen=True)
class FoundChange:
    """One goal at one frame size, in two searches."""

    part: str
    goal: str
    unit: str
    a: float | None
    b: float | None
    """The loads that were found."""
    a_interval: tuple[float, float] | None
    b_interval: tuple[float, float] | None
    """Where each edge lies, at the searches' confidence; open upwards where the DUT was not the limit.

    None: not known.
    """

    @property
    def change(self) -> float | None:
        """As a share of A."""
        return self.b / self.a - 1 if self.a and self.b is not None else None

    @property
    def claimed(self) -> bool:
        """Whether anything can be said: both intervals are known."""
        return self.a_interval is not None and self.b_interval is not None

    @property
    def better(self) -> bool | None:
        """Whether B carries more, or less; None: no difference shown.

        Of one and the same DUT two intervals of 95 % lie apart only if one of them is wrong.
        """
        if self.a_interval is None or self.b_interval is None:
            return None
        if self.b_interval[0] > self.a_interval[1]:
            return True
        return False if self.b_interval[1] < self.a_interval[0] else None


def compare(a: SearchReport, b: SearchReport) -> list[FoundChange]:
    """Every goal that both looked for, by frame size."""
    if (a.kind, a.unit) != (b.kind, b.unit):
        what = f"one search is for {a.kind} in {a.unit}, the other for {b.kind} in {b.unit}"
        raise Error("ND-104-27", what, fix="Compare searches of one kind")
    theirs = {(part.name, one.goal, one.loss_ratio): (part, one) for part in b.parts for one in part.findings}
    made = []
    for part in a.parts:
        for one in part.findings:
            found = theirs.get((part.name, one.goal, one.loss_ratio))
            if found is not None:
                unit = a.unit_of(one)
                made.append(
                    FoundChange(
                        part.name, one.goal, unit, one.load, found[1].load, edge(part, one), edge(*found)
                    )
                )
    if not made:
        raise Error("ND-104-27", "the searches have no frame size and goal in common")
    return made


def document(one: FoundChange) -> dict[str, object]:
    """As JSON has it: an end that is not known is null."""

    def ends(interval: tuple[float, float] | None) -> list[float | None] | None:
        return [x if math.isfinite(x) else None for x in interval] if interval else None

    return {
        "part": one.part, "goal": one.goal, "unit": one.unit, "a": one.a, "b": one.b, "change": one.change,
        "a_interval": ends(one.a_interval), "b_interval": ends(one.b_interval), "better": one.better,
        "claimed": one.claimed,
    }  # fmt: skip


def edge(part: SearchPart, one: SearchFinding) -> tuple[float, float] | None:
    """Where the highest load that meets the goal lies."""
    if one.interval is not None:
        return one.interval
    if one.load is None:
        tried = [trial.load for trial in part.trials if trial.counts]
        return (0.0, min(tried)) if tried else None
    # nothing failed up to here: the DUT carries this at least
    return (one.load, math.inf) if one.limit in ("offered", "generator") else None
