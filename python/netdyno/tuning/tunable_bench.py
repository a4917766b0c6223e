"""A bench as a screening or a search drives it: what can be tried on it, from which values, and what cannot
go."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from netdyno.errors import INTERRUPTED, Error
from netdyno.experiment.measurer import SettingMeasurer
from netdyno.stats.observation import Metric, Observation, Setting, Value
from netdyno.stats.pairs import DisturbanceLimits, gated
from netdyno.system import sysctl
from netdyno.tuning import host_state
from netdyno.tuning.bench import NamespaceBench, tuned_host
from netdyno.tuning.model import NOT_TAKEN, Scope, Tunable
from netdyno.tuning.registry import Registry, registry, template
from netdyno.tuning.space import Order
from netdyno.tuning.trial_setting import applied

NOT_SET = "ND-92-33"
REFUSED = (NOT_SET, "ND-104-05", "ND-104-07", "ND-104-43")
"""Errors that are about the setting, and not about the bench."""
TRIED = ("number", "choice")
"""Kinds of values that a search tries."""
CONGESTION = "net.ipv4.tcp_congestion_control"
ALLOWED = "net.ipv4.tcp_allowed_congestion_control"


@dataclass(frozen=True)
class TunableSet:
    """Tunable parameters of a bench, and their values in the baseline."""

    tunables: Mapping[str, Tunable]
    """By their names in a setting, with the bounds of its devices."""
    starts: Mapping[str, Value]
    """What they are in the baseline."""


def tunables_of(bench: NamespaceBench) -> TunableSet:
    """The tunables of the host that is tuned, as they are when nothing was set."""
    known = registry()
    with tuned_host(bench.spec, bench.notes) as space:
        seen = host_state.read_states(known, host_state.names(known, host_state.devices(space)), space)
        found = {
            name: one
            for name, one in seen.items()
            if one.state == "there"
            and one.value is not None
            and (one.scope is not Scope.GLOBAL or bench.allow_global)
            and one.tunable.values in TRIED
        }
        tunables = {n: replace(one.tunable, low=one.low, high=one.high) for n, one in found.items()}
        for name, one in found.items():
            if bench.spec.where:
                # nothing is tried on a host that others use
                tunables[name] = replace(tunables[name], choices=_available(one, space))
            elif one.tunable.choices and one.scope is not Scope.GLOBAL:
                tunables[name] = replace(tunables[name], choices=_accepted(bench, space, one))
            elif one.scope is Scope.DEVICE and not _settable(bench, space, one):
                del tunables[name]
    found = {name: found[name] for name in tunables}
    starts = {n: one.value for n, one in found.items() if one.value is not None}
    return TunableSet(tunables, starts | _values(bench, known))


def _accepted(bench: NamespaceBench, space: str | None, one: host_state.HostState) -> tuple[Value, ...]:
    """The choices that this kernel takes: it may lack some, and a namespace may not have all."""
    if one.name == CONGESTION and ALLOWED in bench.spec.machine:
        return tuple(str(bench.spec.machine[ALLOWED]).split())

    return tuple(choice for choice in one.tunable.choices if _refusal(bench, space, one.name, choice) is None)


def _available(one: host_state.HostState, space: str | None) -> tuple[Value, ...]:
    """The choices that the kernel says it has."""
    if one.name != CONGESTION:
        return one.tunable.choices
    return tuple((sysctl.read(space, ALLOWED) or str(one.value)).split())


def _settable(bench: NamespaceBench, space: str | None, one: host_state.HostState) -> bool:
    """Whether this device takes any other number: not every kind has what each parameter is about."""
    others = [value for value in (one.high, one.low) if value is not None and value != one.value]
    refusals = [_refusal(bench, space, one.name, value) for value in others]
    return not others or any(why is None or why.code != NOT_SET for why in refusals)


def _refusal(bench: NamespaceBench, space: str | None, name: str, value: Value) -> Error | None:
    try:
        with applied({name: value}, space, False, bench.notes):
            return None
    except Error as e:
        if e.exit_code == INTERRUPTED:
            raise
        return e


def narrowed(known: Registry, there: TunableSet, names: Iterable[str]) -> dict[str, Tunable]:
    """Tunables with bounds that keep what they require of those that are not tried and stay as they are."""
    wanted = set(names)
    found = {name: there.tunables[name] for name in wanted}
    for name in wanted:
        for kind, one in known.conditions(name):
            mine, other = (one.name, one.other) if one.name == name else (one.other, one.name)
            start = there.starts.get(other)
            if kind != "requires" or mine != name or other in wanted or not isinstance(start, int):
                continue
            tunable, upper = found[name], (one.compared in ("<", "<=")) == (one.name == name)
            if one.compared not in ("<", "<=", ">", ">=") or tunable.low is None or tunable.high is None:
                continue
            step = 0 if one.compared.endswith("=") else 1
            if upper:
                found[name] = replace(tunable, high=min(tunable.high, start - step))
            else:
                found[name] = replace(tunable, low=max(tunable.low, start + step))
    return found


def ordered(known: Registry, names: Iterable[str]) -> tuple[Order, ...]:
    """Which of these must be below which, all of them being tried."""
    wanted, found = set(names), {}
    for name in wanted:
        for kind, one in known.conditions(name):
            if kind != "requires" or not {one.name, one.other} <= wanted or one.compared[0] not in "<>":
                continue
            lower, upper = (one.name, one.other) if one.compared[0] == "<" else (one.other, one.name)
            found[lower, upper] = Order(lower, upper, 0 if one.compared.endswith("=") else 1)
    return tuple(found[key] for key in sorted(found))


def _values(bench: NamespaceBench, known: Registry) -> dict[str, Value]:
    """What the bench sets whatever the setting, as far as it is a tunable."""
    given = bench.spec.server if bench.spec.tuned == "server" else bench.spec.client
    return {name: value for name, value in given.items() if template(name) in known.tunables}


def machine(names: Iterable[str]) -> dict[str, str | int]:
    """What the whole machine must allow, for all of these to be tried in a namespace."""
    if CONGESTION not in names:
        return {}
    return {ALLOWED: sysctl.read(None, "net.ipv4.tcp_available_congestion_control") or ""}


@dataclass(frozen=True)
class CheckedBench:
    """Fails trials of settings that the kernel would refuse, and does not count disturbed ones."""

    bench: SettingMeasurer
    registry: Registry
    starts: Mapping[str, Value]

    @property
    def metrics(self) -> Mapping[str, Metric]:
        """Those of the bench."""
        return self.bench.metrics

    def measure(self, setting: Setting, seed: int) -> Observation:
        """One trial, unless the setting contradicts itself."""
        now = host_state.with_setting(setting, self.starts.get)
        for name, value in setting.items():
            for fault in self.registry.faults(name, value, lambda condition: condition.holds(now)):
                return Observation(setting, {}, {}, valid=False, why=NOT_TAKEN + fault.what)
        try:
            return gated(self.bench.measure(setting, seed), DisturbanceLimits())
        except Error as e:
            if e.code not in REFUSED:
                raise
            return Observation(setting, {}, {}, valid=False, why=NOT_TAKEN + e.what)
