"""The contract of what measures: our daemon, an external tool, and simulations of both kinds of trial."""

from __future__ import annotations

import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from ports import free_port

from netdyno.experiment.measurer import Load, LoadMeasurer, SettingMeasurer, TrialContext, TrialOutcome
from netdyno.experiment.record import Record
from netdyno.experiment.runner import ExperimentRun
from netdyno.experiment.spec import load, variants
from netdyno.experiment.trial import DaemonMeasurer
from netdyno.experiment.view import NullView
from netdyno.stats.observation import Setting
from netdyno.store import Store
from netdyno.system.interrupt import Interrupts
from netdyno.system.journal import journal
from netdyno.tuning import benches
from netdyno.tuning.bench import NamespaceBench
from netdyno.tuning.benches import RecordedBench
from netdyno.tuning.prepared_bench import UninterruptedBench
from netdyno.tuning.simulated import QUEUE, SimulatedBench

from .conftest import root
from .search.test_schedule import repetition

# ---- settings


def simulated(_: Path) -> SettingMeasurer:
    return SimulatedBench()


def patient(_: Path) -> SettingMeasurer:
    return UninterruptedBench(SimulatedBench(), Interrupts())


def external(_: Path) -> SettingMeasurer:
    """A tool that is none of ours, between two namespaces."""
    return NamespaceBench(benches.spec("iperf3-tcp", ["seconds=1", "omit=0"]))


@pytest.mark.parametrize(
    ("made", "setting"),
    [
        (simulated, {QUEUE: 8192}),
        (patient, {QUEUE: 8192}),
        pytest.param(external, {"net.ipv4.tcp_congestion_control": "reno"}, marks=root),
    ],
)
def test_settings_are_measured(
    tmp_path: Path, made: Callable[[Path], SettingMeasurer], setting: Setting
) -> None:
    measurer = made(tmp_path)
    for asked in ({}, setting):
        seen = measurer.measure(asked, 1)
        assert seen.setting == asked
        assert seen.valid and not seen.why
        assert seen.metrics.keys() <= measurer.metrics.keys() and seen.metrics
        assert all(metric.better in ("higher", "lower") for metric in measurer.metrics.values())
    assert journal().open_entries == 0


def test_what_was_recorded_is_the_same_again(tmp_path: Path) -> None:
    seen = []
    for _ in range(2):
        inner = SimulatedBench()
        with Record(tmp_path / "a.jsonl", {}) as record:
            measurer: SettingMeasurer = RecordedBench(inner, record, "p")
            seen.append(measurer.measure({}, 1).metrics)
    assert seen[0] == seen[1] and inner.measured == 0


# ---- loads

PROFILE: dict[str, Any] = {
    "name": "p",
    "phases": {"warmup": "0s", "measure": "200ms", "drain": "10s"},
    "targets": {"far": "udp://127.0.0.1:9"},
    "groups": [{"name": "x", "target": "far", "model": {"stream": {"rate": "200/s"}}}],
}


@dataclass
class SimulatedLoads:
    """Everything that is sent arrives; what a leg is named for may be away."""

    asked: list[tuple[str, int]] = field(default_factory=list)

    def measure(self, asked: Load, seed: int) -> TrialOutcome:
        self.asked.append((asked.variant.name, seed))
        return TrialOutcome(repetition(1000, 0, profile=asked.variant.profile))


def around(folder: Path) -> TrialContext:
    return TrialContext("t", folder, NullView(), Interrupts(), {"phases": {"warmup": 0.0, "measure": 0.2}})


def reflected(duts: Mapping[str, Any]) -> Load:
    leg = {"name": "a", "profile": PROFILE, "duts": duts, "targets": {"far": "r.udp"}}
    (variant,) = variants(load({"name": "e", "legs": [leg]}, "e"), Path())
    return Load(variant, around(Path()))


@pytest.mark.parametrize("made", [DaemonMeasurer, SimulatedLoads])
@pytest.mark.daemon
def test_loads_are_measured(tmp_path: Path, made: Callable[[], LoadMeasurer]) -> None:
    udp, tcp = free_port(), free_port()
    asked = reflected({"r": {"driver": "reflector", "options": {"udp": udp, "tcp": tcp}}})
    outcome = made().measure(Load(asked.variant, around(tmp_path)), 1)
    assert outcome.error is None and outcome.repetition is not None
    (group,) = outcome.repetition.groups
    assert group.name == "x"
    assert 0 < group.measured.messages_delivered <= group.measured.messages_sent
    assert journal().open_entries == 0


def test_what_goes_wrong_is_in_the_outcome(tmp_path: Path) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        asked = reflected({"r": {"driver": "reflector", "options": {"tcp": port}}})
        outcome = DaemonMeasurer().measure(Load(asked.variant, around(tmp_path)), 1)
    assert outcome.repetition is None and outcome.error is not None
    assert outcome.error.code.startswith("ND-"), outcome.error
    assert journal().open_entries == 0


def test_an_experiment_goes_through_any_measurer(tmp_path: Path) -> None:
    """Schedule, store, verdict and files are the experiment's, whatever measures; each trial has a seed of its own."""
    legs = [{"name": name, "profile": PROFILE} for name in ("a", "b")]
    experiment = load({"name": "e", "legs": legs, "repeat": 3, "seed": 7}, "e")
    measurer = SimulatedLoads()
    with Store(tmp_path / "runs.sqlite") as store:
        result, folder = ExperimentRun(
            experiment=experiment, base=tmp_path, runs=tmp_path / "runs", live=NullView(),
            interrupts=Interrupts(), store=store, measurer=measurer,
        ).run()  # fmt: skip
        assert store.get(result.id).legs == result.legs
    assert [len(leg.repetitions) for leg in result.legs] == [3, 3]
    assert len({seed for _, seed in measurer.asked}) == 6
    assert (result.valid, result.error) == (True, None)
    assert (folder / "report.html").is_file()
