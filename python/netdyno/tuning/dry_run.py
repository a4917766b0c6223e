"""What the kernel would make of a plan, without writing anything of it.

What each namespace has of its own is tried in a new network namespace, which nobody is in and which goes at
once: the kernel refuses there what it would refuse in the place of the plan. Of the whole machine and of
devices the kernel tells no bounds but those of some devices; what is beyond an int is refused by most files.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from netdyno.errors import Error
from netdyno.stats.observation import Value
from netdyno.system import namespace
from netdyno.tuning import access, host_state
from netdyno.tuning.plan import Change, Plan, Step
from netdyno.tuning.registry import several

INT_MAX = (1 << 31) - 1
LONG = ("net.ipv4.tcp_mem", "net.ipv4.udp_mem", "fs.file-max")
"""Files of the whole machine whose numbers are longer than an int."""
CONGESTION = "net.ipv4.tcp_congestion_control"


@dataclass(frozen=True)
class DryRun:
    """What is known of a plan before it is carried out."""

    changes: tuple[Change, ...]
    """With what the kernel would make of each, where that is known."""
    unknown: tuple[str, ...]
    """Parameters of which it is known only when they are written."""


def dry_run(plan: Plan) -> DryRun:
    """Try a plan. Raises what the kernel would refuse."""
    tried = [step for step in plan.steps if _can_be_tried(step)]
    faults: list[Error] = []
    got: dict[str, Value] = {}
    try:
        got = dict(_made(tried, plan.where, faults))
    except PermissionError:
        tried = []
    unknown = []
    for step in plan.steps:
        if step in tried:
            continue
        limits = _limits(step)
        for key, change in zip(step.values, step.changes, strict=True):
            if _beyond_int(step, change.new):
                fix = f"The file holds an int: {INT_MAX} at most"
                faults.append(_refused(change, "Invalid argument", fix))
            elif key not in limits:
                unknown.append(change.name)
    if faults:
        raise several(faults)
    changes = tuple(replace(one, got=got.get(one.name)) for one in plan.changes)
    return DryRun(changes, tuple(unknown))


def _can_be_tried(step: Step) -> bool:
    """Whether a namespace of its own answers for the place of a step."""
    # which algorithms may be chosen is another matter in the machine's namespace
    return (
        step.target.kind == "sysctl"
        and host_state.is_of_namespace(step.target.path)
        and not (step.target.path == CONGESTION and step.where is None)
    )


def _made(steps: Sequence[Step], where: str | None, faults: list[Error]) -> Iterator[tuple[str, Value]]:
    """What the kernel makes of these steps, by name; what it refuses goes to `faults`."""
    before = {step.target: _now(step) for step in steps}

    def work() -> list[tuple[str, Value]]:
        _leave()
        made = list[tuple[str, Value]]()
        for step in steps:
            way = access.kind(step.target)
            try:
                # numbers that are not changed count, too
                way.write(step.target, before[step.target])
                way.write(step.target, step.values)
                now = way.read(step.target)
            except OSError as e:
                names = replace(step.changes[0], name=", ".join(c.name for c in step.changes))
                values = ", ".join(str(change.new) for change in step.changes)
                faults.append(_refused(replace(names, new=values), e.strerror or str(e)))
                continue
            for key, change in zip(step.values, step.changes, strict=True):
                value = access.at(now, key)
                if value is not None:
                    made.append((change.name, value))
        return made

    yield from namespace.in_thread(work) if steps else ()


def _leave() -> None:
    """Put this thread into a new network namespace."""
    if ctypes.CDLL(None, use_errno=True).unshare(namespace.CLONE_NEWNET):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def _now(step: Step) -> Mapping[str, Value]:
    return access.within(step.where, lambda: access.kind(step.target).read(step.target))


def _limits(step: Step) -> Mapping[str, tuple[int, int]]:
    """Bounds that a device or a process tells: the plan is within them."""
    try:
        return access.within(step.where, lambda: access.kind(step.target).limits(step.target))
    except OSError:
        return {}


def _beyond_int(step: Step, value: Value) -> bool:
    return (
        step.target.kind == "sysctl"
        and isinstance(value, int)
        and step.target.path not in LONG
        and not -INT_MAX - 1 <= value <= INT_MAX
    )


def _refused(change: Change, why: str, fix: str = "") -> Error:
    what = f"the kernel would refuse {change.name} = {change.new}: {why}"
    return Error("ND-92-33", what, at=change.name, fix=fix or "See `netdyno tune params` for what it takes")
