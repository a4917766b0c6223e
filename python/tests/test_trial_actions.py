"""Actions on a DUT during a trial: within their deadline, or the trial is invalid."""

import time

from netdyno.experiment.trial import Action, Runner
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
