"""Repeated trials near the edge, until it is known to the resolution or the trials are spent.

A search that ends with one trial on each side of the edge takes a lucky trial for a fact. So it is followed
by trials where they tell most: at the quartiles of what is known of the edge, in turn.
"""

from __future__ import annotations

from collections.abc import Sequence

from netdyno.search.edge import estimate
from netdyno.search.trial import Goal, LoadTrial, Space, Strategy, TrialRequest, counting_trials, prepend

LEAST = 3
"""Trials of a goal near its edge, whatever the first ones say."""


def repeats(goals: Sequence[Goal], space: Space, inner: Strategy, most: int) -> Strategy:
    """A search, and up to `most` trials for each goal near the edge that it came to."""
    seen: list[LoadTrial] = []
    why = yield from prepend(inner, seen)
    for goal in goals:
        why = yield from _one(goal, space, seen, most, why)
    return why


def _one(goal: Goal, space: Space, seen: list[LoadTrial], most: int, why: str) -> Strategy:
    for number in range(most):
        edge = estimate(goal, seen, space)
        if edge is None:
            # at the highest load nothing failed: it is tried as often as an edge would be
            at_most = [one for one in seen if one.load >= space.most]
            if any(one.short for one in at_most) or len(counting_trials(at_most)) >= LEAST:
                return why
            seen.append((yield TrialRequest(space.most, space.seconds)))
            continue
        if number >= LEAST and space.is_resolved(*edge.interval()):
            return "resolution"
        load = space.round(edge.tells_most())
        if any(one.short and one.connections and one.load <= load for one in seen):
            # a load that the connections do not carry tells nothing, however often it is tried
            return "trials"
        seen.append((yield TrialRequest(load, space.seconds)))
    edge = estimate(goal, seen, space)
    return "resolution" if edge is not None and space.is_resolved(*edge.interval()) else "trials"
