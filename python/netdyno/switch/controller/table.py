"""The switch's own flow table as witness: it has each flow that a controller was given, and no other."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

from netdyno.errors import Error
from netdyno.switch.driver.base import Flow, Switch
from netdyno.switch.openflow import action

_COOKIE = re.compile(r"\bcookie=0x([0-9a-f]+)")
_AGE = re.compile(r"\bduration=([0-9.]+)s")
_PORT = re.compile(r"\bin_port=\"?([0-9]+)\"?")
_ACTIONS = re.compile(r" actions=(\S+)")
FIX = "Look whether it runs, and what its log says"


class TableEntry(NamedTuple):
    """A flow as a switch lists it."""

    cookie: int
    port: int
    """That it matches; 0: any."""
    actions: str


def expected(switch: Switch, flow: Flow) -> TableEntry:
    """A flow as the switch is to list it. Raises Error if it names a port that is not there."""
    switch.check_ports(flow)
    numbers = switch.numbers
    port = numbers[flow.in_port] if flow.in_port else 0
    return TableEntry(flow.cookie, port, action.text(action.renamed(flow.actions, numbers)) or "drop")


def installed(switch: Switch, ours: Callable[[int], bool]) -> list[TableEntry]:
    """Flows that the switch has, of those with such cookies."""
    found = []
    for line in switch.flow_texts():
        cookie, port, actions = (one.search(line) for one in (_COOKIE, _PORT, _ACTIONS))
        if cookie and actions and ours(int(cookie[1], 16)):
            found.append(TableEntry(int(cookie[1], 16), int(port[1]) if port else 0, actions[1]))
    return sorted(found)


def ages(switch: Switch, ours: Callable[[int], bool]) -> dict[int, list[float]]:
    """For how many seconds the switch has had its flows, by their cookies."""
    found: dict[int, list[float]] = {}
    for line in switch.flow_texts():
        cookie, age = _COOKIE.search(line), _AGE.search(line)
        if cookie and age and ours(int(cookie[1], 16)):
            found.setdefault(int(cookie[1], 16), []).append(float(age[1]))
    return found


def await_table(
    switch: Switch,
    wanted: Sequence[TableEntry],
    ours: Callable[[int], bool],
    trouble: Callable[[], str],
    name: str,
    patience: float,
) -> None:
    """Wait until the switch has these flows, and no other of ours. Raises Error that says what is missing.

    `trouble` says why that cannot come; empty: it still can.
    """
    right, until = sorted(wanted), time.monotonic() + patience
    while (there := installed(switch, ours)) != right:
        if why := trouble():
            raise Error("ND-92-62", why, at="controller", fix=FIX)
        if time.monotonic() > until:
            missing, excess = sum(one not in there for one in right), sum(one not in right for one in there)
            what = (
                f"{name} has not written the rules within {patience:g} s: {missing} of {len(right)} are "
                f"missing, {excess} too many"
            )
            raise Error("ND-92-62", what, at="controller", fix=FIX)
        time.sleep(0.05)
    switch.settle()
