"""All tunables there are: read from `tunables/*.yaml`, found by name, and what is asked of them checked."""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from netdyno import config, paths
from netdyno.errors import Error
from netdyno.stats.observation import Value
from netdyno.system import namespace
from netdyno.tuning.access import process
from netdyno.tuning.condition import PARAMETERS, Condition
from netdyno.tuning.model import Access, AccessKind, Scale, Scope, Tunable
from netdyno.units import SIZES, TIMES

DOCS = {
    "ip-sysctl": "https://docs.kernel.org/networking/ip-sysctl.html",
    "sysctl-net": "https://docs.kernel.org/admin-guide/sysctl/net.html",
    "nf_conntrack-sysctl": "https://docs.kernel.org/networking/nf_conntrack-sysctl.html",
    "scaling": "https://docs.kernel.org/networking/scaling.html",
    "mptcp-sysctl": "https://docs.kernel.org/networking/mptcp-sysctl.html",
    "napi": "https://docs.kernel.org/networking/napi.html",
    "ethtool-netlink": "https://docs.kernel.org/networking/ethtool-netlink.html",
    "segmentation-offloads": "https://docs.kernel.org/networking/segmentation-offloads.html",
    "checksum-offloads": "https://docs.kernel.org/networking/checksum-offloads.html",
    "sysfs-class-net": "https://www.kernel.org/doc/Documentation/ABI/testing/sysfs-class-net",
    "tc": "https://man7.org/linux/man-pages/man8/tc.8.html",
    "irq-affinity": "https://docs.kernel.org/core-api/irq/irq-affinity.html",
    "fq": "https://man7.org/linux/man-pages/man8/tc-fq.8.html",
    "sysctl-fs": "https://docs.kernel.org/admin-guide/sysctl/fs.html",
    "prlimit": "https://man7.org/linux/man-pages/man2/prlimit.2.html",
    "cgroup-v2": "https://docs.kernel.org/admin-guide/cgroup-v2.html",
    "netdev-netlink": "https://docs.kernel.org/networking/netlink_spec/netdev.html",
    "ip-route": "https://man7.org/linux/man-pages/man8/ip-route.8.html",
}
_UNITS: dict[str, tuple[Mapping[str, float], float]] = {
    # K, M and G alone are of 1,024, as sysctl files, ip and systemd mean them
    "bytes": ({**SIZES, "k": 1024.0, "K": 1024.0, "M": 1024.0**2, "G": 1024.0**3}, 1.0),
    "s": (TIMES, 1e9),
    "ms": (TIMES, 1e6),
    "us": (TIMES, 1e3),
    "ns": (TIMES, 1.0),
}
DEVICE, PROCESS = "dev.", "process."
NAMES = {
    "device": "It may have letters, digits, `.`, `_`, `@` and `-`: rename the device (ip link set … name …)",
    "process": "Give the program's name as in /proc/PID/comm, or the process's number",
}
"""What helps where a name is none of a device or process, as rules of udev and a shell would read it too."""
"""How names of what a device or a process has begin."""
AS_TEXT = ("sysctl", "sysfs")
"""Ways of writing in which the kernel itself checks a number: bounds here are only those of what is tried."""
_QUANTITY = re.compile(r"\s*(-?[0-9][0-9_]*(?:\.[0-9]+)?)\s*([a-zA-Zµ%/]*)\s*")
_MASK = re.compile(r"[0-9a-fA-F]{1,8}(,[0-9a-fA-F]{1,8})*")


class Bound(config.Config):
    """A bound that depends on how much memory there is."""

    most: int
    ram: float = Field(gt=0, lt=1)
    """The share of this machine's memory that all of it may cost."""
    each: int = Field(default=1, ge=1)
    """Bytes that one unit costs."""


class Entry(config.Config):
    """A tunable as it stands in a file."""

    summary: str
    doc: str
    access: AccessKind = "sysctl"
    path: str = ""
    part: int | None = None
    values: Literal["number", "choice", "mask", "ports"] = "number"
    low: int | None = None
    high: int | Bound | None = None
    choices: tuple[int | str, ...] = ()
    choices_from: str = ""
    """A kernel parameter that lists the choices."""
    scale: Scale = Scale.LINEAR
    unit: str = ""
    default: int | str | None = None
    requires: tuple[str, ...] = ()
    conflicts: tuple[str, ...] = ()
    only_if: tuple[str, ...] = ()
    risk: str = ""
    since: str = ""
    until: str = ""
    inert: str | None = None
    inert_since: str = ""
    """The first kernel in which it is; default: all that still have it."""
    counters: tuple[str, ...] = ()
    read_at: Literal["", "listen", "socket"] = ""


@dataclass(frozen=True)
class Registry:
    """Tunables by name; those of devices with `*` in place of the device's name."""

    tunables: Mapping[str, Tunable]
    _multiple: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Files with several numbers, and the names of these in order."""

    def find(self, name: str) -> Tunable:
        """The tunable that a name in a setting means."""
        found = self.tunables.get(name) or self.tunables.get(template(name))
        owner = owner_of(name)
        valid = process.is_process if name.startswith(PROCESS) else namespace.is_interface
        if found is None:
            raise self._unknown(name)
        if owner is not None and not valid(owner):
            if owner == "*":
                raise self._unknown(name)
            of = "process" if name.startswith(PROCESS) else "device"
            what = f"{owner!r} is no name of a {of} that netdyno tunes"
            raise Error("ND-104-40", what, at=name, fix=NAMES[of])
        return found

    def has(self, name: str) -> bool:
        """Whether a name is that of a tunable, or of a file of several numbers."""
        return name in self._multiple or name in self.tunables or template(name) in self.tunables

    def read(self, written: Mapping[str, Any]) -> dict[str, Value]:
        """A setting from what people write: units, several numbers in one, `on` for 1. Names every fault."""
        setting: dict[str, Value] = {}
        faults: list[Error] = []
        for name, value in self._parts(written, faults):
            try:
                setting[name] = check(self.find(name), name, value)
            except Error as e:
                faults.append(e)
        if faults:
            raise several(faults)
        return setting

    def conditions(self, name: str) -> Iterator[tuple[str, Condition]]:
        """What a tunable asks of others: `requires`, `conflicts` or `only_if`, and the condition."""
        tunable, owner = self.find(name), owner_of(name)
        for kind in ("requires", "conflicts", "only_if"):
            for text in getattr(tunable, kind):
                yield kind, Condition.parse(text.replace("*", owner or "*"))

    def faults(self, name: str, value: Value, holds: Callable[[Condition], bool | None]) -> Iterator[Error]:
        """Why a value cannot be set beside the others; what is switched off asks for nothing."""
        if value in (0, "0", "off"):
            return
        for kind, condition in self.conditions(name):
            held = holds(condition)
            if kind == "requires" and held is False:
                fix = f"Set it so that {condition}, in the same setting"
                yield Error("ND-104-07", f"{name} = {value} asks for {condition}", at=name, fix=fix)
            elif kind == "conflicts" and held is True:
                what = f"{name} = {value} does not go with {condition}"
                yield Error("ND-104-07", what, at=name, fix="Set only one of them")

    def advice(self, name: str, holds: Callable[[Condition], bool | None]) -> Iterator[str]:
        """Why setting it changes nothing."""
        tunable = self.find(name)
        if tunable.inert:
            yield f"{name} is inert. {tunable.inert}"
        for kind, condition in self.conditions(name):
            if kind == "only_if" and holds(condition) is False:
                yield f"{name} changes something only if {condition}"

    def _parts(self, written: Mapping[str, Any], faults: list[Error]) -> Iterator[tuple[str, Any]]:
        for name, value in written.items():
            names = self._multiple.get(name)
            if names is None:
                yield name, value
                continue
            parts = str(value).split()
            if len(parts) != len(names):
                what = f"{value!r} is not {len(names)} numbers"
                fix = f"Give {len(names)} with spaces between, or one of {', '.join(names)}"
                faults.append(Error("ND-104-04", what, at=name, fix=fix))
                continue
            yield from zip(names, parts, strict=True)

    def _unknown(self, name: str) -> Error:
        near = difflib.get_close_matches(template(name), [*self.tunables, *self._multiple], 1)
        fix = "`netdyno tune params` lists them"
        if near and near[0] != name:
            of = "PROCESS" if near[0].startswith(PROCESS) else "DEVICE"
            meant = near[0].replace("*", owner_of(name) or of)
            fix = f"Did you mean {meant!r}? {fix}"
        return Error("ND-104-40", f"{name!r} is not a kernel parameter that netdyno knows", at=name, fix=fix)


def template(name: str) -> str:
    """`dev.eth0.rps_cpus` as it stands in the registry."""
    begin = next((one for one in (DEVICE, PROCESS) if name.startswith(one)), None)
    return f"{begin}*.{name.rpartition('.')[2]}" if begin and name.count(".") > 1 else name


def owner_of(name: str) -> str | None:
    """The device or process in the name of a tunable; it may hold dots itself."""
    begin = next((one for one in (DEVICE, PROCESS) if name.startswith(one)), None)
    return name.removeprefix(begin).rpartition(".")[0] if begin else None


def check(tunable: Tunable, name: str, value: Any) -> Value:
    """A value as the kernel is told it; the error says what is wrong with it."""
    if tunable.values == "mask":
        if not _MASK.fullmatch(str(value)):
            what = f"{value!r} is not a mask of CPUs"
            raise Error("ND-104-04", what, at=name, fix="Write it in hexadecimal: 3 is CPU 0 and 1")
        return canonical(str(value))
    if tunable.values == "ports":
        return _ports(name, str(value).replace(" ", ""))
    if tunable.values == "choice":
        text = {True: "on", False: "off"}.get(value, value) if isinstance(value, bool) else value
        if tunable.choices and text not in tunable.choices:
            known = ", ".join(map(str, tunable.choices))
            what = f"{value!r} is none of {known}"
            raise Error("ND-104-05", what, at=name, fix="Choose one of them")
        if not re.fullmatch(r"[\w-]{1,32}", str(text)):
            raise Error("ND-104-04", f"{value!r} is not a word", at=name, fix="Give a word")
        return str(text)
    number = _number(tunable, name, value)
    low, high = tunable.low, tunable.high
    if tunable.access.kind in AS_TEXT and (number >= 0 or (low is not None and low < 0)):
        return number
    if (low is not None and number < low) or (high is not None and number > high):
        unit = f" {tunable.unit}" if tunable.unit else ""
        raise Error(
            "ND-104-05",
            f"{number} is not from {low} to {high}{unit}",
            at=name,
            fix="Stay within these bounds",
        )
    return number


def _ports(name: str, text: str) -> str:
    """A list of ports and ranges; an empty one is no port."""
    for part in filter(None, text.split(",")):
        first, _, last = part.partition("-")
        ends = [first, last or first]
        if (
            not all(one.isascii() and one.isdigit() for one in ends)
            or not 1 <= int(first) <= int(ends[1]) <= 65535
        ):
            raise Error(
                "ND-104-04", f"{part[:40]!r} is no port or range", at=name, fix="Write 8080,9000-9100"
            )
    return text


def _number(tunable: Tunable, name: str, value: Any) -> int:
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, int):
        return value
    found = _QUANTITY.fullmatch(str(value))
    units, base = _UNITS.get(tunable.unit, ({}, 1.0))
    if not found or (found[2] and found[2] not in units):
        named = f", or with a unit: {', '.join(units)}" if units else ", without a unit"
        what = f"{value!r} is not a number" + (f" of {tunable.unit}" if tunable.unit else "")
        raise Error("ND-104-04", what, at=name, fix=f"Write a whole number{named}")
    digits = found[1].replace("_", "")
    if len(digits) > 20:
        raise Error(
            "ND-104-05", f"{digits[:20]}… is beyond any number of the kernel's", at=name, fix="Give less"
        )
    if not found[2] and "." not in digits:
        # a float would round what is above 2^53
        return int(digits)
    number = float(digits) * (units[found[2]] / base if found[2] else 1.0)
    if number != int(number):
        what = f"{value!r} is not a whole number of {tunable.unit or 'units'}"
        raise Error("ND-104-04", what, at=name, fix=f"It counts in whole {tunable.unit or 'units'}")
    return int(number)


def canonical(mask: str) -> str:
    """A mask of CPUs without the zeros and commas that say nothing."""
    return f"{int(mask.replace(',', ''), 16):x}"


def several(faults: list[Error]) -> Error:
    """One error that names all."""
    first = faults[0]
    if len(faults) == 1:
        return first
    return Error(first.code, first.what, first.at, first.fix, [one.as_dict() for one in faults])


def memory() -> int:
    """This machine's memory, in bytes."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def load(folder: Path, ram: int | None = None) -> Registry:
    """The tunables of a folder's files, with bounds for so much memory."""
    ram = memory() if ram is None else ram
    tunables: dict[str, Tunable] = {}
    for scope in Scope:
        path = folder / f"{scope.value}.yaml"
        for name, written in dict(config.read(path)).items():
            entry = config.check(Entry, written, "ND-104-41", f"{path.name}: {name}")
            tunables[name] = _tunable(name, scope, entry, ram, f"{path.name}: {name}")
    parts: dict[str, dict[int, str]] = {}
    for name, one in tunables.items():
        if one.access.part is not None:
            parts.setdefault(one.access.path, {})[one.access.part] = name
    whole = {path: tuple(of[part] for part in sorted(of)) for path, of in parts.items()}
    registry = Registry(tunables, whole)
    for name in tunables:
        _check_conditions(registry, name)
    return registry


@cache
def registry() -> Registry:
    """The tunables that come with netdyno, bounded for this machine."""
    return load(paths.data("tunables"))


def _tunable(name: str, scope: Scope, entry: Entry, ram: int, at: str) -> Tunable:
    for begin, of in ((DEVICE, Scope.DEVICE), (PROCESS, Scope.PROCESS)):
        if name.startswith(f"{begin}*.") != (scope is of):
            raise Error("ND-104-41", f"what is of a {of}, and only that, begins with {begin}*.", at=at)
    if entry.doc not in DOCS:
        raise Error("ND-104-41", f"{entry.doc!r} is no page that is known", at=at, fix=f"Name one of {DOCS}")
    if entry.values == "number" and entry.low is None:
        raise Error("ND-104-41", "a number needs bounds", at=at, fix="Give low and high")
    high = entry.high
    if isinstance(high, Bound):
        high = min(high.most, int(high.ram * ram / high.each))
        # a machine with little memory keeps what Linux gives it
        high = max(high, entry.low or 0, entry.default if isinstance(entry.default, int) else 0)
    choices: tuple[Value, ...] = entry.choices
    if entry.choices_from:
        choices = tuple(_words(entry.choices_from))
    counts = entry.values == "number"
    return Tunable(
        name=name,
        scope=scope,
        summary=entry.summary,
        doc=DOCS[entry.doc],
        access=Access(entry.access, entry.path or name, entry.part),
        low=entry.low if counts else None,
        high=high if counts else None,
        choices=choices,
        by_memory=isinstance(entry.high, Bound),
        scale=Scale.CHOICE if entry.values == "choice" else entry.scale,
        unit=entry.unit,
        default=entry.default,
        requires=entry.requires,
        conflicts=entry.conflicts,
        only_if=entry.only_if,
        risk=entry.risk,
        since=entry.since,
        until=entry.until,
        inert=entry.inert if _reached(entry.inert_since) else None,
        counters=entry.counters,
        read_at=entry.read_at,
        values=entry.values,
    )


def _reached(version: str) -> bool:
    """Whether the kernel here is of this version or newer."""

    def numbers(text: str) -> list[int]:
        return [int(part) for part in re.findall(r"\d+", text)[:2]]

    return not version or numbers(os.uname().release) >= numbers(version)


def _words(parameter: str) -> list[str]:
    try:
        return (Path("/proc/sys") / parameter.replace(".", "/")).read_text().split()
    except OSError:
        return []


def _check_conditions(registry: Registry, name: str) -> None:
    one = registry.tunables[name]
    for text in (*one.requires, *one.conflicts, *one.only_if):
        condition = Condition.parse(text)
        # on the right may be any parameter of the kernel, of devices and processes only what is known here
        own = condition.other.startswith((DEVICE, PROCESS))
        asked = [condition.name, condition.other] if own else [condition.name]
        if unknown := next((one for one in asked if one not in registry.tunables), None):
            what = f"the condition {text!r} is about {unknown}, which is no tunable"
            raise Error("ND-104-41", what, at=name, fix="Name one that stands in these files")
        if not condition.names_other and "." in condition.other:
            what = f"the condition {text!r} has neither a value nor a parameter on its right"
            fix = f"Write a value, or a name that begins with {', '.join(PARAMETERS)}"
            raise Error("ND-104-41", what, at=name, fix=fix)
