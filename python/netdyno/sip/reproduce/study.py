"""Studies of SIP servers: which there are, the experiment of each, and the table of its result."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from netdyno import config, paths, units
from netdyno.core.result import Leg, Result
from netdyno.errors import Error
from netdyno.experiment import spec
from netdyno.experiment.spec import Experiment

QUICK = {"measure": "2s"}
"""Length of the measure phase of a quick study."""
RATE = ("rate",)
"""Ends of the path of a factor that is a rate of arrivals."""


class Study(config.Config):
    """A study: an experiment, and what its table shows."""

    name: str = Field(pattern=r"^[a-z0-9-]{1,40}$")
    """Its experiment is NAME.yaml."""
    title: str
    """Heading of its table."""
    group: str
    """Group of the profile that is shown."""
    delay: str
    """Its delay."""
    success: str
    """Its index of success."""
    paper: str = ""
    """What the paper found."""
    quick: dict[str, list[Any]] = Field(default_factory=dict)
    """Levels of factors in a quick study."""


class Studies(config.Config):
    """The file of studies."""

    format: Literal["netdyno-sip-studies/1"]
    """Which format this is."""
    studies: list[Study]
    """In the order in which they are measured."""


@dataclass(frozen=True)
class Point:
    """A line of a table: one combination of levels, over all its trials."""

    levels: Mapping[str, Any]
    attempts: int
    success: float | None
    mean_ns: float | None
    p95_ns: float | None
    trials: int
    valid: int
    """Trials whose generator did what it was to do."""
    reasons: tuple[str, ...] = ()
    """Codes of what made the others invalid."""

    @property
    def rate(self) -> float | None:
        """Arrivals a second, where that is a factor."""
        for name, level in self.levels.items():
            if name.endswith(RATE):
                return units.RATE.value(str(level), name)
        return None

    @property
    def others(self) -> tuple[tuple[str, Any], ...]:
        """Levels of all factors but the rate."""
        return tuple((name, level) for name, level in self.levels.items() if not name.endswith(RATE))


def folder() -> Path:
    """Where the experiments are."""
    return paths.data("experiments") / "sip"


def all_studies() -> list[Study]:
    """All of them."""
    path = folder() / "studies.yaml"
    return config.check(Studies, config.read(path), "ND-104-04", str(path)).studies


def chosen(names: Sequence[str]) -> list[Study]:
    """Those that are named, in their order; without names the figures of the paper."""
    there = {one.name: one for one in all_studies()}
    for name in names:
        if name not in there:
            fix = f"Use one of: {', '.join(there)}"
            raise Error("ND-104-22", f"there is no study {name!r}", at="STUDY", fix=fix)
    return [one for one in there.values() if one.name in names or (not names and one.paper)]


def experiment(study: Study, quick: bool, repeat: int | None) -> Experiment:
    """The experiment of a study."""
    path = folder() / f"{study.name}.yaml"
    document = config.read(path)
    if quick:
        document["factors"] = document.get("factors", {}) | study.quick
        document["repeat"] = 1
        for leg in document["legs"]:
            leg["trial"] = leg.get("trial", {}) | QUICK
    if repeat:
        document["repeat"] = repeat
    return spec.load(document, str(path))


def points(study: Study, result: Result) -> list[Point]:
    """Its table: a line for each leg that was measured."""
    several = len({leg.name.partition("@")[0] for leg in result.legs}) > 1
    return [_point(study, leg, several) for leg in result.legs if leg.repetitions]


def _point(study: Study, leg: Leg, several: bool) -> Point:
    group = next(one for one in leg.summary.groups if one.name == study.group)
    delay = group.delays.get(study.delay)
    found = bool(delay and delay.count)
    levels = {_short(path): level for path, level in leg.levels.items()}
    if several:
        levels = {"leg": leg.name.partition("@")[0]} | levels
    attempts = group.measured.own.get("registrations", 0) or group.measured.own.get("session_requests", 0)
    return Point(
        levels=levels,
        attempts=int(attempts),
        success=group.indices.get(study.success),
        mean_ns=delay.mean if delay and found else None,
        p95_ns=delay.p95 if delay and found else None,
        trials=len(leg.repetitions),
        valid=sum(one.validity.valid for one in leg.repetitions),
        reasons=tuple(sorted({reason.code for one in leg.repetitions for reason in one.validity.reasons})),
    )


def _short(path: str) -> str:
    """A factor's path as a heading."""
    if path.endswith("stages.0.devices"):
        return "registered"
    return path.rsplit(".", 1)[-1].replace("_", " ")


def highest(found: Sequence[Point]) -> dict[tuple[tuple[str, Any], ...], float]:
    """Highest rate at which, as at all lower ones, every attempt succeeded, by the other levels.

    A rate without a valid trial is none: what was offered is not known to be that rate.
    """
    best: dict[tuple[tuple[str, Any], ...], float] = {}
    failed = set()
    for point in sorted(found, key=lambda one: one.rate or 0.0):
        if point.rate is None or point.others in failed:
            continue
        if point.success == 1.0 and not point.valid:
            continue
        if point.success == 1.0:
            best[point.others] = point.rate
        else:
            failed.add(point.others)
    return best


def document(study: Study, result: Result, quick: bool) -> dict[str, Any]:
    """What is kept of a study: its table, and where and on what it was measured."""
    environment = result.environment
    return {
        "format": "netdyno-sip-study/1",
        "study": study.name,
        "run": result.id,
        "started": result.started,
        "quick": quick,
        "verdict": result.verdict,
        "versions": environment.get("versions", {}),
        "machine": {
            key: environment[key]
            for key in ("cpu", "memory_bytes", "kernel", "hypervisor")
            if key in environment
        },
        "group": study.group,
        "delay": study.delay,
        "success": study.success,
        "paper": study.paper,
        "points": [asdict(one) for one in points(study, result)],
    }
