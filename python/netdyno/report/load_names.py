"""Units of load, as a page calls them."""

from __future__ import annotations

from collections.abc import Mapping

from netdyno.core import load_unit
from netdyno.core.result import GroupSummary, Repetition
from netdyno.core.wire import LoadUnit
from netdyno.report.text import Data, M, Msg

NAMES: Mapping[str, Msg] = {
    "messages": M("messages"),
    "calls": M("calls"),
    "registrations": M("registrations"),
    "requests": M("requests"),
    "flows": M("flows"),
}


def name(unit: LoadUnit) -> Msg | Data:
    """In the plural."""
    return NAMES.get(unit.name) or Data(unit.name)


def units(repetition: Repetition) -> dict[str, LoadUnit]:
    """Of each group of a trial."""
    return {group.name: load_unit.of(group) for group in repetition.groups}


def asked(groups: list[GroupSummary]) -> list[GroupSummary]:
    """Those whose own load it is: who is called counts the same calls again. All, if there are no others."""
    return [group for group in groups if load_unit.of(group).intended is not None] or groups
