"""What is done to a DUT while a trial runs: in time, or the trial does not count."""

import time

from netdyno.experiment.trial import Action, Runner
from netdyno.search.kind.reset import restart


def late(began: float, action: Action) -> list[tuple[str, float]]:
    runner = Runner.__new__(Runner)
    runner._began, runner._late = time.monotonic() - began, []
    runner._time(action)
    return [(reason.code, reason.limit) for reason in runner._late]


def test_what_was_over_too_late_is_a_reason_of_invalidity() -> None:
    assert late(1.5, Action(1.0, "far", restart, until=3600.0)) == []
    assert late(1.5, Action(1.0, "far", restart)) == []
    assert late(5.0, Action(1.0, "far", restart, until=4.0)) == [("ND-90-22", 4.0)]
