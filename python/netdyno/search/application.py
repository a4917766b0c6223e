"""Loads of applications over TCP (RFC 9411): new connections, connections that are held, transactions.

A profile says how a device speaks to its server. For a search it is given a shape: connections are opened at
a rate and closed after so many transactions, or all are opened and kept. The rate rises during the warm-up
(the ramp-up phase of RFC 9411) and is steady in the measure phase (its sustain phase).
"""

from __future__ import annotations

import copy
import math
import re
from collections.abc import Mapping
from typing import Any

from netdyno import units
from netdyno.core import defaults, models
from netdyno.errors import Error
from netdyno.experiment.spec import LegSpec, table
from netdyno.search.load import loading
from netdyno.search.objects import PLACE, ObjectSize, Workload

OPENED, HELD, TRANSACTIONS = "connections/s", "connections", "transactions/s"
"""Units of loads."""
_SIZE = re.compile(re.escape(PLACE) + r"|(?<=/)\d+$")
"""The place for the size of an object in a path."""
RAMP = 0.8
"""Share of the warm-up in which the load rises; the rest of it is as loaded as what is measured."""
START = 0.1
"""Of the load, at the beginning of the ramp."""


def most(leg: LegSpec, unit: str) -> float:
    """The highest load that a profile asks for: its devices, or what its open loops begin in a second."""
    members, factor = _members(leg), leg.trial.load or 1.0
    if unit == HELD:
        return float(round(sum(int(group.get("devices", 1)) for group in members) * factor))
    whole = 0.0
    for group in members:
        rate = units.bound(str(table(table(group.get("load")).get("open")).get("rate", "0/s")))
        whole += rate * (max(1, _count(group)) if unit == TRANSACTIONS else 1)
    if whole <= 0:
        what = f"the profile does not say how many {unit.removesuffix('/s')} are begun in a second at most"
        fix = "Give its groups load: {open: {rate: 10k/s}}"
        raise Error("ND-104-07", what, at="groups[].load", fix=fix)
    return whole * factor


def has_place(leg: LegSpec) -> bool:
    """Whether a path of it has a place for the size of an object."""
    return any(PLACE in str(models.of_group(group)[1].get("path")) for group in loading(table(leg.profile)))


def offered(leg: LegSpec, unit: str, load: float, seconds: float, workload: Workload) -> LegSpec:
    """The leg that offers a load for so long."""
    plain = leg.model_dump(by_alias=True, exclude_none=True)
    trial = plain.get("trial", {}) | {"measure": f"{math.ceil(seconds * 1e6)}us"}
    trial.pop("load", None)
    made = copy.deepcopy(table(leg.profile))
    phases = defaults.filled(made, "phases") | trial
    ramp = RAMP * units.seconds(str(phases["warmup"]))
    members = loading(made)
    weights = [_weight(group, unit) for group in members]
    for group, weight in zip(members, weights, strict=True):
        share = load * weight / sum(weights)
        model, given = models.of_group(group)
        changed = group["model"][model.name] = dict(group["model"].get(model.name) or {})
        if workload.objects.sizes:
            _ask_for(changed, given, workload.objects, str(group.get("name")))
        if unit == HELD:
            _hold(group, changed, share, ramp, seconds)
        else:
            if model.quick:
                changed[model.quick.count] = workload.per_connection
                changed[model.quick.interval] = "0s"
            flows = share / workload.per_connection if unit == TRANSACTIONS else share
            group["load"] = {"open": _rising(table(table(group.get("load")).get("open")), flows, ramp)}
    return LegSpec.model_validate(plain | {"profile": made, "trial": trial})


def _members(leg: LegSpec) -> list[dict[str, Any]]:
    members = loading(table(leg.profile))
    if not members:
        raise Error("ND-104-07", "the profile has no groups, so that nothing is sent", at="groups")
    for group in members:
        model, _ = models.of_group(group)
        if not any(scheme.connects for scheme in model.schemes):
            what = f"{model.name} has no connections to count"
            fix = "Use a model over TCP or TLS, like http"
            raise Error("ND-104-07", what, at=f"groups.{group.get('name')}", fix=fix)
    return members


def _count(group: Mapping[str, Any]) -> int:
    model, given = models.of_group(group)
    return int(given.get(model.quick.count) or 0) if model.quick else 1


def _weight(group: Mapping[str, Any], unit: str) -> float:
    if unit == HELD:
        return float(int(group.get("devices", 1)))
    rate = units.bound(str(table(table(group.get("load")).get("open")).get("rate", "0/s")))
    return rate * (max(1, _count(group)) if unit == TRANSACTIONS else 1)


def _rising(open_loop: Mapping[str, Any], rate: float, ramp: float) -> dict[str, Any]:
    made = {key: value for key, value in open_loop.items() if key not in ("rate", "stages")}
    if ramp <= 0:
        return made | {"rate": f"{rate:.6f}/s"}
    stages = [{"over": f"{ramp * 1e6:.0f}us", "rate": f"{rate:.6f}/s"}]
    return made | {"rate": f"{rate * START:.6f}/s", "stages": stages}


def _hold(
    group: dict[str, Any], changed: dict[str, Any], devices: float, ramp: float, seconds: float
) -> None:
    """All connect one after the other and stay; each asks twice while it is measured, or at its interval."""
    model, given = models.of_group(group)
    group["devices"] = max(1, round(devices))
    group["load"] = {"closed": {"ramp": f"{ramp * 1e6:.0f}us"}}
    if model.quick:
        changed[model.quick.count] = 0
        if not units.seconds(str(given.get(model.quick.interval) or "0s")):
            changed[model.quick.interval] = f"{max(1.0, seconds / 2) * 1e3:.0f}ms"


def _ask_for(changed: dict[str, Any], given: Mapping[str, Any], objects: ObjectSize, name: str) -> None:
    path = given.get("path")
    if not isinstance(path, str) or not _SIZE.search(path):
        what = f"its path has no place for the size of an object: {path!r}"
        fix = (
            f"Write the path as /1024 or /files/{PLACE}.bin: the bytes of the object take the number's place"
        )
        raise Error("ND-104-07", what, at=f"groups.{name}", fix=fix)
    first, *others = (_SIZE.sub(str(size), path) for size in objects.sizes)
    changed["path"] = first
    if others:
        changed["then"] = [{"path": one} for one in others]
