"""What the load of a group is counted in: messages, or calls and registrations, of which messages are steps.

A unit names the counters of what was asked for, begun and brought to its end. Headlines, live views and
reports show these; messages keep their own names, and so do all counters.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from netdyno.core.result import Estimate, GroupSummary
from netdyno.core.wire import Counts, GroupResult, LoadUnit

MESSAGES = LoadUnit(
    name="messages",
    intended="messages_intended",
    offered="messages_sent",
    delivered="messages_delivered",
)


def of(group: GroupResult | GroupSummary) -> LoadUnit:
    """The unit of a group; messages in results of a former version."""
    return group.unit or MESSAGES


def read(given: Any) -> LoadUnit:
    """The unit that a core names before a run."""
    return LoadUnit.model_validate(given) if isinstance(given, Mapping) else MESSAGES


def is_messages(unit: LoadUnit) -> bool:
    """Whether each message counts by itself."""
    return unit.offered == MESSAGES.offered


def intended(unit: LoadUnit, counts: Counts) -> int | None:
    """How many were asked for; None: the other side asks."""
    return None if unit.intended is None else count(counts, unit.intended)


def count(counts: Counts, name: str) -> int:
    """A counter of all groups, or one of the model's own."""
    return int(getattr(counts, name, 0))


def completed(unit: LoadUnit) -> str:
    """What those that ended well are called: messages are delivered, calls completed."""
    return "delivered" if is_messages(unit) else "completed"


def loss(group: GroupResult | GroupSummary) -> float | None:
    """Share of what was begun that did not end well; of messages without those that our own queue dropped."""
    unit = of(group)
    if is_messages(unit):
        return group.loss.mean if isinstance(group.loss, Estimate) else group.loss
    offered = count(group.measured, unit.offered)
    if not offered or unit.intended is None:
        return None
    return max(0.0, 1 - count(group.measured, unit.delivered) / offered)


def rate(group: GroupSummary, which: str) -> float | None:
    """`intended`, `offered` or `delivered` per second, mean over repetitions."""
    unit = of(group)
    named = {"intended": unit.intended, "offered": unit.offered, "delivered": unit.delivered}[which]
    found = group.rates.get(which) or group.rates.get(named or "")
    return found.mean if found and named else None
