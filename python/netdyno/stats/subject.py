"""What a run is about, beside its name: target, load, duration, its slowest delay and its failures."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from netdyno import quantities
from netdyno.core import load_unit, models
from netdyno.core.redaction import hide
from netdyno.core.result import Leg, Result

TARGETS = 3
"""Targets that are named; of more the rest is counted."""


@dataclass(frozen=True)
class Subject:
    """The subject of a run, in numbers; None is not known, or differs between its legs."""

    target: str = ""
    rate: float | None = None
    """Intended load per second, all groups; None: without a schedule."""
    devices: int | None = None
    duration: float | None = None
    """Of the measure phase, in seconds."""
    p99: float | None = None
    """The slowest 99th percentile of a delay, in nanoseconds."""
    errors: int = 0
    delivered: int = 0
    interrupted: bool = False
    fleet: str = ""
    """That generates the load; empty: this machine."""

    @property
    def load(self) -> str:
        """The load as a line names it."""
        if self.rate is not None:
            return quantities.number(self.rate, "/s")
        return f"{self.devices:,} device{'s' * (self.devices != 1)}" if self.devices else "–"

    @property
    def time(self) -> str:
        """The duration as a line names it."""
        return f"{self.duration:,g} s" if self.duration else "–"

    @property
    def silent(self) -> bool:
        """Whether all failed."""
        return self.errors > 0 and not self.delivered


def subject(result: Result) -> Subject:
    """What a result tells."""
    measured = [leg for leg in result.legs if leg.summary.groups]
    groups = [group for leg in measured for group in leg.summary.groups]
    delays = [one.p99 for group in groups for one in group.delays.values() if one.count and one.p99]
    lengths = [one.phases.measure for leg in result.legs for one in leg.repetitions]
    return Subject(
        target=named(group.target for group in groups),
        rate=_same(_rate(leg) for leg in measured),
        devices=_same(sum(group.devices for group in leg.summary.groups) for leg in measured),
        duration=_same(round(length, 1) for length in lengths) or None,
        p99=max(delays, default=None),
        errors=sum(n for group in groups for n in group.measured.failures.values()),
        delivered=sum(_delivered(group.measured, load_unit.of(group).delivered) for group in groups),
        interrupted=result.interrupted,
    )


def of_profiles(profiles: Iterable[Mapping[str, Any]], fleet: str = "") -> Subject:
    """What profiles tell of a run that has measured nothing yet."""
    groups = [group for profile in profiles for group in profile.get("groups") or []]
    return Subject(
        target=named(hide(str(one.get("target", ""))) for one in groups if isinstance(one, Mapping)),
        fleet=fleet,
    )


def named(targets: Iterable[str]) -> str:
    """Targets as a line names them."""
    found = [one for one in dict.fromkeys(targets) if one]
    more = f" +{len(found) - TARGETS}" if len(found) > TARGETS else ""
    return ", ".join(found[:TARGETS]) + more


def intended_loads(leg: Leg) -> dict[str, tuple[int, float]]:
    """By group its devices, and what was intended per second: 0 of loads without a schedule."""
    found = {}
    for group in leg.summary.groups:
        flows, messages = (
            rate.mean if (rate := group.rates.get(name)) else 0.0
            for name in ("flows_intended", "messages_intended")
        )
        given = _group(leg, group.name)
        paced = messages if _scheduled(given) else 0.0
        if not paced or "open" in (given.get("load") or {}):
            paced = flows or paced
        found[group.name] = (group.devices, paced)
    return found


def _group(leg: Leg, name: str) -> Mapping[str, Any]:
    """A group of the profile."""
    profile = leg.repetitions[0].profile if leg.repetitions else {}
    groups = profile.get("groups") or [] if isinstance(profile, Mapping) else []
    return next((group for group in groups if group.get("name") == name), {})


def _scheduled(group: Mapping[str, Any]) -> bool:
    """Whether messages fall due by a clock, and not when the last is answered."""
    if not group:
        return False
    model, given = models.of_group(group)
    interval = given.get(model.quick.interval) if model.quick else None
    return bool(given.get("rate")) or interval not in (None, 0, "0s", "0ns")


def _rate(leg: Leg) -> float | None:
    rates = [rate for _, rate in intended_loads(leg).values()]
    return sum(rates) if rates and all(rates) else None


def _delivered(counts: Any, name: str) -> int:
    # where a flow that ends well is counted, its answers are not nothing either
    return load_unit.count(counts, name) + int(counts.messages_received)


def _same(values: Iterable[Any]) -> Any:
    """The value that all have."""
    found = set(values)
    return found.pop() if len(found) == 1 else None
