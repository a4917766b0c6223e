"""What a study begins with where that is not what the machine has: `--baseline`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from netdyno import assignments
from netdyno.stats.observation import Setting, Value
from netdyno.tuning import benches, service
from netdyno.tuning.bench import Spec, digest
from netdyno.tuning.host_state import scope
from netdyno.tuning.model import Scope
from netdyno.tuning.registry import registry

LINUX = "linux"
"""The defaults of Linux, of what is tried."""
Asked = Sequence[str | Setting]
"""Of each: `linux`, a known setting, a file, `NAME=VALUE,…`, or the values themselves."""


@dataclass(frozen=True)
class Baseline:
    """Values that every trial begins with."""

    values: Mapping[str, Value] = field(default_factory=dict)
    label: str = ""
    """In words; a digest tells apart what a file said at different times."""
    left_out: Mapping[str, str] = field(default_factory=dict)
    """What a file or a known setting has that cannot be set on the bench, and why."""
    outside: tuple[str, ...] = ()
    """Numbers beyond those that are tried, in words."""

    def remarks(self) -> list[str]:
        """What to know of it before the first trial."""
        return [*(f"baseline: without {name}, which {why}" for name, why in self.left_out.items()),
                *(f"baseline: {text}" for text in self.outside)]  # fmt: skip


def check(asked: Asked) -> None:
    """Raise what is wrong with the texts and files, before anything is made ready."""
    for one in asked:
        if isinstance(one, str) and one != LINUX:
            benches.setting(one)


def baseline(asked: Asked, made: Spec, allow_global: bool, tried: Callable[[str], bool]) -> Baseline:
    """The values on a bench; of `linux` only those of parameters that are tried: no other is touched."""
    if not asked:
        return Baseline()
    values: dict[str, Value] = {}
    left_out: dict[str, str] = {}
    labels: list[str] = []
    outside: list[str] = []
    named = any(one != LINUX for one in asked)
    there, devices = (benches.tunables(made), benches.devices(made)) if named else ({}, [])
    for one in asked:
        if one == LINUX:
            values |= _defaults(allow_global, tried)
            labels.append(LINUX)
            continue
        chosen = benches.choose(one, there, allow_global, devices)
        values |= chosen.setting
        left_out |= chosen.left_out
        outside += chosen.outside
        plain = not isinstance(one, str) or service.are_values(one)
        labels.append(chosen.name if plain else f"{chosen.name} [{digest(chosen.setting)}]")
    return Baseline(values, ", ".join(labels), left_out, tuple(outside))


def _defaults(allow_global: bool, tried: Callable[[str], bool]) -> dict[str, Value]:
    """Those of Linux, of what a namespace has for itself or may be set for the machine."""
    return {
        name: one.default
        for name, one in registry().tunables.items()
        if "*" not in name
        and tried(name)
        and one.default is not None
        and (allow_global or scope(one) is not Scope.GLOBAL)
    }


def written(texts: Sequence[str]) -> Asked:
    """The texts of an option that may be repeated; a name that is given twice is refused."""
    assignments.read([one for one in texts if service.are_values(one)], "--baseline")
    return list(texts)
