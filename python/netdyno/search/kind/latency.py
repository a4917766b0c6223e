"""Latency at throughput (RFC 2544 §26.2, RFC 8219 §7): the load is found, then held for longer trials.

RFC 2544 takes one tagged frame of each of 20 trials of 120 s. Here every frame is measured, from the time at
which it was due; typical latency (median) and worst-case latency (99.9th percentile) are those of RFC 8219
§7.2.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import replace

from netdyno.core.search import SearchFinding
from netdyno.search import strategies
from netdyno.search.edge import passes
from netdyno.search.kind.throughput import Throughput, reported
from netdyno.search.latency_at_load import shares_without_trials, trials_at_shares
from netdyno.search.load import Axis
from netdyno.search.mlr import RelevantBounds
from netdyno.search.request import PartSearch, SearchRequest
from netdyno.search.trial import Goal, LoadTrial, Space, Strategy, TrialRequest, counting_trials, prepend

SEARCHING = 4
"""Trials of the search are shorter than those that latency is taken from by this."""


class Latency(Throughput):
    """At the highest load without loss, at shares of it, or at a share of the highest load."""

    name = "latency"
    rfc = "RFC 2544 §26.2"
    timed = True

    def strategy(
        self, axis: Axis, space: Space, request: SearchRequest, relevant: dict[str, RelevantBounds]
    ) -> Strategy:
        """The search, then the trials at what it found."""
        return latency_at_load(request, space, relevant)

    def judge(
        self, part: PartSearch, request: SearchRequest
    ) -> tuple[Sequence[SearchFinding], Mapping[str, float]]:
        """The mean over the trials that were held, of each figure; of shares the part itself has them."""
        found = [] if request.at else [reported(part, request, 0)]
        if request.shares:
            return found, {}
        at = final_trials(part.trials, part.space)
        names = dict.fromkeys(name for one in at for name in one.figures)
        figures = {"load": at[0].load, "trials": float(len(at))} if at else {}
        for name in names:
            figures[name] = statistics.fmean(one.figures[name] for one in at if name in one.figures)
        return found, figures

    def missing(self, part: PartSearch, request: SearchRequest) -> Sequence[str]:
        """The load or the shares of it of which no trial counted, once they were measured."""
        if not request.shares:
            return no_trial_at_load(part, request, self.judge(part, request)[1])
        unheard = shares_without_trials(part.trials, request.shares)
        return [f"no trial at {share:.4g} of the load found counted" for share in unheard]


def latency_at_load(
    request: SearchRequest, space: Space, relevant: dict[str, RelevantBounds], shape: str = ""
) -> Strategy:
    """Find the load, unless it is given, and hold it as often as asked."""
    seen: list[LoadTrial] = []
    load: float | None = None if request.at is None else space.most * request.at
    if load is None:
        short = replace(space, seconds=space.seconds / SEARCHING)
        why = yield from prepend(strategies.strategy_for(request, short, relevant), seen)
        load = lowest_goal_load(request.goals, seen)
        if load is None or why == "disturbed":
            return why
    if request.shares:
        return (yield from trials_at_shares(load, space, request.shares, request.repeat))
    for _ in range(max(1, request.repeat)):
        yield TrialRequest(load, space.seconds, shape)
    return "resolution"


def lowest_goal_load(goals: Sequence[Goal], seen: Sequence[LoadTrial]) -> float | None:
    """The load that meets every goal."""
    loads = [passes(goal, seen) for goal in goals]
    return None if None in loads else min(load for load in loads if load is not None)


def no_trial_at_load(part: PartSearch, request: SearchRequest, figures: Mapping[str, float]) -> Sequence[str]:
    """That no trial counted of those at the load that was given, or found."""
    if figures or (
        request.at is None and lowest_goal_load(request.goals, counting_trials(part.trials)) is None
    ):
        return []
    return ["no trial at the load that is held counted"]


def final_trials(trials: Sequence[LoadTrial], space: Space) -> list[LoadTrial]:
    """The trials of full length at the load that was held: the last ones."""
    seen = [one for one in counting_trials(trials) if one.seconds >= space.seconds]
    return [one for one in seen if one.load == seen[-1].load] if seen else []
