"""A trial from its start to its end: actions on a DUT, and a DUT that dies."""

import time
from types import SimpleNamespace
from typing import Any

from netdyno.core.client import Event, Subscription
from netdyno.core.result import DutReport
from netdyno.core.wire import Status
from netdyno.errors import Error
from netdyno.experiment.measurer import Action
from netdyno.experiment.trial import TrialRun
from netdyno.search.kind.reset import restart


def late(began: float, action: Action) -> list[tuple[str, float]]:
    runner = TrialRun.__new__(TrialRun)
    runner._began, runner._late = time.monotonic() - began, []
    runner._check_deadline(action)
    return [(reason.code, reason.limit) for reason in runner._late]


def test_an_action_past_its_deadline_makes_the_trial_invalid() -> None:
    assert late(1.5, Action(1.0, "far", restart, deadline=3600.0)) == []
    assert late(1.5, Action(1.0, "far", restart)) == []
    assert late(5.0, Action(1.0, "far", restart, deadline=4.0)) == [("ND-90-22", 4.0)]


def unsteady(late_ns: float, at: float, **more: float) -> list[tuple[str, float]]:
    """Of an action from 1.0 s to 1.2 s, where a point of the series has a generator that was late by so much."""
    runner = TrialRun.__new__(TrialRun)
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


class Dying:
    """A DUT that counts as dead only the second time that one asks."""

    def __init__(self) -> None:
        self.asked = 0

    def alive(self) -> bool:
        self.asked += 1
        return self.asked < 2

    def death(self) -> str:
        return "reflector ended with signal 9"


def watched(status: Status, transport: str, dut: Any) -> Error | None:
    """What a run ended by, when the first word of the core is this status."""
    runner: Any = TrialRun.__new__(TrialRun)
    runner.around = SimpleNamespace(
        live=SimpleNamespace(state=lambda _: None, log=lambda _: None),
        interrupts=SimpleNamespace(count=0),
        actions=(),
        plan={"phases": {"measure": 1.0}},
        abort_on_fail=False,
    )
    runner.variant = SimpleNamespace(profile={"transport": {transport: {}}})
    runner.duts, runner.reports = {"far": dut}, {"far": DutReport(driver="reflector", version="1", host="")}
    runner.series, runner._done, runner._network, runner._hosts = [], [], None, []
    events = Subscription()
    events.put(Event(status=status))
    failure: Error | None = runner._watch(None, events)
    return failure


LOST_PORT = Status(state="done", error={"code": "ND-91-01", "what": "its link went down"})


def test_a_death_is_named_that_the_core_tells_of_before_the_process_counts_as_dead() -> None:
    failure = watched(LOST_PORT, "dpdk", Dying())
    assert failure is not None
    assert (failure.code, failure.at) == ("ND-91-23", "far")
    # only an error of ports may come from a death, and only where one may share memory with a DUT
    assert watched(Status(state="done"), "dpdk", Dying()) is None
    assert watched(LOST_PORT, "sockets", Dying()) is None


def test_a_lost_port_is_itself_where_every_dut_lives() -> None:
    dut = SimpleNamespace(alive=lambda: True)
    began = time.monotonic()
    assert watched(LOST_PORT, "dpdk", dut) is None
    assert time.monotonic() - began >= 1.0
