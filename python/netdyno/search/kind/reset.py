"""Reset: outage after a restart of the DUT (RFC 2544 §26.6, RFC 6201).

The DUT is stopped and started by its driver while frames are sent at a steady rate. The time is the number
of lost frames over the rate (RFC 6201, frame-loss method).
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence

from netdyno import units
from netdyno.core import defaults
from netdyno.core.search import SearchFinding
from netdyno.errors import Error
from netdyno.experiment.measurer import Action
from netdyno.lab.dut import Dut
from netdyno.search.kind.latency import latency_at_load, no_trial_at_load
from netdyno.search.kind.throughput import Throughput, reported
from netdyno.search.load import Axis
from netdyno.search.mlr import RelevantBounds
from netdyno.search.request import PartSearch, SearchRequest
from netdyno.search.trial import Space, Strategy, TrialRequest, counting_trials

SHAPE = "reset"
WHEN = 0.25
"""Of the measure phase: what remains must be longer than the reset."""
STEADY = 0.25
"""How late the generator may be during a restart, as a share of its time: so much loss may be missing."""


class Reset(Throughput):
    """The time that a restart of the DUT takes."""

    name = "reset"
    several = False
    rfc = "RFC 6201"

    def space(self, axis: Axis, request: SearchRequest) -> tuple[Space, str]:
        """That of the throughput, which comes first unless a share is given."""
        if len(axis.leg.duts) != 1:
            what = f"the leg has {len(axis.leg.duts)} devices under test, and exactly one can be restarted"
            fix = "Give an experiment with one leg and one dut"
            raise Error("ND-104-07", what, at=f"legs.{axis.leg.name}.duts", fix=fix)
        return super().space(axis, request)

    def strategy(
        self, axis: Axis, space: Space, request: SearchRequest, relevant: dict[str, RelevantBounds]
    ) -> Strategy:
        """The throughput, unless a share is given, and resets."""
        return latency_at_load(request, space, relevant, SHAPE)

    def actions(self, axis: Axis, ask: TrialRequest) -> tuple[Action, ...]:
        """Restart the DUT."""
        if ask.shape != SHAPE:
            return ()
        (name,) = axis.leg.duts
        warmup = dict(axis.leg.trial.model_dump(exclude_none=True)).get("warmup")
        profile = axis.leg.profile if isinstance(axis.leg.profile, dict) else {}
        before = warmup or defaults.filled(profile, "phases")["warmup"]
        begins = units.seconds(str(before))
        ends = begins + ask.seconds
        return (Action(begins + ask.seconds * WHEN, name, restart, deadline=ends, steady=STEADY),)

    def judge(
        self, part: PartSearch, request: SearchRequest
    ) -> tuple[Sequence[SearchFinding], Mapping[str, float]]:
        """The mean time over the resets, and the longest."""
        found = [] if request.at else [reported(part, request, 0)]
        resets = [one for one in counting_trials(part.trials) if one.shape == SHAPE]
        times = [reset_time(one.lost, one.sent, one.seconds) for one in resets]
        if not times:
            return found, {}
        return found, {
            "reset_time": statistics.fmean(times),
            "reset_time.max": max(times),
            "trials": float(len(times)),
        }

    def missing(self, part: PartSearch, request: SearchRequest) -> Sequence[str]:
        """A time, where no reset counted."""
        return no_trial_at_load(part, request, self.judge(part, request)[1])


def reset_time(lost: int, sent: int, seconds: float) -> float:
    """Lost frames over the rate at which they were sent."""
    return lost / (sent / seconds) if sent else seconds


def restart(dut: Dut) -> None:
    """Stop a DUT and start it with the same settings."""
    dut.teardown()
    dut.setup()
