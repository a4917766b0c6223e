"""Known settings over a grid of services and paths, from what is wanted to the experience: `tune learn`."""

from __future__ import annotations

import itertools
import platform
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from netdyno import units
from netdyno.experiment import entry
from netdyno.experiment.measurer import SettingMeasurer
from netdyno.experiment.record import folder
from netdyno.experiment.study import Study
from netdyno.lab.topology import need_root
from netdyno.stats.observation import Setting
from netdyno.system import environment
from netdyno.system.interrupt import Interrupts
from netdyno.tuning import baseline as baselines
from netdyno.tuning import benches, service
from netdyno.tuning.bench import NamespaceBench, Spec
from netdyno.tuning.host_state import scope
from netdyno.tuning.learn import GridPoint
from netdyno.tuning.learn import learn as run
from netdyno.tuning.model import Scope
from netdyno.tuning.prepared_bench import UninterruptedBench, beginning_with
from netdyno.tuning.recommend import Experience, judge
from netdyno.tuning.registry import registry
from netdyno.tuning.study_listener import StudyListener
from netdyno.tuning.tunable_bench import CheckedBench, TunableSet, machine, tunables_of

SERVICES = (
    "iperf3-tcp reverse=true seconds=3 omit=1",
    "iperf3-tcp reverse=true seconds=3 omit=1 streams=8",
    "flow-completion size=500kB flows=4 idle=500ms",
    "flow-completion size=2kB flows=10 connection=fastopen",
    "connect-burst connections=6000",
    "iperf3-udp seconds=2 rate=20M",
)
"""Bulk transfers, answers after a rest, short requests on new connections, a crowd, datagrams."""
RTTS, LOSSES, RATES = ("5ms", "30ms", "100ms"), ("0%", "0.2%", "1%"), ("50Mbit/s", "300Mbit/s")
SETTINGS = (
    "bbr", "buffers", "bbr-buffers", "paper-latency", "paper-throughput", "tuned-network-latency",
    "tuned-network-throughput",
)  # fmt: skip


@dataclass(frozen=True)
class LearningRequest:
    """A grid of services and paths, and the settings to measure at each point."""

    workloads: Sequence[str] = SERVICES
    """With their options."""
    rtts: Sequence[str] = RTTS
    losses: Sequence[str] = LOSSES
    rates: Sequence[str] = RATES
    settings: Sequence[str] = SETTINGS
    """Known ones, by name."""
    baseline: baselines.Asked = ()
    """Where it differs from what the machine has."""
    pairs: int = 2
    allow_global: bool = False
    seed: int = 1
    name: str | None = None
    to: Path | None = None
    """File to write; none: where `recommend` looks."""


@dataclass(frozen=True)
class LearningOutcome:
    """The experience from a grid, and how well it predicts."""

    experience: Experience
    judgement: Mapping[str, Any] | None
    to: Path
    """Where it lies."""


def learn(request: LearningRequest, listener: StudyListener, interrupts: Interrupts) -> LearningOutcome:
    """Measure the grid and keep what it shows. Call again to resume after an interrupt."""
    specs = _grid(request)
    baselines.check(request.baseline)
    need_root()
    first, _ = next(iter(specs.values()))
    base = baselines.baseline(request.baseline, first, request.allow_global, lambda _: True)
    for said in base.remarks():
        listener.note(said)
    needed = machine(registry().tunables) if request.allow_global else {}
    made = {
        place: beginning_with(
            NamespaceBench(
                spec.model_copy(update={"machine": spec.machine | needed}),
                allow_global=request.allow_global,
                # where the load cannot work at one place, it may at others
                failures=None,
            ),
            base,
        )
        for place, (spec, _) in specs.items()
    }
    there = tunables_of(next(iter(made.values())))
    chosen = _settings(request.settings, there, listener)
    places = [GridPoint(p, next(iter(b.metrics)), {"rtt": specs[p][1]}) for p, b in made.items()]
    plan = {
        "places": [p.name for p in places], "settings": chosen, "pairs": request.pairs, "seed": request.seed,
        "baseline": dict(base.values), "kernel": platform.release(),
    }  # fmt: skip
    study = Study.of("learn", "grid", plan, request.name)

    def bench(place: GridPoint) -> SettingMeasurer:
        return UninterruptedBench(CheckedBench(made[place.name], registry(), there.starts), interrupts)

    measured = {name: metric for one in made.values() for name, metric in one.metrics.items()}
    with entry.open_entry(study, measured, leg=lambda trial: trial.phase.removesuffix(" again")) as kept:
        count = len(places) * request.pairs * (1 + len(chosen))
        listener.note(f"{study.name}: {count} trials, {len(places)} places, {', '.join(chosen)}")
        firsts = {m.name: m for b in made.values() for m in list(b.metrics.values())[:1]}
        listener.begun(kept.record, count, list(firsts.values()))
        names = {name for setting in chosen.values() for name in setting}
        starts = {name: value for name, value in there.starts.items() if name in names} | dict(base.values)
        found = run(
            places, bench, chosen, kept.record, _machine(),
            pairs=request.pairs, seed=request.seed, starts=starts,
        )  # fmt: skip
        listener.over(kept.record)
        to = request.to or folder() / "experience.json"
        found.write(to)
        judgement = judge(found).document() if found.contexts else None
        kept.finish(
            {"experience": asdict(found), "judgement": judgement}, [],
            finding=f"{len(found.contexts)} contexts, {len(chosen)} settings",
        )  # fmt: skip
    return LearningOutcome(found, judgement, to)


def _grid(request: LearningRequest) -> dict[str, tuple[Spec, float]]:
    """The benches of a grid with their round trips in seconds, by name."""
    found = {}
    points = itertools.product(request.workloads, request.rtts, request.losses, request.rates)
    for words, rtt, loss, rate in points:
        kind, *options = words.split()
        # half of the round trip each way
        trip = units.seconds(units.TIME.text(rtt, "--rtt"))
        way = f"delay={trip * 1e6 / 2:g}us,loss={loss},rate={rate}"
        found[f"{words}, {rtt}, {loss}, {rate}"] = benches.spec(kind, options, way), trip
    return found


def _settings(names: Sequence[str], there: TunableSet, listener: StudyListener) -> dict[str, Setting]:
    """Known settings, without what cannot be set here; those of which nothing is left are left out."""
    found: dict[str, Setting] = {}
    for name in names:
        whole = service.on_devices(registry(), service.find_setting(name).values, [benches.DEVICE])
        kept = {n: v for n, v in whole.items() if _takes(there, n, v)}
        if out := [n for n in whole if n not in kept]:
            listener.note(f"{name}: without {', '.join(out)}, which cannot be set in a namespace here")
        if {n: v for n, v in kept.items() if there.starts.get(n) != v}:
            found[name] = kept
        else:
            listener.note(f"{name} skipped: nothing of it can be set here")
    return found


def _takes(there: TunableSet, name: str, value: object) -> bool:
    """Whether a namespace here has it for itself, and takes the value: the machine is left alone."""
    tunable = there.tunables.get(name)
    if tunable is None or scope(tunable) is Scope.GLOBAL:
        return False
    return not tunable.choices or value in tunable.choices


def _machine() -> Mapping[str, object]:
    here = environment.collect()
    return {key: here[key] for key in ("cpu", "memory_bytes", "kernel", "distribution", "hypervisor")}
