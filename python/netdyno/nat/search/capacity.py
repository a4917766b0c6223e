"""Connection tracking table capacity: how many sessions a NAT keeps (RFC 9693).

Each trial opens a number of sessions and then has a frame of each come back from the outside: all of them,
or the table was too small, whether it refused what was too much or gave up what it had.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise

from netdyno.core.search import SearchFinding
from netdyno.experiment.spec import LegSpec, table
from netdyno.nat import phases
from netdyno.search.edge_repeats import repeats
from netdyno.search.exponential import exponential, slowing
from netdyno.search.kind.throughput import Throughput, reported
from netdyno.search.load import Axis
from netdyno.search.mlr import RelevantBounds
from netdyno.search.request import PartSearch, SearchRequest
from netdyno.search.trial import LoadTrial, Space, Strategy, TrialRequest, loss_goal

LEAST = 1024
"""Sessions that any NAT keeps: where the search begins."""
GOAL = loss_goal("ndr", 0.0)


class Capacity(Throughput):
    """Of a NAT behind two ports, by profiles of [`phases`][netdyno.nat.phases]."""

    name = "capacity"
    rfc = "RFC 9693"
    # what a late burst made a DUT lose is tried again slower
    by_loss = False

    def space(self, axis: Axis, request: SearchRequest) -> tuple[Space, str]:
        """From few sessions up to those of the profile."""
        most, _ = phases.most(table(axis.leg.profile))
        return Space(float(most), request.resolution, 0.0, float(min(LEAST, most)), 1.0), "sessions"

    def strategy(
        self, axis: Axis, space: Space, request: SearchRequest, relevant: dict[str, RelevantBounds]
    ) -> Strategy:
        """Exponential, then binary search, and trials near the edge; each slower before it has failed."""
        _, rate = phases.most(table(axis.leg.profile))
        inner = repeats([GOAL], space, exponential(GOAL, space), request.repeat)
        return slowing(GOAL, inner, rate, phases.LONGEST)

    def leg(self, axis: Axis, ask: TrialRequest, request: SearchRequest) -> LegSpec:
        """The profile with so many sessions, opened in so long."""
        return offered(axis, ask)

    def judge(
        self, part: PartSearch, request: SearchRequest
    ) -> tuple[Sequence[SearchFinding], Mapping[str, float]]:
        """The most sessions that were all there."""
        told = replace(part, trials=slowest(part.trials))
        found = reported(told, replace(request, goals=(GOAL,)), 0)
        words = "sessions of which each was found again"
        return [found.model_copy(update={"goal": self.name, "words": words, "loss_ratio": None})], {}


KIND = Capacity()


def offered(axis: Axis, ask: TrialRequest) -> LegSpec:
    """The leg that opens so many sessions in the time of a trial."""
    plain = axis.leg.model_dump(by_alias=True, exclude_none=True)
    made = phases.scaled(plain["profile"], round(ask.load), ask.load / ask.seconds)
    trial = plain.get("trial", {}) | {"measure": made["phases"]["measure"]}
    return LegSpec.model_validate(plain | {"profile": made, "trial": trial})


def slowest(trials: Sequence[LoadTrial]) -> list[LoadTrial]:
    """Without those that failed and were tried again, slower: they say nothing of the number of sessions."""
    # a slower one that our generator did not offer takes the evidence from the faster one all the same
    seen = [one for one in trials if not one.disturbed]
    again = {
        one.number
        for one, after in pairwise(seen)
        if one.load == after.load and after.seconds > one.seconds and not GOAL.met(one)
    }
    return [one for one in trials if one.number not in again]
