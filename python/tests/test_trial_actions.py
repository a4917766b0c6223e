"""Actions on a DUT during a trial: within their deadline and under a steady load, or the trial is invalid."""

import time

from netdyno.experiment.measurer import Action
from netdyno.experiment.trial import Runner
from netdyno.search.kind.reset import restart


def late(began: float, action: Action) -> list[tuple[str, float]]:
    runner = Runner.__new__(Runner)
    runner._began, runner._late = time.monotonic() - began, []
    runner._check_deadline(action)
    return [(reason.code, reason.limit) for reason in runner._late]


def test_an_action_past_its_deadline_makes_the_trial_invalid() -> None:
    assert late(1.5, Action(1.0, "far", restart, deadline=3600.0)) == []
    assert late(1.5, Action(1.0, "far", restart)) == []
    assert late(5.0, Action(1.0, "far", restart, deadline=4.0)) == [("ND-90-22", 4.0)]


def unsteady(late_ns: float, at: float, **more: float) -> list[tuple[str, float]]:
    """Of an action from 1.0 s to 1.2 s, where a point of the series has a generator that was late by so much."""
    runner = Runner.__new__(Runner)
    runner._late, runner._done = [], [(Action(1.0, "far", restart, **more), 1.0, 1.2)]
    lateness = {"s": {"lateness": {"count": 9, "max": late_ns}}}
    runner.series = [{"t": at, "dt": 0.2, "phase": "measure", "groups": lateness}]
    runner._check_steady()
    return [(reason.code, round(reason.limit, 6)) for reason in runner._late]


def test_a_generator_that_pauses_during_an_action_makes_the_trial_invalid() -> None:
    assert unsteady(51e6, 1.1, steady=0.25) == unsteady(51e6, 1.3, steady=0.25) == [("ND-90-02", 0.05)]
    assert unsteady(49e6, 1.1, steady=0.25) == []
    assert unsteady(51e6, 0.8, steady=0.25) == unsteady(51e6, 1.5, steady=0.25) == []
    # a pause that outlasts the action is told after it
    assert unsteady(500e6, 1.8, steady=0.25) == [("ND-90-02", 0.05)]
    assert unsteady(500e6, 2.0, steady=0.25) == []
    assert unsteady(51e6, 1.1) == []
