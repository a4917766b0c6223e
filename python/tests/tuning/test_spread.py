"""Trials that are spread over hosts: each on one of them, told as on all; and what hosts say otherwise."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from netdyno.errors import Error
from netdyno.experiment.measurer import SettingMeasurer
from netdyno.experiment.record import Record
from netdyno.stats.observation import Metric, Observation, Setting
from netdyno.tuning.hosts.screen_run import contradicting, words
from netdyno.tuning.hosts.spread import REFERENCE, SpreadBench
from netdyno.tuning.screen import Screening, judge_walks, walk
from netdyno.tuning.simulated import SimulatedBench
from netdyno.tuning.space import Space, axis

METRICS = {
    "rate": Metric("rate", "/s", "higher"),
    "failed": Metric("failed", "", "lower", zero_is_best=True),
}
QUEUE = "net.core.somaxconn"


@dataclass
class Host:
    """A host of some speed; a setting makes it that many times as fast, and drops as many."""

    speed: float
    drops: float = 0.0
    valid: bool = True
    seeds: list[int] = field(default_factory=list)

    @property
    def metrics(self) -> Mapping[str, Metric]:
        return METRICS

    def measure(self, setting: Setting, seed: int) -> Observation:
        self.seeds.append(seed)
        factor = float(setting.get("factor", 1))
        seen = {"rate": self.speed * factor, "failed": self.drops + (factor - 1)}
        return Observation(
            setting, seen if self.valid else {}, {}, self.valid, "" if self.valid else "no route"
        )


def spread(tmp_path: Path, **hosts: Host) -> SpreadBench:
    made = SpreadBench(hosts, METRICS, lambda seed: seed)
    record = Record(tmp_path / "trials.jsonl", {})
    made.refer(record, 5)
    record.close()
    return made


def test_a_setting_is_told_alike_on_whichever_host_it_runs(tmp_path: Path) -> None:
    slow, fast = Host(100.0, 2.0), Host(10_000.0, 6.0)
    bench = spread(tmp_path, slow=slow, fast=fast)
    assert (len(slow.seeds), len(fast.seeds)) == (REFERENCE, REFERENCE)
    # of what has ratios the geometric mean, of counts the mean
    assert bench.whole == {"rate": pytest.approx(1000.0), "failed": 4.0}
    seen = [bench.measure({"factor": 3}, seed) for seed in range(4)]
    assert [one.metrics["rate"] for one in seen] == [pytest.approx(3000.0)] * 4
    assert [one.metrics["failed"] for one in seen] == [6.0] * 4
    # in turn, and the trial says where
    assert [slow.seeds[REFERENCE:], fast.seeds[REFERENCE:]] == [[0, 2], [1, 3]]
    assert [one.counters for one in seen[:2]] == [{"fleet.slow": 1.0}, {"fleet.fast": 1.0}]


def test_a_host_whose_baseline_does_not_work_ends_it_by_name(tmp_path: Path) -> None:
    with pytest.raises(Error, match=r"ND-90-30.*host b.*no route"):
        spread(tmp_path, a=Host(1.0), b=Host(1.0, valid=False))


@dataclass
class Reversed:
    """The simulation, on which everything acts the other way."""

    bench: SimulatedBench

    @property
    def metrics(self) -> Mapping[str, Metric]:
        return self.bench.metrics

    def measure(self, setting: Setting, seed: int) -> Observation:
        seen = self.bench.measure(setting, seed)
        rate = seen.metrics.get("throughput")
        return seen if not rate else Observation(setting, {**seen.metrics, "throughput": 1e14 / rate}, {})


@pytest.mark.parametrize("contrary", [True, False])
def test_a_host_on_which_a_parameter_acts_the_other_way_is_named(tmp_path: Path, contrary: bool) -> None:
    plain = SimulatedBench()
    known = {t.name: t for t in plain.tunables}
    names = ["net.ipv4.tcp_wmem.max", "net.ipv4.tcp_congestion_control"]
    space = Space(tuple(axis(known[n], plain.baseline.get(n), name=n, memory=None) for n in names), ())
    metrics = [plain.metrics["throughput"]]

    def screened(name: str, bench: SettingMeasurer) -> Screening:
        record = Record(tmp_path / f"{name}.jsonl", {})
        found = judge_walks(space, metrics, walk(bench, space, record, 12, 1), 0.5)
        record.close()
        return found

    whole = screened("whole", plain)
    assert whole.survivors() == names
    against = contradicting(whole, {"a": whole, "c": screened("c", Reversed(plain) if contrary else plain)})
    assert against == ({"throughput": {name: ["c"] for name in names}} if contrary else {})
    told = [f"throughput: c contradicts the effect of {name}" for name in names]
    assert words(against) == (told if contrary else [])
