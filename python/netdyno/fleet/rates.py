"""Rates that are changed while a fleet runs: each host's share, and the changes of all hosts as one."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

from netdyno.core.wire import RateChange
from netdyno.fleet.shard import Shard
from netdyno.units import RATE


def share(
    groups: Mapping[str, Mapping[str, Any]], host: Shard, every: Sequence[Shard]
) -> dict[str, dict[str, Any]]:
    """What one host is asked for, by group: its part by its devices of what all are asked for.

    A group of which it has no device is left out; a rate of each flow is the same everywhere. A group that no
    host has goes to all, whose daemons say what there is.
    """
    found: dict[str, dict[str, Any]] = {}
    for name, asked in groups.items():
        whole = sum(one.devices.get(name, 0) for one in every)
        own = host.devices.get(name, 0)
        if whole and not own:
            continue
        found[name] = dict(asked)
        if whole and asked.get("of") != "flow":
            rate = Fraction(RATE.value(str(asked.get("rate")), "rate")) * Fraction(own, whole)
            found[name]["rate"] = f"{float(rate):.9f}/s"
    return found


def merged(parts: Sequence[Sequence[RateChange]]) -> list[RateChange]:
    """The changes of all hosts, in the order of time: rates of the whole group, of each flow as they are.

    Hosts that change at different ends of a point are told one after the other, with what the group had in
    between.
    """
    found: list[RateChange] = []
    every = [(change, host) for host, changes in enumerate(parts) for change in changes]
    for group, of in dict.fromkeys((change.group, change.of) for change, _ in every):
        mine = [(change, host) for change, host in every if (change.group, change.of) == (group, of)]
        now: dict[int, float] = {}
        for change, host in mine:
            now.setdefault(host, change.before)
        for at in sorted({change.t for change, _ in mine}):
            before = _rate(now.values(), of)
            now |= {host: change.rate for change, host in mine if change.t == at}
            found.append(RateChange(t=at, group=group, of=of, rate=_rate(now.values(), of), before=before))
    return sorted(found, key=lambda one: one.t)


def _rate(rates: Any, of: str) -> float:
    known = list(rates)
    return max(known) if of == "flow" else math.fsum(known)
