from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from netdyno.core.daemon import program
from netdyno.errors import Error
from netdyno.experiment.record import Record
from netdyno.stats.observation import Metric, Observation, Setting
from netdyno.system.interrupt import interrupted
from netdyno.tuning import tunable_bench
from netdyno.tuning.bench import NamespaceBench, Spec
from netdyno.tuning.registry import registry
from netdyno.tuning.simulated import METRICS
from netdyno.tuning.space import Space, axis
from netdyno.tuning.tunable_bench import (
    ALLOWED,
    CONGESTION,
    CheckedBench,
    TunableSet,
    machine,
    narrowed,
    ordered,
    tunables_of,
)

DEFAULT, MAX = "net.ipv4.tcp_wmem.default", "net.ipv4.tcp_wmem.max"
STARTS = {"net.ipv4.tcp_wmem.min": 4096, DEFAULT: 16_384, MAX: 4 << 20}


class Bench:
    def __init__(self, fails: Error | None = None) -> None:
        self.fails, self.asked = fails, 0

    @property
    def metrics(self) -> Mapping[str, Metric]:
        return METRICS

    def measure(self, setting: Setting, seed: int) -> Observation:
        self.asked += 1
        if self.fails:
            raise self.fails
        return Observation(setting, {}, {})


def test_bounds_keep_what_parameters_ask_of_each_other() -> None:
    known = registry()
    there = TunableSet({n: known.find(n) for n in (DEFAULT, MAX)}, STARTS)
    alone = narrowed(known, there, [MAX])[MAX]
    assert alone.low == STARTS[DEFAULT]
    alone = narrowed(known, there, [DEFAULT])[DEFAULT]
    assert (alone.low, alone.high) == (max(known.find(DEFAULT).low or 0, 4096), STARTS[MAX])
    # of two that are tried together neither bounds the other
    both = narrowed(known, there, [DEFAULT, MAX])
    assert both[MAX].low == known.find(MAX).low


PORTS = ("net.ipv4.ip_local_port_range.low", "net.ipv4.ip_local_port_range.high")
RMEM = tuple(f"net.ipv4.tcp_rmem.{part}" for part in ("max", "min", "default"))


@given(st.lists(st.floats(0, 1), min_size=5, max_size=5))
def test_what_must_be_below_another_is_so_wherever_one_looks(places: list[float]) -> None:
    known, names = registry(), (*PORTS, *RMEM)
    axes = (axis(known.find(name), 6 << 20 if name == RMEM[0] else None) for name in names)
    tried = Space(tuple(axes), ordered(known, names))
    point = dict(zip(names, places, strict=True))
    setting = {a.name: a.start for a in tried.axes} | tried.setting(point)
    faults = [
        fault
        for name, value in setting.items()
        for fault in known.faults(name, value, lambda condition: condition.holds(setting.get))
    ]
    assert faults == []
    # the upper ones are what was asked for
    assert setting[RMEM[0]] == tried.axes[2].value(point[RMEM[0]])
    assert ordered(known, [PORTS[0], RMEM[0], RMEM[1]]) == ()


def test_what_contradicts_itself_is_a_trial_that_failed() -> None:
    bench = Bench()
    checked = CheckedBench(bench, registry(), STARTS)
    seen = checked.measure({DEFAULT: 8 << 20}, 1)
    assert not seen.valid
    assert "refused" in seen.why
    assert bench.asked == 0
    assert checked.measure({DEFAULT: 8 << 20, MAX: 16 << 20}, 1).valid


def test_what_the_kernel_refuses_is_a_trial_that_failed_and_nothing_else_is() -> None:
    seen = CheckedBench(Bench(Error("ND-92-33", "it could not be set")), registry(), STARTS).measure({}, 1)
    assert (seen.valid, seen.why) == (False, "refused: it could not be set")
    with pytest.raises(Error, match="no program"):
        CheckedBench(Bench(Error("ND-92-23", "there is no program")), registry(), STARTS).measure({}, 1)


def test_a_disturbed_trial_does_not_count_and_is_measured_again(tmp_path: Path) -> None:
    class Disturbed(Bench):
        def measure(self, setting: Setting, seed: int) -> Observation:
            self.asked += 1
            stolen = 50.0 if self.asked in (2, 3) else 0.0
            return Observation(
                setting, {"throughput": 1.0}, {"cpu.all": 100.0, "cpu.steal": stolen}, seconds=1
            )

    bench = Disturbed()
    with Record(tmp_path / "a.jsonl", {}) as record:
        checked = CheckedBench(bench, registry(), STARTS)
        seen = [record.fair(checked, "test", i, {}, i).observation for i in range(3)]
    # the second is disturbed, and again; the third is not
    assert [one.valid for one in seen] == [True, False, True]
    assert "steal" in seen[1].why
    assert bench.asked == 4


def test_every_congestion_control_is_asked_of_the_machine_only_where_it_is_tried() -> None:
    assert machine([MAX]) == {}
    assert "reno" in str(machine([CONGESTION])[ALLOWED])


@pytest.mark.root
def test_only_what_this_kernel_takes_can_be_tried() -> None:
    bench = NamespaceBench(Spec(workload="iperf3-tcp", server={MAX: 65_536}))
    there = tunables_of(bench)
    assert there.starts[MAX] == 65_536
    assert "net.core.rmem_max" not in there.tunables  # of the whole machine
    qdisc = there.tunables["dev.eth0.qdisc"]
    assert "pfifo_fast" in qdisc.choices
    assert set(there.tunables[CONGESTION].choices) <= set(registry().find(CONGESTION).choices)


@pytest.mark.root
def test_an_interrupt_is_no_refusal_of_a_parameter(monkeypatch: pytest.MonkeyPatch) -> None:
    @contextmanager
    def interrupting(*_: object) -> Iterator[None]:
        raise interrupted()
        yield

    monkeypatch.setattr(tunable_bench, "applied", interrupting)
    with pytest.raises(Error) as raised:
        tunables_of(NamespaceBench(Spec(workload="iperf3-tcp")))
    assert raised.value.exit_code == 105


@pytest.mark.root
def test_only_what_this_kind_of_device_takes_can_be_tried() -> None:
    try:
        program()
    except Error:
        pytest.skip("netdynod is not built")
    # a cable ends in a device of another kind than a path, whose tap has no NAPI
    cable = tunables_of(NamespaceBench(Spec(workload="iperf3-tcp"))).tunables
    way = {"a_to_b": {"delay": {"constant": "1ms"}}}
    path = tunables_of(NamespaceBench(Spec(workload="iperf3-tcp", path=way))).tunables
    assert "dev.eth0.channels_rx" in cable
    assert not {"dev.eth0.channels_rx", "dev.eth0.threaded"} & set(path)
    assert {"dev.eth0.txqueuelen", MAX} <= set(path) & set(cable)
