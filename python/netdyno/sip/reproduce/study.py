"""Studies of SIP servers: which there are, the experiment of each, and the table of its result."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from netdyno import config, paths, quantities, units
from netdyno.core.result import Leg, Result
from netdyno.errors import Error
from netdyno.experiment import spec
from netdyno.experiment.spec import Experiment
from netdyno.stats.counts import share_interval
from netdyno.stats.estimate import positive_interval
from netdyno.stats.summary import summarise

QUICK = {"measure": "2s"}
"""Length of the measure phase of a quick study."""
RATE = ("rate",)
"""Ends of the path of a factor that is a rate of arrivals."""
CONFIDENCE = 0.95
"""Of the intervals."""


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
    """A line of a table: one combination of levels, over its valid trials, or all where none is valid."""

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
    success_interval: tuple[float, float] | None = None
    """Exact interval of the success of attempts, at 95 %."""
    mean_interval_ns: tuple[float, float] | None = None
    """Interval of the mean delay, at 95 %, by the means of trials (logarithms, Student's t); none with fewer
    than two."""

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
    valid = [one for one in leg.repetitions if one.validity.valid]
    trials = valid or leg.repetitions
    group = next(one for one in summarise(trials).groups if one.name == study.group)
    delay = group.delays.get(study.delay)
    levels = {_short(path): level for path, level in leg.levels.items()}
    if several:
        levels = {"leg": leg.name.partition("@")[0]} | levels
    own = group.measured.own
    attempts = int(own.get("registrations", 0) or own.get("session_requests", 0))
    success = group.indices.get(study.success)
    parts = [
        part.delays.get(study.delay) for one in trials for part in one.groups if part.name == study.group
    ]
    means = [part.mean for part in parts if part and part.count]
    return Point(
        levels=levels,
        attempts=attempts,
        success=success,
        mean_ns=delay.mean if delay and delay.count else None,
        p95_ns=delay.p95 if delay and delay.count else None,
        trials=len(leg.repetitions),
        valid=len(valid),
        reasons=tuple(sorted({reason.code for one in leg.repetitions for reason in one.validity.reasons})),
        success_interval=None
        if success is None
        else share_interval(round(success * attempts), attempts, 1 - CONFIDENCE),
        mean_interval_ns=positive_interval(means, CONFIDENCE)[1] if means else None,
    )


def _short(path: str) -> str:
    """A factor's path as a heading."""
    if path.endswith("stages.0.devices"):
        return "registered"
    return path.rsplit(".", 1)[-1].replace("_", " ")


def shares(interval: tuple[float, float] | None) -> str:
    """An interval of shares for people: `96.4% – 100%`."""
    return _ends(interval, lambda end: quantities.number(end, "ratio"))


def delays(interval: tuple[float, float] | None) -> str:
    """An interval of delays for people: `3.1 ms – 4.2 ms`."""
    return _ends(interval, quantities.delay)


def _ends(interval: tuple[float, float] | None, shown: Callable[[float], str]) -> str:
    return quantities.NONE if interval is None else " – ".join(map(shown, interval))


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
