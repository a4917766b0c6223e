"""A host of a fleet while it is connected, and what is said of it."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from netdyno.core.wire import TrialResult
from netdyno.errors import Error
from netdyno.fleet.agents import Offset
from netdyno.fleet.hosts import HostSpec
from netdyno.fleet.launchers import launcher
from netdyno.fleet.shard import Part, Shard

LOST = "ND-91-50"


@dataclass
class Host:
    """A host, however it is reached."""

    spec: HostSpec
    about: dict[str, Any]
    """What its agent says of itself."""
    offset: Offset
    shard: Shard = field(default_factory=lambda: Shard({}))
    lost: Error | None = None
    run: str = ""
    """Its id of the run, where it is reached directly."""
    capture: str | None = None
    """Name of the file with its packets."""
    at: float | None = None
    """When it was to begin, by its own clock."""

    @property
    def name(self) -> str:
        """Its name."""
        return self.spec.name

    @property
    def part(self) -> Part:
        """What it brings along."""
        spec, way = self.spec, launcher(self.spec)
        cores = tuple(spec.cores or self.about.get("cores") or ())
        addresses = tuple(str(one) for i in self.about.get("interfaces") or () for one in i["addresses"])
        weight = spec.weight or float(len(cores) or 1)
        return Part(
            self.name, weight, cores, addresses, tuple(spec.sources),
            remote=way.remote, ports=tuple(port.settings() for port in spec.ports),
            captures=way.brings_files(spec),
        )  # fmt: skip

    def report(self, trial: TrialResult | None = None) -> dict[str, Any]:
        """What a result says of it; `trial`: what it measured."""
        return {
            "name": self.name,
            "launcher": self.spec.launcher,
            "version": str(self.about["version"]),
            "cores": list(self.part.cores),
            "devices": dict(self.shard.devices),
            "clock_offset": self.offset.seconds,
            "clock_error": self.offset.error,
            "start_delay": None if trial is None else self._start_delay(trial),
            "valid": None if trial is None else trial.validity.valid,
            "measured": {}
            if trial is None
            else {one.name: one.measured.model_dump() for one in trial.groups},
            "capture": self.capture,
            "lost": self.lost.what if self.lost else None,
        }

    def _start_delay(self, trial: TrialResult) -> float | None:
        """How late it began: the daemon tells the moment in whole milliseconds."""
        if self.at is None or not trial.started:
            return None
        began = datetime.fromisoformat(trial.started).timestamp()
        return round(began - math.floor(self.at * 1000) / 1000, 3)


def named(host: str, error: Error) -> Error:
    """An error of one host, with its name."""
    plain = error.as_dict()
    return Error.of(plain | {"what": f"host {host}: {error.what}"})


def lost(host: str, why: str, fix: str = "What the other hosts measured is kept") -> Error:
    """That a host of the fleet does not answer, or not any more."""
    return Error(LOST, f"the host {host} was lost {why}", at=host, fix=fix)
