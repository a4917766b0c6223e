"""What a setting would change: the difference from what is, whether it may be, in which order to write."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Any

from netdyno.errors import Error
from netdyno.stats.observation import Value
from netdyno.tuning import access, host_state
from netdyno.tuning.access import Target
from netdyno.tuning.host_state import HostState, Now
from netdyno.tuning.model import Scope
from netdyno.tuning.registry import Registry, owner_of, registry, several

OF_MACHINE = "holds for the whole machine"
_FIRST = ("channels", "ring", "coalesce", "feature", "root")
"""What makes a device's queues, or the discipline of its root, anew comes before what is set of them."""


@dataclass(frozen=True)
class Change:
    """A value that is not as it should be."""

    name: str
    old: Value
    new: Value
    got: Value | None = None
    """What the kernel made of the new one, once it is written."""

    @property
    def rounded(self) -> bool:
        """Whether the kernel made something else of it."""
        return self.got is not None and str(self.got) != str(self.new)


@dataclass(frozen=True)
class Step:
    """What is written at once."""

    where: str | None
    target: Target
    values: Mapping[str, Value]
    changes: tuple[Change, ...]


@dataclass(frozen=True)
class Plan:
    """What applying a setting does."""

    where: str | None
    steps: tuple[Step, ...] = ()
    same: tuple[str, ...] = ()
    """Names that have their value already."""
    left_out: Mapping[str, str] = field(default_factory=dict)
    """Names that cannot be set here, and why."""
    advice: tuple[str, ...] = ()
    """What will change nothing, or is outside of what is tried, and why."""
    held: tuple[Step, ...] = ()
    """What would write what is the same: to keep them, though nothing of them changes."""

    @property
    def changes(self) -> tuple[Change, ...]:
        """All changes, in the order in which they are written."""
        return tuple(change for step in self.steps for change in step.changes)

    @property
    def machine(self) -> bool:
        """Whether it changes what holds outside a namespace of ours."""
        return any(step.where is None for step in self.steps)

    def document(self) -> dict[str, Any]:
        """It as JSON."""
        return {
            "where": self.where,
            "changes": [{"name": c.name, "old": c.old, "new": c.new} for c in self.changes],
            "same": list(self.same),
            "left_out": [{"name": name, "why": why} for name, why in self.left_out.items()],
            "advice": list(self.advice),
        }


def plan(
    setting: Mapping[str, Value],
    where: str | None = None,
    *,
    allow_global: bool = False,
    optional: Set[str] = frozenset(),
    known: Registry | None = None,
) -> Plan:
    """What to write for a setting to be in force. What is optional is left out where it cannot be set."""
    known = known or registry()
    found = host_state.read_states(known, setting, where)
    return planned(setting, found, host_state.reader(known, where), where, known, optional, allow_global)


def planned(
    setting: Mapping[str, Value],
    found: Mapping[str, HostState],
    now: Now,
    where: str | None,
    known: Registry,
    optional: Set[str] = frozenset(),
    allow_global: bool = False,
) -> Plan:
    """The same of a kernel that was read before, which may be another machine's."""
    left_out: dict[str, str] = {}
    faults: list[Error] = []
    for name, one in found.items():
        fault = _refusal(one, setting[name], allow_global)
        if fault is not None and name in optional:
            left_out[name] = fault.what
        elif fault is not None:
            faults.append(fault)
    wanted = {name: value for name, value in setting.items() if name not in left_out}
    then = host_state.with_setting(wanted, now)
    for name, value in wanted.items():
        faults += known.faults(name, value, lambda condition: condition.holds(then))
    if faults:
        raise several(faults)
    advice = [text for name in wanted for text in known.advice(name, lambda c: c.holds(then))]
    advice += [
        outside(found[name], value)
        for name, value in wanted.items()
        if beyond(found[name], value) and str(found[name].value) != str(value)
    ]
    changes, same = [], list[Change]()
    for name, value in wanted.items():
        old = found[name].value
        assert old is not None
        if str(old) == str(value):
            same.append(Change(name, old, value))
        else:
            changes.append(Change(name, old, value))
    steps, held = (_steps(known, found, listed, where, now) for listed in (changes, same))
    return Plan(where, steps, tuple(one.name for one in same), left_out, tuple(advice), held)


def _refusal(one: HostState, value: Value, allow_global: bool) -> Error | None:
    if one.state == "missing":
        fix = "`netdyno tune params` shows what is there"
        return Error("ND-104-43", f"{one.name} is missing here", at=one.name, fix=fix)
    if one.scope is Scope.GLOBAL and not allow_global:
        what = f"{one.name} {OF_MACHINE}"
        return Error("ND-104-42", what, at=one.name, fix="Add --global if that is meant")
    if str(one.value) == str(value):
        return None
    if one.state == "read-only":
        return Error("ND-104-43", f"{one.name} cannot be set here", at=one.name, fix="Leave it out")
    if one.limits is None or not beyond(one, value):
        return None
    what = f"{one.name} = {value} is not from {one.low} to {one.high}, which is what it takes here"
    return Error("ND-104-05", what, at=one.name, fix="Stay within these bounds")


def beyond(one: HostState, value: Value) -> bool:
    """Whether a number is outside of the bounds."""
    low, high = value if one.low is None else one.low, value if one.high is None else one.high
    return isinstance(value, int) and not int(low) <= value <= int(high)


def outside(one: HostState, value: Value) -> str:
    """That a number is none of those that are tried, and why they end there."""
    why = "; more may take too much of this machine's memory" if one.tunable.by_memory else ""
    return f"{one.name} = {value} is outside {one.low} to {one.high}, which searches stay within{why}"


def _steps(
    known: Registry, found: Mapping[str, HostState], changes: Sequence[Change], where: str | None, now: Now
) -> tuple[Step, ...]:
    grouped: dict[tuple[str | None, Target], list[tuple[str, Change]]] = {}
    for change in changes:
        one = found[change.name]
        target, key = access.target(one.tunable.access, owner_of(change.name))
        at = None if one.scope is Scope.GLOBAL else where
        grouped.setdefault((at, target), []).append((key, change))
    steps = [
        Step(at, target, {key: change.new for key, change in listed}, tuple(c for _, c in listed))
        for (at, target), listed in grouped.items()
    ]
    steps.sort(key=lambda s: _FIRST.index(s.target.path) if s.target.path in _FIRST else len(_FIRST))
    return tuple(_ordered(known, steps, now))


def _ordered(known: Registry, steps: list[Step], now: Now) -> list[Step]:
    """So that, where it can be had, what one value asks of others holds at every moment."""
    names = [change.name for step in steps for change in step.changes]
    asked = [c for name in names for kind, c in known.conditions(name) if kind == "requires"]
    # what did not hold before cannot be kept
    asked = [c for c in asked if c.holds(now) is not False]
    done: dict[str, Value] = {}
    ordered: list[Step] = []
    while steps:
        for step in steps:
            then = host_state.with_setting(done | {c.name: c.new for c in step.changes}, now)
            if all(c.holds(then) is not False for c in asked):
                break
        else:
            step = steps[0]
        steps.remove(step)
        ordered.append(step)
        done |= {c.name: c.new for c in step.changes}
    return ordered
