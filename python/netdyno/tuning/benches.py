"""Benches and settings as people name them, and what can be set on a bench."""

from __future__ import annotations

import json
import secrets
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from netdyno import config
from netdyno.errors import Error
from netdyno.experiment import presets
from netdyno.experiment.measurer import SettingMeasurer
from netdyno.experiment.record import Record
from netdyno.lab.network import Network
from netdyno.lab.workload import WORKLOADS
from netdyno.stats.observation import Metric, Observation, Setting
from netdyno.system.journal import journal
from netdyno.tuning import host_state, service
from netdyno.tuning.bench import HostName, Spec, path, topology, workload
from netdyno.tuning.host_state import HostState
from netdyno.tuning.model import Scope
from netdyno.tuning.registry import registry
from netdyno.tuning.trial_setting import applied

BASELINE = "baseline"
DEVICE = "eth0"
"""The interface of each host of a bench."""


def spec(bench: str, options: Sequence[str] = (), way: str | None = None, tuned: HostName = "server") -> Spec:
    """The bench of a workload with its options, like `seconds=3`, or of a file, and the path to it."""
    given = {}
    for text in options:
        key, equals, value = text.partition("=")
        if not key or not equals:
            fix = "Write it like seconds=3"
            raise Error("ND-104-04", f"{text!r} is no option of a workload", at="--set", fix=fix)
        given[key] = config.parse_text(value, "--set")
    if presets.is_word(bench):
        made = Spec(workload=bench, options=given, path=path(way) if way else None, tuned=tuned)
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
class ChosenSetting:
    """A setting resolved for a bench."""

    name: str
    setting: Setting
    left_out: Mapping[str, str] = field(default_factory=dict)
    """What a known setting has that cannot be set on the bench, and why."""


def choose(text: str, there: Mapping[str, HostState], allow_global: bool) -> ChosenSetting:
    """`baseline`, a known setting like `paper-latency`, a file, or `NAME=VALUE,NAME=VALUE`.

    Of a known setting, what cannot be set on the bench is left out; all else is refused.
    """
    if text == BASELINE:
        return ChosenSetting(text, {})
    found = setting(text)
    lenient = text in service.settings()
    left_out: dict[str, str] = {}
    for name in found:
        why = _refused(there.get(name), allow_global)
        if why and not lenient:
            fix = "Add --global" if "--global" in why else "`netdyno tune params` shows what there is"
            raise Error("ND-104-43", f"{name} {why}", at=text, fix=fix)
        if why:
            left_out[name] = why
    return ChosenSetting(text, {k: v for k, v in found.items() if k not in left_out}, left_out)


def setting(text: str) -> Setting:
    """All that a setting says, whether or not it can be set on a bench."""
    if text == BASELINE:
        return {}
    if "=" in text:
        pairs = (part.partition("=") for part in text.split(","))
        written: Mapping[str, Any] = {name.strip(): value.strip() for name, _, value in pairs}
    else:
        written = service.known(text).values
    return service.on_devices(registry(), written, [DEVICE])


def _refused(one: HostState | None, allow_global: bool) -> str:
    if one is None or one.state == "missing":
        return "is missing on this bench"
    if one.scope is Scope.GLOBAL and not allow_global:
        return "holds for the whole machine, and --global is not given"
    return "cannot be set on this bench" if one.state == "read-only" else ""


def tunables(made: Spec) -> dict[str, HostState]:
    """Everything that the tuned host of a bench has, as it is at the baseline."""
    with _host(made) as space:
        known = registry()
        return host_state.read_states(known, host_state.names(known, [DEVICE]), space)


@contextmanager
def _host(made: Spec) -> Iterator[str]:
    """The tuned host, without the path."""
    with ExitStack() as stack:
        plain = made.model_copy(update={"path": None})
        network = stack.enter_context(Network(topology(plain), f"t{secrets.token_hex(3)}"))
        values = made.server if made.tuned == "server" else made.client
        space = network.namespace(made.tuned)
        stack.enter_context(applied(values, space, False, journal()))
        yield space


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
