"""System recovery: how long frames are still lost after an overload has ended (RFC 2544 §26.5).

The overload is 110 % of the throughput, by a second group of frames that comes to its end with the warm-up;
the measure phase has 50 % of it. The time is that of the last loss in it, to the interval of the series.
"""

from __future__ import annotations

import copy
import statistics
from collections.abc import Mapping, Sequence

from netdyno.core.search import SearchFinding
from netdyno.core.wire import SeriesPoint
from netdyno.experiment.spec import LegSpec
from netdyno.search.kind.latency import latency_at_load, no_trial_at_load
from netdyno.search.kind.throughput import Throughput, reported
from netdyno.search.load import Axis, loading
from netdyno.search.mlr import RelevantBounds
from netdyno.search.request import PartSearch, SearchRequest
from netdyno.search.trial import Space, Strategy, TrialRequest, counting_trials

SHAPE = "recovery"
OVERLOAD, AFTER = 1.1, 0.5
"""Shares of the throughput (RFC 2544 §26.5)."""
EXTRA = "-overload"
"""Of the names of the groups that end with the overload."""
FINEST = 0.1
"""Seconds between points of a series, at least."""
POINTS = 200
"""Of the series of the measure phase: the time is known to one of them."""


class Recovery(Throughput):
    """The time to recover from an overload."""

    name = "recovery"
    several = False
    rfc = "RFC 2544 §26.5"

    def space(self, axis: Axis, request: SearchRequest) -> tuple[Space, str]:
        """That of the throughput, which comes first."""
        axis.need_frames("an overload")
        return super().space(axis, request)

    def strategy(
        self, axis: Axis, space: Space, request: SearchRequest, relevant: dict[str, RelevantBounds]
    ) -> Strategy:
        """The throughput, unless a share is given, and overloads."""
        return latency_at_load(request, space, relevant, SHAPE)

    def leg(self, axis: Axis, ask: TrialRequest, request: SearchRequest) -> LegSpec:
        """A steady load, or an overload that ends with the warm-up."""
        return overload(axis, ask) if ask.shape == SHAPE else super().leg(axis, ask, request)

    def judge(
        self, part: PartSearch, request: SearchRequest
    ) -> tuple[Sequence[SearchFinding], Mapping[str, float]]:
        """The mean time over the trials, and the longest."""
        found = [] if request.at else [reported(part, request, 0)]
        times = [
            recovered(part.repetitions[one.number].series, one.lost)
            for one in counting_trials(part.trials)
            if one.shape == SHAPE and one.number in part.repetitions
        ]
        if not times:
            return found, {}
        figures = {"recovery_time": statistics.fmean(times), "recovery_time.max": max(times)}
        return found, figures | {"trials": float(len(times))}

    def missing(self, part: PartSearch, request: SearchRequest) -> Sequence[str]:
        """A time, where no overload counted."""
        return no_trial_at_load(part, request, self.judge(part, request)[1])


def overload(axis: Axis, ask: TrialRequest) -> LegSpec:
    """110 % of a load through the warm-up, 50 % from then on."""
    leg = axis.at(ask.load * AFTER, ask.seconds, {"warmup": f"{round(ask.seconds * 1e6)}us"})
    assert isinstance(leg.profile, dict)
    profile, more = leg.profile, []
    for group, share in zip(loading(profile), axis.shares, strict=True):
        extra = copy.deepcopy(group)
        rate = ask.load * (OVERLOAD - AFTER) * share
        extra["name"] = f"{group['name']}{EXTRA}"
        extra["frame"]["rate"] = {"frames": f"{rate:.6f}/s"}
        each = rate * ask.seconds / int(group.get("devices", 1))
        extra["model"]["stream"]["count"] = max(1, round(each))
        extra["load"] = {"closed": {"flows": 1}}
        more.append(extra)
    profile["groups"] += more
    profile["phases"] = dict(profile.get("phases") or {}) | {
        "sample": f"{max(FINEST, ask.seconds / POINTS) * 1e3:.0f}ms"
    }
    return leg


def recovered(series: Sequence[SeriesPoint], lost: int = 0) -> float:
    """Seconds from the start of the measure phase until no more frames are lost.

    From the end: what is sent after a moment and what arrives after it differ by what is lost after it, but
    for frames that are on their way at that moment, which make the difference smaller.
    """
    began = max((one.t for one in series if one.phase == "warmup"), default=0.0)
    sent = came = 0
    after = [one for one in series if one.t > began]
    for one in reversed(after):
        steady = [group for name, group in one.groups.items() if not name.endswith(EXTRA)]
        sent += sum(group.counts.messages_sent for group in steady)
        came += sum(group.counts.messages_delivered for group in steady)
        if sent > came:
            return one.t - began
    # what was on its way hid the last of it: they were lost at the very beginning
    return after[0].t - began if lost and after else 0.0
