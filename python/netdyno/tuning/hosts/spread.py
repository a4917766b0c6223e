"""Trials of a search or a screening over the hosts of a fleet: each on one of them, told as on all.

Hosts differ by themselves. So each has trials of its own baseline first, and what a trial saw is told as if
its host's baseline were that of all: by their ratio, of counts by their difference.
"""

from __future__ import annotations

import math
import platform
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from netdyno.errors import Error
from netdyno.experiment import cores
from netdyno.experiment.measurer import FleetHost, LocalKernel, SettingMeasurer
from netdyno.experiment.record import Record
from netdyno.lab.topology import need_root
from netdyno.stats.estimate import mean
from netdyno.stats.observation import Metric, Observation, Setting, Value
from netdyno.system.interrupt import Interrupts
from netdyno.system.journal import journal
from netdyno.tuning import service
from netdyno.tuning.gain import centre, has_metrics
from netdyno.tuning.host_state import HostState
from netdyno.tuning.hosts.bench import HostBench
from netdyno.tuning.hosts.kernel import HostKernel, kernel
from netdyno.tuning.hosts.load import HostLoad
from netdyno.tuning.model import Scope, Tunable
from netdyno.tuning.prepared_bench import PreparedBench
from netdyno.tuning.registry import registry, template
from netdyno.tuning.study_listener import StudyListener
from netdyno.tuning.tunable_bench import TRIED, CheckedBench

REFERENCE = 2
"""Trials of each host's baseline before any other."""


@dataclass(frozen=True)
class FleetBenchRequest:
    """A load that each host of a fleet generates, and which parameters are tried there."""

    fleet: str
    load: HostLoad
    service: str | None = None
    params: Sequence[str] = ()
    metrics: Sequence[str] = ()
    """Only these; none: all that the load measures."""
    allow_global: bool = False


@dataclass
class SpreadBench:
    """Measures a setting on one host of several."""

    hosts: Mapping[str, SettingMeasurer]
    metrics: Mapping[str, Metric]
    """Those that are looked at."""
    place: Callable[[int], int]
    """Which host a seed falls to, as a number that grows with the trials."""
    reference: dict[str, dict[str, float]] = field(default_factory=dict)
    """What the baseline of each host has of each metric."""
    whole: dict[str, float] = field(default_factory=dict)
    """The same over all hosts."""

    def host(self, seed: int) -> str:
        """The host on which a trial of a seed runs."""
        names = list(self.hosts)
        return names[self.place(seed) % len(names)]

    def refer(self, record: Record, seed: int) -> None:
        """Measure the baseline of each host, or read it from the record."""
        for name, bench in self.hosts.items():
            trials = [record.fair(bench, f"{name} reference", i, {}, seed + i) for i in range(REFERENCE)]
            seen = [t.observation for t in trials if t.observation.valid]
            if not seen:
                why = trials[0].observation.why or "it lacks a metric"
                fix = "Make the load work there first: `netdyno run … --fleet NAME`"
                raise Error(
                    "ND-90-30", f"no trial of the baseline on the host {name} is valid: {why}", fix=fix
                )
            self.reference[name] = {
                metric.name: centre(metric, [o.metrics[metric.name] for o in having])
                for metric in self.metrics.values()
                if (having := [o for o in seen if has_metrics(o, metric.name)])
            }
        for name, metric in self.metrics.items():
            known = [of[name] for of in self.reference.values() if name in of]
            if known:
                ratios = not metric.zero_is_best and min(known) > 0
                self.whole[name] = math.exp(mean([math.log(v) for v in known])) if ratios else mean(known)

    def measure(self, setting: Setting, seed: int) -> Observation:
        """One trial, on the host that its seed falls to."""
        host = self.host(seed)
        seen = self.hosts[host].measure(setting, seed)
        told = {
            name: self._told(self.metrics[name], value, self.reference[host].get(name, value))
            for name, value in seen.metrics.items()
            if name in self.metrics
        }
        return replace(seen, metrics=told, counters={**seen.counters, f"fleet.{host}": 1.0})

    def _told(self, metric: Metric, value: float, own: float) -> float:
        whole = self.whole.get(metric.name, own)
        if metric.zero_is_best:
            return max(0.0, value - own + whole)
        return value * whole / own if own > 0 and whole > 0 else value


@dataclass(frozen=True)
class PreparedFleet:
    """The hosts of a fleet, each as a bench, and all as one."""

    benches: Mapping[str, HostBench]
    spread: SpreadBench
    prepared: PreparedBench
    remarks: tuple[str, ...]


def reached(fleet: str, listener: StudyListener) -> Iterator[tuple[FleetHost, HostKernel]]:
    """The hosts of a fleet with their kernels. Raises where hosts share one, or there are fewer than two."""
    hosts = cores.hosts(fleet)
    if len(hosts) < 2:
        what = "a proof over hosts needs two hosts or more: it is told by how much they differ"
        raise Error("ND-104-07", what, at=f"--fleet {fleet}", fix="Add hosts to the fleet")
    if any(isinstance(one.kernel, LocalKernel) for one in hosts):
        need_root()
    seen: dict[object, str] = {}
    for host in hosts:
        made = kernel(host, journal())
        if (other := seen.setdefault(host.kernel, host.name)) != host.name:
            what = f"the hosts {other} and {host.name} have the same kernel parameters"
            fix = "Give each its own machine or namespace"
            raise Error("ND-104-07", what, at=f"--fleet {fleet}", fix=fix)
        yield host, made
    if all(isinstance(one.kernel, LocalKernel) for one in hosts):
        listener.note("all hosts are namespaces of this machine: they share its processors and its kernel")


def prepare(
    request: FleetBenchRequest, place: Callable[[int], int], listener: StudyListener, interrupts: Interrupts
) -> PreparedFleet:
    """Each host with its kernel, and the parameters that all of them have."""
    known, found, metrics = registry(), dict[str, HostBench](), request.load.chosen(request.metrics)
    states: dict[str, Mapping[str, HostState]] = {}
    for host, made in reached(request.fleet, listener):
        found[host.name] = HostBench(host, made, request.load, request.allow_global, interrupts)
        states[host.name] = made.states()
    tunables, starts, said = _common(states, request.allow_global)
    checked = {
        name: CheckedBench(bench, known, _starts(states[name], tunables)) for name, bench in found.items()
    }
    spread = SpreadBench(checked, metrics, place)
    of_class = service.read(request.service) if request.service else None
    classes = [of_class] if of_class else [service.read(name) for name in service.classes()]
    usual = {t for one in classes for t in one.tunables}
    names = tuple(n for n in tunables if n in usual or template(n) in usual)
    label = f"{request.load.label} from {request.fleet} ({platform.release()})"
    prepared = PreparedBench(spread, label, tunables, starts, names, of_class, True)
    return PreparedFleet(found, spread, prepared, tuple(said))


def _common(
    states: Mapping[str, Mapping[str, HostState]], allow_global: bool
) -> tuple[dict[str, Tunable], dict[str, Value], list[str]]:
    """What can be tried on every host, within the bounds of all; where each begins as the first does, else
    that is said."""
    first = next(iter(states.values()))
    tunables, starts, said = dict[str, Tunable](), dict[str, Value](), list[str]()
    for name, one in first.items():
        each = [of.get(name) for of in states.values()]
        there = [s for s in each if s is not None and _can_be_tried(s, allow_global)]
        if len(there) < len(each) or one.value is None:
            continue
        lows, highs = (
            [s.low for s in there if s.low is not None],
            [s.high for s in there if s.high is not None],
        )
        tunables[name] = replace(one.tunable, low=max(lows, default=None), high=min(highs, default=None))
        starts[name] = one.value
        values = {host: of[name].value for host, of in states.items()}
        if len(set(map(str, values.values()))) > 1:
            told = ", ".join(f"{value} on {host}" for host, value in values.items())
            said.append(f"{name} differs in the baseline: {told}")
    return tunables, starts, said


def _can_be_tried(one: HostState, allow_global: bool) -> bool:
    return (
        one.state == "there"
        and one.value is not None
        and (one.scope is not Scope.GLOBAL or allow_global)
        and one.tunable.values in TRIED
    )


def _starts(states: Mapping[str, HostState], names: Iterable[str]) -> dict[str, Value]:
    return {name: value for name in names if (value := states[name].value) is not None}
