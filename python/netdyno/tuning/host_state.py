"""What the kernel here makes of the registry: what is there, what it is now, and whom it holds for."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Literal

from netdyno.stats.observation import Value
from netdyno.system import namespace, sysctl
from netdyno.tuning import access
from netdyno.tuning.access import files, process
from netdyno.tuning.model import Scope, Tunable
from netdyno.tuning.registry import DEVICE, PROCESS, Registry, owner_of

Now = Callable[[str], Value | None]
"""Values by name, None where there is none."""
State = Literal["there", "read-only", "missing"]


@dataclass(frozen=True)
class HostState:
    """A tunable as it is here."""

    name: str
    tunable: Tunable
    scope: Scope
    """As this kernel has it."""
    state: State
    value: Value | None
    low: int | None
    high: int | None
    """Bounds, with those of the device."""
    limits: tuple[int, int] | None = None
    """Of the device or process: nothing else is taken."""


def devices(where: str | None) -> list[str]:
    """The network devices of a namespace, but loopback and those of which `odd_devices` tells."""
    return [name for name in _devices(where) if namespace.is_interface(name)]


def odd_devices(where: str | None) -> list[str]:
    """Devices that are not tuned, as their names have characters that rules of udev or a shell read."""
    return [name for name in _devices(where) if not namespace.is_interface(name)]


def _devices(where: str | None) -> list[str]:
    return access.within(where, lambda: sorted(p.name for p in files.DEVICES.iterdir() if _is_device(p.name)))


def servers(where: str | None) -> list[str]:
    """The programs of a namespace that listen for connections, by name."""
    return access.within(where, process.names)


def names(registry: Registry, interfaces: Iterable[str], programs: Iterable[str] = ()) -> list[str]:
    """Every name that a setting could have with these devices and programs."""
    plain = [name for name in registry.tunables if "*" not in name]
    of = {
        begin: [name for name in registry.tunables if name.startswith(f"{begin}*")]
        for begin in (DEVICE, PROCESS)
    }
    owned = ((DEVICE, interfaces), (PROCESS, programs))
    return [
        *plain,
        *(name.replace("*", one) for begin, those in owned for one in those for name in of[begin]),
    ]


def read_states(registry: Registry, wanted: Iterable[str], where: str | None = None) -> dict[str, HostState]:
    """Tunables by name, as they are in a namespace. What is of the whole machine is looked at from here."""
    wanted = list(wanted)
    scopes = {name: scope(registry.find(name)) for name in wanted}
    machine = [name for name in wanted if scopes[name] is Scope.GLOBAL]
    others = [name for name in wanted if scopes[name] is not Scope.GLOBAL]
    found = {name: _one(registry, name, scopes[name]) for name in machine}
    found |= access.within(where, lambda: {n: _one(registry, n, scopes[n]) for n in others})
    return {name: found[name] for name in wanted}


def reader(registry: Registry, where: str | None) -> Now:
    """What conditions ask for: a value by name, each read once; None where there is none."""
    known: dict[str, Value | None] = {}

    def now(name: str) -> Value | None:
        if name not in known:
            if name in registry.tunables or name.startswith((DEVICE, PROCESS)):
                known[name] = read_states(registry, [name], where)[name].value
            else:
                known[name] = sysctl.read(where, name)
        return known[name]

    return now


def scope(tunable: Tunable) -> Scope:
    """Whom a value holds for with this kernel: newer ones have more of it in each namespace."""
    if tunable.access.kind != "sysctl":
        return tunable.scope
    of_namespaces = _of_namespaces()
    if of_namespaces is None or not (files.PROC / tunable.access.path.replace(".", "/")).exists():
        return tunable.scope
    return Scope.NAMESPACE if tunable.access.path in of_namespaces else Scope.GLOBAL


def is_of_namespace(path: str) -> bool:
    """Whether each namespace of this kernel has a value of its own; not known without the rights to look."""
    return path in (_of_namespaces() or ())


@cache
def _of_namespaces() -> frozenset[str] | None:
    """Kernel parameters that a namespace has of its own; None without the rights to make one and look."""
    if os.geteuid() != 0:
        return None

    def fresh() -> frozenset[str]:
        if ctypes.CDLL(None, use_errno=True).unshare(namespace.CLONE_NEWNET):
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))
        base = files.PROC / "net"
        return frozenset(
            str(path.relative_to(files.PROC)).replace("/", ".")
            for path in base.rglob("*")
            if path.is_file() and path.stat().st_mode & 0o200
        )

    try:
        return namespace.in_thread(fresh)
    except OSError:
        return None


def _one(registry: Registry, name: str, scope: Scope) -> HostState:
    tunable = registry.find(name)
    target, key = access.target(tunable.access, owner_of(name))
    way = access.kind(target)
    try:
        value = access.at(way.read(target), key)
        limits = way.limits(target).get(key)
        writable = value is not None and way.writable(target, key)
    except OSError:
        value, limits, writable = None, None, False
    low, high = tunable.low, tunable.high
    if limits and low is not None and high is not None:
        # a device may take less than the registry's least
        low, high = min(max(low, limits[0]), limits[1]), min(high, limits[1])
        writable = writable and low <= high and limits[0] < limits[1]
    state: State = "missing" if value is None else "there" if writable else "read-only"
    return HostState(name, tunable, scope, state, value, low, high, limits)


def _is_device(name: str) -> bool:
    return name != "lo" and (files.DEVICES / name / "queues").is_dir()


def with_setting(setting: Mapping[str, Value], now: Now) -> Now:
    """Values as they would be with a setting in force."""
    return lambda name: setting[name] if name in setting else now(name)
