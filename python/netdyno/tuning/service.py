"""Classes of service, and settings known for them; those that come with netdyno, and people's own."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeVar

from pydantic import Field, model_validator

from netdyno import assignments, config, paths
from netdyno.errors import Error
from netdyno.experiment import presets
from netdyno.stats.observation import Metric, Value
from netdyno.tuning import sysctl_file
from netdyno.tuning.registry import Registry


class MetricSpec(config.Config):
    """A metric of a service class."""

    unit: str
    better: Literal["higher", "lower"]
    zero_is_best: bool = False


class Limit(config.Config):
    """What a setting must keep to, whatever it gains otherwise."""

    metric: str
    most: float | None = None
    least: float | None = None


class ServiceClass(config.Config):
    """A class of service: how its traffic is, what is measured of it, and what is wanted."""

    summary: str = ""
    traits: tuple[str, ...] = ()
    examples: tuple[str, ...] = ()
    measured: dict[str, MetricSpec] = Field(alias="metrics")
    objectives: tuple[str, ...] = Field(min_length=1)
    """Metrics to improve, the one that matters most first."""
    constraints: tuple[Limit, ...] = ()
    tunables: tuple[str, ...] = ()
    """Those that may matter to it; of devices with `*`."""
    setting: str = ""
    """The known setting that `netdyno tune apply --class` applies."""

    @model_validator(mode="after")
    def _consistent(self) -> ServiceClass:
        for name in (*self.objectives, *(limit.metric for limit in self.constraints)):
            if name not in self.measured:
                raise ValueError(f"the metric {name!r} is not among the metrics")
        return self

    @property
    def metrics(self) -> Mapping[str, Metric]:
        """What is measured, by name."""
        return {
            name: Metric(name, one.unit, one.better, one.zero_is_best) for name, one in self.measured.items()
        }


class KnownSetting(config.Config):
    """A published setting and its source."""

    summary: str = ""
    source: str = ""
    values: dict[str, Any]


M = TypeVar("M", bound=config.Config)


def classes() -> dict[str, Path]:
    """Classes that come with netdyno, by name."""
    return _files("classes")


def settings() -> dict[str, Path]:
    """Settings that come with netdyno, by name."""
    return _files("settings")


def read(name: str) -> ServiceClass:
    """A class by name, or from a file."""
    return _read(ServiceClass, name, classes())


@dataclass(frozen=True)
class WrittenSetting:
    """A setting as written: values by name."""

    values: Mapping[str, Any]
    general: bool = False
    """For any machine: what this one does not have is left out."""
    optional: frozenset[str] = frozenset()
    """Names that are left out where they cannot be set."""
    left_out: Mapping[str, str] = field(default_factory=dict)
    """What the file says beyond what can be tuned, and why it is left out."""


def find_setting(name: str) -> KnownSetting:
    """A setting by name, or from a file of YAML or JSON, which may also be plain names and values."""
    path = Path(name)
    if name in settings() or (presets.is_word(name) and not path.is_file()):
        return _read(KnownSetting, name, settings())
    data = config.read(path)
    if isinstance(data, dict) and "values" not in data:
        data = {"values": data}
    return config.check(KnownSetting, data, "ND-104-41", name)


def are_values(text: str) -> bool:
    """Whether it is `NAME=VALUE,…`, and no file with such a name."""
    return "=" in text and not os.path.exists(text)  # noqa: PTH110 - a long text is no error


def written(name: str, known: Registry) -> WrittenSetting:
    """`NAME=VALUE,NAME=VALUE`, what `find_setting` finds, or the parameters of a file of sysctl.d or of a
    TuneD profile."""
    if are_values(name):
        return WrittenSetting(assignments.read([name], name))
    path = Path(name) / sysctl_file.PROFILE if (Path(name) / sysctl_file.PROFILE).is_file() else Path(name)
    if name in settings() or not sysctl_file.is_one(path):
        return WrittenSetting(find_setting(name).values, name in settings())
    found = sysctl_file.read(path)
    values = {name: value for name, value in found.values.items() if known.has(name)}
    foreign = dict.fromkeys(found.values.keys() - values.keys(), "netdyno does not tune it")
    if not values:
        what = f"none of its {len(found.values)} parameters is one that netdyno tunes"
        raise Error("ND-104-40", what, at=str(path), fix="`netdyno tune params --all` lists them")
    return WrittenSetting(values, False, found.optional, {**found.left_out, **dict(sorted(foreign.items()))})


def optional(known: Registry, setting: WrittenSetting, devices: Iterable[str]) -> frozenset[str]:
    """What of a setting is left out where it cannot be set, by name."""
    values = setting.values
    if not setting.general:
        values = {name: value for name, value in values.items() if name in setting.optional}
    return frozenset(on_devices(known, values, devices))


def on_devices(registry: Registry, values: Mapping[str, Any], devices: Iterable[str]) -> dict[str, Value]:
    """A setting in which `*` stands for each device."""
    listed = list(devices)
    found: dict[str, Any] = {}
    for name, value in values.items():
        if name.startswith("dev.*."):
            found |= {name.replace("*", device): value for device in listed}
        else:
            found[name] = value
    return registry.read(found)


def _files(kind: str) -> dict[str, Path]:
    return {path.stem: path for path in sorted((paths.data("tunables") / kind).glob("*.yaml"))}


def _read(model: type[M], name: str, files: Mapping[str, Path]) -> M:
    path = files.get(name)
    if path is None:
        if presets.is_word(name):
            raise presets.unknown(name, files)
        path = Path(name)
    return config.check(model, config.read(path), "ND-104-41", str(path))
