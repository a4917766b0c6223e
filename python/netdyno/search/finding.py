"""What the trials of a search come to for one goal: a load, the interval of the edge, and what is not known.

The load is the one that RFC 2544 asks for: the highest of which no trial failed the goal, with none
failing below. The interval is of the edge, the load at which half of the trials meet the goal. On a DUT that
does the same every time they lie within the resolution of each other; on one that does not, the interval is
the figure to compare, and the load is a little below it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Literal

from netdyno.search.edge import Edge, estimate, near, passes
from netdyno.search.lost_dut import WHY
from netdyno.search.trial import Goal, LoadTrial, Space, counting_trials

Limit = Literal["dut", "offered", "generator", "connections", "lowest", "lost"]
"""What bounds the load from above: the DUT; the highest load that was to be offered; our own tester; too few
connections for the DUT's answer times; or nothing was found, as the lowest load fails too; or the DUT was
lost before it was known."""


@dataclass(frozen=True)
class Finding:
    """What was found of one goal."""

    goal: str
    load: float | None
    """The highest load that met the goal in every trial, none failing below; none: there is none."""
    interval: tuple[float, float] | None
    """Of the edge; none where nothing failed, or nothing passed."""
    limit: Limit
    stop: str
    """Why the search ended: resolution, trials, disturbed, interrupted."""
    trials: int
    """That count."""
    disturbed: int
    """That do not, and were measured again."""
    short: int
    """Of which an end of ours did not carry the load."""
    failed_near: tuple[int, int] = (0, 0)
    """At the interval: how many trials failed the goal, of how many."""
    notes: tuple[str, ...] = field(default=())
    """What could not be told apart, in words."""

    @property
    def resolved(self) -> bool:
        """Whether the search came to its end."""
        return self.stop == "resolution"


def finding(
    goal: Goal, trials: Sequence[LoadTrial], space: Space, stop: str, shown: Callable[[float], str]
) -> Finding:
    """Judge all trials of a search by one goal; `shown` writes a load."""
    seen = counting_trials(trials)
    edge = estimate(goal, trials, space)
    load = passes(goal, trials)
    short = [one for one in trials if one.short and not one.disturbed]
    # a machine that was busy for a moment is no limit
    offered = {(one.load, one.seconds, one.shape) for one in seen}
    never = [one for one in short if (one.load, one.seconds, one.shape) not in offered]
    limit: Limit = "dut"
    notes: list[str] = []
    if edge is None:
        limit = "generator" if never else "offered"
    lowest_failure = min((one.load for one in seen if not goal.met(one)), default=math.inf)
    lowest_short = min(never, key=lambda one: one.load, default=None)
    if lowest_short and lowest_short.connections and lowest_short.load < lowest_failure:
        # what failed above is beyond the load that was searched
        limit = "connections"
    elif limit == "dut" and load is None and any(one.load <= space.bottom * (1 + 1e-9) for one in seen):
        limit = "lowest"
    if stop in WHY:
        limit = "lost"
        notes.append(f"{WHY[stop]}: not searched to its end")
    interval, failed = None, (0, 0)
    if edge is not None and load is not None:
        interval, changed = _interval(goal, seen, space, edge, shown)
        notes += changed
        at = near(trials, edge, space)
        failed = (sum(not goal.met(one) for one in at), len(at))
        if not space.is_resolved(*interval) and stop in ("trials", "resolution"):
            notes.append(
                f"between {shown(interval[0])} and {shown(interval[1])}; {failed[0]} of {failed[1]} trials "
                f"there {_failed(goal)} (resolution of {space.resolution:.3g} not reached)"
            )
    for overrun, what in (
        (False, "generator did not offer"),
        (True, "receiver did not take all that reached it at"),
    ):
        if of := [one.load for one in never if one.overrun == overrun and not one.connections]:
            notes.append(f"our own {what} {shown(min(of))}: no evidence against the DUT")
    if few := [one for one in never if one.connections]:
        first = min(few, key=lambda one: one.load)
        notes.append(
            f"too few connections for {shown(first.load)}: {first.connections}: no evidence against the DUT; "
            "use more devices (--devices)"
        )
    if limit == "offered" and load is not None:
        notes.append(f"nothing failed up to the highest load offered, {shown(load)}")
    if limit == "lowest":
        notes.append(f"even the lowest load, {shown(space.bottom)}, failed{_why(goal, seen)}")
    elif load is None and edge is not None:
        least = min(one.load for one in seen)
        notes.append(f"no load passed, and none below {shown(least)} was tried{_why(goal, seen)}")
    if stop == "disturbed":
        notes.append("too many trials were disturbed: ended before its resolution")
    return Finding(
        goal.name,
        load,
        interval,
        limit,
        stop,
        trials=len(seen),
        disturbed=sum(bool(one.disturbed) for one in trials),
        short=len(short),
        failed_near=failed,
        notes=tuple(notes),
    )


SIDES = 2
"""Trials on each side of the edge that a part must have to be held against another."""


def _both(goal: Goal, trials: Sequence[LoadTrial]) -> bool:
    met = sum(goal.met(one) for one in trials)
    return min(met, len(trials) - met) >= SIDES


def _why(goal: Goal, seen: Sequence[LoadTrial]) -> str:
    """Why the first trial at the lowest load did not meet a goal, where that is known."""
    first = min((one for one in seen if not goal.met(one)), key=lambda one: one.load)
    return f": {first.cause}" if first.cause else ""


def _failed(goal: Goal) -> str:
    """What a trial did that did not meet a goal."""
    if goal.ratio is None:
        return "did not keep the thresholds"
    return f"lost more than {goal.ratio:.3g}" if goal.ratio else "lost frames"


def _interval(
    goal: Goal, seen: Sequence[LoadTrial], space: Space, edge: Edge, shown: Callable[[float], str]
) -> tuple[tuple[float, float], list[str]]:
    """The interval; where parts of the trials contradict each other it spans both, and that is said."""
    low, high = edge.interval()
    half = len(seen) // 2
    after_failure = [now for before, now in pairwise(seen) if not goal.met(before)]
    after_pass = [now for before, now in pairwise(seen) if goal.met(before)]
    notes = []
    for one, other, words in (
        (seen[:half], seen[half:], "the DUT changed during the search: {a} in its first half, {b} after"),
        (
            after_pass,
            after_failure,
            "the DUT depends on the trial before: {a} after a pass, {b} after a failure",
        ),
    ):
        # a part without trials on both sides says little: where a search goes next follows from what came
        parts = [estimate(goal, part, space) if _both(goal, part) else None for part in (one, other)]
        spans = [part.interval() for part in parts if part is not None]
        if len(spans) == 2 and (spans[0][1] < spans[1][0] or spans[1][1] < spans[0][0]):
            texts = [f"{shown(a)} to {shown(b)}" for a, b in spans]
            notes.append(words.format(a=texts[0], b=texts[1]))
            low, high = min(low, spans[0][0], spans[1][0]), max(high, spans[0][1], spans[1][1])
    return (low, high), notes
