"""Benches and settings as people name them, and what can be set on a bench."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from netdyno import assignments, config
from netdyno.errors import Error
from netdyno.experiment import presets
from netdyno.experiment.measurer import SettingMeasurer
from netdyno.experiment.record import Record
from netdyno.lab.workload import WORKLOADS
from netdyno.stats.observation import Metric, Observation, Setting
from netdyno.system.journal import journal
from netdyno.tuning import host_state, plan, service
from netdyno.tuning.bench import HostName, Spec, path, tuned_host, workload
from netdyno.tuning.host_state import HostState
from netdyno.tuning.model import Scope
from netdyno.tuning.registry import PROCESS, registry
from netdyno.tuning.trial_setting import applied, without_processes

BASELINE = "baseline"
DEVICE = "eth0"
"""The interface of each host of a bench."""


def spec(
    bench: str,
    options: Sequence[str] | Mapping[str, Any] = (),
    way: str | None = None,
    tuned: HostName = "server",
    service: OwnService | None = None,
) -> Spec:
    """The bench of a workload with its options, like `seconds=3`, or of a file, and the path to it.

    `service`: commands, metrics and place of the workload `command`.
    """
    said = options if isinstance(options, Mapping) else assignments.options(options, "--set")
    given: dict[str, Any] = {**(service.options if service else {}), **said}
    if presets.is_word(bench):
        plain = {"workload": bench, "options": given, "path": path(way) if way else None, "tuned": tuned}
        made = config.check(Spec, plain | {"where": service.where if service else None}, "ND-104-24", bench)
    else:
        read = config.check(Spec, config.read(Path(bench)), "ND-104-24", bench)
        changed: dict[str, Any] = {"options": {**read.options, **given}}
        if way:
            changed["path"] = path(way)
        made = read.model_copy(update=changed)
    workload(made)
    return made


def names() -> Iterator[str]:
    """Names of workloads, each of which is a bench."""
    return iter(WORKLOADS)


@dataclass(frozen=True)
class OwnService:
    """A service that is loaded and served by commands."""

    options: Mapping[str, Any]
    """Of the workload `command`."""
    where: str | None = None
    """As in `Spec.where`."""


@dataclass(frozen=True)
class ChosenSetting:
    """A setting resolved for a bench."""

    name: str
    setting: Setting
    left_out: Mapping[str, str] = field(default_factory=dict)
    """What a known setting has that cannot be set on the bench, and why."""
    outside: Sequence[str] = ()
    """Numbers beyond those that are tried, in words."""


def choose(
    asked: str | Setting,
    there: Mapping[str, HostState],
    allow_global: bool,
    devices: Sequence[str] = (DEVICE,),
) -> ChosenSetting:
    """`baseline`, a known setting like `paper-latency`, a file, `NAME=VALUE,NAME=VALUE`, or the values.

    Of a known setting, what cannot be set on the bench is left out; all else is refused.
    """
    text = asked if isinstance(asked, str) else assignments.text(asked)
    if not asked or asked == BASELINE:
        return ChosenSetting(BASELINE, {})
    said = service.written(asked, registry()) if isinstance(asked, str) else service.WrittenSetting(asked)
    found = service.on_devices(registry(), said.values, devices)
    optional = service.optional(registry(), said, devices)
    left_out: dict[str, str] = {name: f"is left out: {why}" for name, why in said.left_out.items()}
    for name in found:
        # whether a program of that name runs shows once the server has started
        why = "" if name.startswith(PROCESS) else _refused(there.get(name), allow_global)
        if why and name not in optional:
            fix = "Add --global" if "--global" in why else "`netdyno tune params` shows what there is"
            raise Error("ND-104-43", f"{name} {why}", at=text, fix=fix)
        if why:
            left_out[name] = why
    chosen = {name: value for name, value in found.items() if name not in left_out}
    outside = [
        plan.outside(there[n], v) for n, v in chosen.items() if n in there and plan.beyond(there[n], v)
    ]
    return ChosenSetting(text, chosen, left_out, outside)


def setting(text: str, devices: Sequence[str] = (DEVICE,)) -> Setting:
    """All that a setting says, whether or not it can be set on a bench."""
    if text == BASELINE:
        return {}
    return service.on_devices(registry(), service.written(text, registry()).values, devices)


def _refused(one: HostState | None, allow_global: bool) -> str:
    if one is None or one.state == "missing":
        return "is missing on this bench"
    if one.scope is Scope.GLOBAL and not allow_global:
        return "holds for the whole machine, and --global is not given"
    return "cannot be set on this bench" if one.state == "read-only" else ""


def tunables(made: Spec) -> dict[str, HostState]:
    """Everything that the tuned host of a bench has, as it is at the baseline."""
    values = without_processes(made.server if made.tuned == "server" else made.client)
    with tuned_host(made, journal(), with_path=False) as space, applied(values, space, False, journal()):
        known = registry()
        return host_state.read_states(known, host_state.names(known, devices(made)), space)


def devices(made: Spec) -> list[str]:
    """The interfaces of the tuned host."""
    return host_state.devices(made.trial_namespace) if made.where else [DEVICE]


def mechanism(a: Setting, b: Setting) -> dict[str, tuple[str, ...]]:
    """The counters that tell how a difference between settings comes about, by parameter."""
    differing = [name for name in {**a, **b} if a.get(name) != b.get(name)]
    return {name: registry().find(name).counters for name in differing}


@dataclass
class RecordedBench:
    """A bench whose trials are kept on disk as they come, and not measured twice.

    A trial is known by its seed, its setting and how often it was asked for before, so that one which is
    measured again moves no other: with more to spare the same comparison goes on.
    """

    bench: SettingMeasurer
    record: Record
    phase: str
    _asked: Counter[tuple[int, str]] = field(default_factory=Counter)

    @property
    def metrics(self) -> Mapping[str, Metric]:
        """Those of the bench."""
        return self.bench.metrics

    def measure(self, setting: Setting, seed: int) -> Observation:
        """One trial, from the disk if it is there."""
        which = seed, json.dumps(dict(setting), sort_keys=True)
        index = self._asked[which]
        self._asked[which] += 1
        return self.record.measure(self.bench, f"{self.phase} {seed}", index, setting, seed).observation
