"""The search of RFC 2544 §26.1: halve between a load that meets the goal and one that does not.

It begins at the highest load. Trials of a goal before are used again, so that NDR and PDR together take
fewer than one after the other.
"""

from __future__ import annotations

from collections.abc import Sequence

from netdyno.search.trial import Goal, LoadTrial, Space, Strategy, TrialRequest


def binary(goals: Sequence[Goal], space: Space) -> Strategy:
    """One goal after the other, each down to the resolution."""
    seen: list[LoadTrial] = []
    first = yield TrialRequest(space.most, space.seconds)
    seen.append(first)
    for goal in goals:
        low, high = bounds(goal, seen, space)
        while high - low > space.resolution * high:
            load = space.round((low + high) / 2)
            if not low < load < high:
                break
            trial = yield TrialRequest(load, space.seconds)
            seen.append(trial)
            if goal.passed(trial):
                low = load
            else:
                high = load
            if high <= space.bottom:
                break
    return "resolution"


def bounds(goal: Goal, trials: Sequence[LoadTrial], space: Space) -> tuple[float, float]:
    """The loads that the goal's edge is between, by trials so far; equal: it is met at the highest load."""
    high = min((one.load for one in trials if not goal.passed(one)), default=None)
    if high is None:
        return space.most, space.most
    low = max((one.load for one in trials if goal.passed(one) and one.load < high), default=0.0)
    return low, high
