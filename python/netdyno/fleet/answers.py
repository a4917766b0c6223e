"""Answers of agents as their types: whatever does not fit is `ND-91-32`, and its host is lost.

An agent may be of another version, broken, or taken over. Its figures are merged with those of others, so
that they are checked here first: their types, that counts are not negative, that histograms can be read, and
that a part of a result is the part that the host was given.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from datetime import datetime
from ipaddress import ip_interface
from typing import Annotated, Any

from pydantic import AfterValidator, Field

from netdyno.core import client
from netdyno.core.client import INVALID, checked, invalid
from netdyno.core.model import Model
from netdyno.core.wire import (
    Catalogue,
    Counts,
    Distribution,
    GroupResult,
    Quantiles,
    RateChange,
    SeriesPoint,
    TrialResult,
)
from netdyno.errors import Error
from netdyno.stats import hdr

GONE = ("ND-91-21", "ND-91-22", INVALID)
"""Errors of a connection after which its host is lost."""
MOST_CORES = 4096


def _address(text: str) -> str:
    ip_interface(text.partition("%")[0].partition("/")[0])
    return text


class Interface(Model):
    """An interface of an agent's host."""

    addresses: list[Annotated[str, AfterValidator(_address)]]


class About(Catalogue):
    """An answer to `core.describe`, as far as a fleet reads it."""

    version: str = Field(pattern=r"^[0-9A-Za-z.+~_-]{1,64}$")
    cores: list[Annotated[int, Field(ge=0, lt=MOST_CORES)]] = Field(max_length=MOST_CORES)
    interfaces: list[Interface] = Field(default_factory=list)


class Clock(Model):
    """An answer to `core.clock`."""

    time: float = Field(gt=0, lt=1e11)


class LoadedGroup(Model):
    """A group of an answer to `run.load`."""

    name: str
    devices: int = Field(ge=0)


class Loaded(Model):
    """An answer to `run.load`."""

    run: str
    groups: list[LoadedGroup]


class Changes(Model):
    """An answer to `run.rate`."""

    rates: list[RateChange]


def about(answer: Any, at: str = "") -> dict[str, Any]:
    """An answer to `core.describe`."""
    checked(About, answer, "core.describe", at)
    return dict(answer)


def clock(answer: Any) -> float:
    """An answer to `core.clock`: seconds since 1970."""
    return checked(Clock, answer, "core.clock").time


def loaded(answer: Any, devices: Mapping[str, int]) -> dict[str, Any]:
    """An answer to `run.load` of these devices by group."""
    told = checked(Loaded, answer, "run.load")
    _same("run.load", [(one.name, one.devices) for one in told.groups], devices)
    return dict(answer)


def changes(answer: Any) -> list[dict[str, Any]]:
    """An answer to `run.rate`."""
    return [one.model_dump() for one in checked(Changes, answer, "run.rate").rates]


def point(sample: Any, devices: Mapping[str, int] | None = None) -> SeriesPoint:
    """A sample; `devices`: those of the host by group, of no other group it may tell."""
    found = client.typed(sample)
    _point(found, "stats.sample", devices)
    return found


def part(found: TrialResult, devices: Mapping[str, int]) -> TrialResult:
    """A result of a host with these devices by group."""
    method = "run.result"
    _same(method, [(one.name, one.devices) for one in found.groups], devices)
    try:
        began = datetime.fromisoformat(found.started).timestamp() if found.started else 0.0
    except (ValueError, OverflowError, OSError):
        raise invalid(method, f"started: {found.started[:80]!r} is no time") from None
    lengths = (found.phases.warmup, found.phases.measure, found.phases.drain)
    if began < 0 or any(not 0 <= one < 1e9 for one in lengths):
        raise invalid(method, "phases: their lengths are not possible")
    for group in found.groups:
        _group(group, method)
    for one in found.series:
        _point(one, method, devices)
    return found


def _same(method: str, told: list[tuple[str, int]], devices: Mapping[str, int]) -> None:
    """Raise unless groups and devices are those that the host was given."""
    if len(told) != len(devices) or dict(told) != dict(devices):
        said = ", ".join(f"{count} of {name[:80]!r}" for name, count in told[:8]) or "none"
        given = ", ".join(f"{count} of {name!r}" for name, count in devices.items()) or "none"
        raise invalid(method, f"groups: it tells of devices {said}, and was given {given}")


def _point(one: SeriesPoint, method: str, devices: Mapping[str, int] | None) -> None:
    if not (one.t >= 0 and one.dt > 0 and one.elapsed >= 0 and one.left >= 0):
        raise invalid(method, "a point of the series has times that are not possible")
    for name, group in one.groups.items():
        if devices is not None and name not in devices:
            raise invalid(method, f"groups: {name[:80]!r} is no group of this host")
        _counts(group.counts, method, name)
        for delay in (*group.delays.values(), group.lateness):
            _quantiles(delay, method, name)


def _group(group: GroupResult, method: str) -> None:
    _counts(group.measured, method, group.name)
    _counts(group.total, method, group.name)
    numbers = [*group.rates.values(), group.loss or 0.0]
    numbers += [one.count for one in group.errors] + [one.total or 0 for one in group.errors]
    if any(number < 0 for number in numbers):
        raise invalid(method, f"{group.name}: a rate or a count is negative")
    for one in _distributions(group):
        _quantiles(one, method, group.name)
        if one.hdr:
            try:
                hdr.decode(one.hdr)
            except Error as e:
                raise invalid(method, f"{group.name}: a histogram: {e.what}") from None


def _distributions(group: GroupResult) -> Iterator[Distribution]:
    for several in (group.delays, group.values, group.ipdv):
        yield from several.values()
    yield group.lateness
    for one in (group.reordering, group.losses):
        if one is not None:
            yield from (value for value in one.__dict__.values() if isinstance(value, Distribution))


def _counts(counts: Counts, method: str, group: str) -> None:
    every = {**counts.__dict__, **(counts.model_extra or {}), **counts.failures}
    wrong = next((name for name, n in every.items() if isinstance(n, int | float) and n < 0), None)
    if wrong is not None:
        raise invalid(method, f"{group}: the count {str(wrong)[:80]!r} is negative")


def _quantiles(one: Quantiles, method: str, group: str) -> None:
    if one.count < 0 or not math.isfinite(one.mean) or (one.count and one.min > one.max):
        raise invalid(method, f"{group}: a distribution is not possible")
