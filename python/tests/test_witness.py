from typing import Any, cast

import pytest

from netdyno.core.result import DutReport
from netdyno.core.wire import Counts, GroupResult, TrialResult
from netdyno.experiment.witness import witnesses
from netdyno.lab.dut import Dut


class Broker:
    def __init__(self, counted: float) -> None:
        self.counted = counted

    def witness(self, before: Any, after: Any) -> dict[str, tuple[str, float]]:
        return {"mqtt": ("PUBLISH received", self.counted)}


def trial(sent: int, delivered: int) -> TrialResult:
    total = Counts(messages_sent=sent, messages_delivered=delivered)
    ping = GroupResult(name="ping", protocol="ping", total=Counts(messages_sent=5, messages_delivered=5))
    return TrialResult(run="r", groups=[GroupResult(name="a", protocol="mqtt", total=total), ping])


@pytest.mark.parametrize(
    ("sent", "delivered", "theirs", "agree"),
    [(10, 10, 10, True), (10, 10, 9, False), (10, 10, 11, False), (10, 8, 9, True), (10, 8, 7, False)],
)
def test_counts_are_held_against_each_other(sent: int, delivered: int, theirs: float, agree: bool) -> None:
    report = DutReport(counters_after={"x": 1.0})
    duts = cast("dict[str, Dut]", {"broker": Broker(theirs)})
    reached = {"a": "broker", "ping": "broker"}
    found = witnesses(trial(sent, delivered), duts, {"broker": report}, reached)
    assert [(w.ours, w.theirs, w.agree) for w in found] == [(sent, theirs, agree)]


def test_who_died_is_no_witness() -> None:
    duts = cast("dict[str, Dut]", {"broker": Broker(1)})
    report = DutReport(counters_after={"x": 1.0}, died="signal 9")
    assert witnesses(trial(1, 1), duts, {"broker": report}, {"a": "broker"}) == []
