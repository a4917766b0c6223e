"""A trial of switches and of chains: what makes it invalid, what is measured then, and what ends the study."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from netdyno.errors import Error
from netdyno.lab.workload import Site
from netdyno.lab.workload.base import WorkloadResult
from netdyno.stats.observation import Observation
from netdyno.switch import trial

OVERFLOWS = {"server/UdpRcvbufErrors": 40.0, "server/UdpInDatagrams": 960.0}


@dataclass
class Load:
    """A workload that measures at once."""

    result: WorkloadResult | Error
    client_stays: bool = False
    calls: list[str] = field(default_factory=list)

    def serve(self, site: Site) -> None:
        self.calls.append("serve")

    def run(self, site: Site, seed: int) -> WorkloadResult:
        self.calls.append("run")
        if isinstance(self.result, Error):
            raise self.result
        return self.result

    def stop(self) -> None:
        self.calls.append("stop")


class Paths:
    """Links, of which an impaired one drops packets that it was not asked to."""

    def __init__(self, unasked: int) -> None:
        self.unasked = itertools.count(7, unasked).__next__

    def draw_anew(self, seed: int) -> int:
        return seed + 1


@dataclass
class Machine:
    lost: bool = False

    def must_answer(self) -> None:
        if self.lost:
            raise Error("ND-91-40", "the machine is lost")


@dataclass
class Through(trial.Forwarder):
    ended: str = ""
    missed: str = ""
    machines: Any = (None, None)

    def start(self) -> None: ...

    def stop(self) -> dict[str, float]:
        return {"switch.dropped": 5.0}

    def dead(self) -> str:
        return self.ended

    def bypassed(self, counters: Mapping[str, float]) -> str:
        return self.missed if counters["switch.dropped"] else ""

    def metrics(self, counters: Mapping[str, float]) -> Mapping[str, float]:
        return {"cpu_per_packet": 1e-6}


def measured(
    load: Load | None = None, through: trial.Forwarder | None = None, unasked: int = 0
) -> Observation:
    load = load or Load(WorkloadResult({"loss": 0.04}))
    with ExitStack() as stack:
        seen = trial.run(
            load, Site(None, None, "", Path()), Paths(unasked), {}, through or Through(), {"a": 1}, 3, 41,  # type: ignore[arg-type]
            stack, 1.0,
        )  # fmt: skip
        assert load.calls == ["serve", "run"], "it goes with what is tested"
    assert load.calls[-1] == "stop"
    return seen


def test_a_trial_without_a_fault_counts() -> None:
    seen = measured()
    assert seen.valid and not seen.why and seen.path_seed == 42 and seen.counters["switch.dropped"] == 5
    assert seen.metrics == {"loss": 0.04, "cpu_per_packet": 1e-6}


@pytest.mark.parametrize(
    ("fault", "why", "keeps"),
    [
        ({"load": Load(WorkloadResult({"loss": 0.04}, wrong="half of it ran"))}, "half of it ran", True),
        ({"load": Load(Error("ND-91-25", "nothing got through"))}, "nothing got through", False),
        ({"through": Through(ended="the switch ended")}, "the switch ended", False),
        ({"through": Through(missed="fw saw nothing")}, "fw saw nothing", False),
        ({"load": Load(WorkloadResult({"loss": 0.04}, OVERFLOWS))}, "socket buffer overflowed", True),
        ({"unasked": 1500}, "the path had no room for 1,500 packets", True),
    ],
)  # fmt: skip
def test_what_makes_a_trial_invalid(fault: dict[str, Any], why: str, keeps: bool) -> None:
    """What was measured stays only where it is of what is tested."""
    seen = measured(**fault)
    assert not seen.valid and why in seen.why
    assert ("loss" in seen.metrics) is keeps and ("cpu_per_packet" in seen.metrics) is keeps


def test_what_is_no_result_ends_the_study() -> None:
    with pytest.raises(Error, match="ND-91-01"):
        measured(Load(Error("ND-91-01", "no daemon")))
    lost = Through(machines=(None, Machine(lost=True)))
    for load in (Load(WorkloadResult({}), client_stays=True), Load(Error("ND-91-25", "nothing"))):
        with pytest.raises(Error, match="the machine is lost"):
            measured(load, lost)
        measured(Load(load.result, load.client_stays), Through(machines=(Machine(), None)))
