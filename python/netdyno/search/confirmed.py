"""A load that was found is confirmed by a trial with very many flows (RFC 7502: N sessions, none fails)."""

from __future__ import annotations

import math

from netdyno.search.edge import passes
from netdyno.search.trial import Goal, LoadTrial, Space, Strategy, TrialRequest, prepend

MOST = 8
"""Loads that are tried so, each lower than the one before."""
SPARE = 3.0
"""Standard deviations of Poisson arrivals by which a trial is longer."""
STEP = 2.0
"""How much lower, in resolutions."""


def confirmed(goal: Goal, space: Space, inner: Strategy, count: float) -> Strategy:
    """A search, then trials of `count` flows: at the load that was found, and lower until one passes."""
    seen: list[LoadTrial] = []
    why = yield from prepend(inner, seen)
    load = passes(goal, seen)
    if load is None or why in ("disturbed", "lost", "never"):
        return why
    for _ in range(MOST):
        trial = yield TrialRequest(load, seconds(count, load, space))
        if goal.passed(trial):
            return why
        lower = space.round(load * (1 - STEP * space.resolution))
        if lower >= load:
            return "trials"
        load = lower
    return "trials"


def seconds(count: float, load: float, space: Space) -> float:
    """How long a load is offered for `count` flows or more, however its random arrivals fall."""
    return max(space.seconds, (count + SPARE * math.sqrt(count)) / load)


def confirmation(goal: Goal, trials: list[LoadTrial], load: float, count: float) -> LoadTrial | None:
    """The trial that confirmed a load; none: nothing did."""
    long = [one for one in trials if one.load == load and one.seconds * one.load >= count * (1 - 1e-6)]
    return next((one for one in long if goal.passed(one) and not one.disturbed), None)
