"""Flows of a switch that its chain did not ask for, and that packets of the chain meet before its own."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from netdyno.switch.driver.base import Flow, Switch
from netdyno.switch.openflow import action

_STATE = re.compile(r"(?:cookie|duration|table|n_packets|n_bytes|idle_age|hard_age|idle_timeout|hard_timeout"
                    r"|importance)=\S+|send_flow_rem|reset_counts|check_overlap|no_packet_counts"
                    r"|no_byte_counts")  # fmt: skip
_COOKIE, _TABLE = re.compile(r"\bcookie=0x([0-9a-f]+)"), re.compile(r"\btable=([0-9]+)")
_PACKETS = re.compile(r"\bn_packets=([0-9]+)")
_DEFAULT_PRIORITY = 32_768
_DISCOVERY = ("dl_type=0x88cc", "dl_type=0x8942")
"""Of controllers that look for links: LLDP, and BDDP. No packet of a chain is any."""


class Listed(NamedTuple):
    """A flow as a switch lists it."""

    cookie: int
    priority: int
    port: str
    """That it matches, as it is listed; empty: any."""
    match: tuple[str, ...]
    """The rest of it."""
    actions: str
    packets: int

    def __str__(self) -> str:
        match = ",".join(filter(None, (f"in_port={self.port}" if self.port else "", *self.match))) or "any"
        return f"cookie={self.cookie:#x}, priority={self.priority}, {match} → {self.actions}"


def listed(lines: Sequence[str]) -> Iterator[Listed]:
    """Flows of the first table, from the switch's own tool."""
    for line in lines:
        head, arrow, actions = line.partition(" actions=")
        cookie, table, packets = (one.search(head) for one in (_COOKIE, _TABLE, _PACKETS))
        if not arrow or cookie is None or (table and table[1] != "0"):
            continue
        words = [one for one in re.split(r"[ ,]+", head) if one and not _STATE.fullmatch(one)]
        known = dict(one.split("=", 1) for one in words if one.startswith(("priority=", "in_port=")))
        yield Listed(
            int(cookie[1], 16), int(known.get("priority", _DEFAULT_PRIORITY)),
            known.get("in_port", "").strip('"'),
            tuple(one for one in words if not one.startswith(("priority=", "in_port="))),
            actions.strip(), int(packets[1]) if packets else 0,
        )  # fmt: skip


def foreign(
    switch: Switch, flows: Sequence[Flow], number: Callable[[int], int], own: Callable[[int], bool]
) -> list[Listed]:
    """Those that packets at the ports of these flows can meet first. `number` tells the number of a flow by
    its cookie in the switch, `own` whether a flow is of how the controller works."""
    wanted = {one.cookie: one for one in flows}
    ports = {name: str(port) for name, port in switch.numbers.items()}
    least: dict[str, int] = {}
    others: list[Listed] = []
    mine: dict[int, list[Listed]] = defaultdict(list)
    for one in listed(switch.flow_texts()):
        if number(one.cookie) in wanted:
            mine[number(one.cookie)].append(one)
        elif not own(one.cookie):
            others.append(one)
    for cookie, same in mine.items():
        flow = wanted[cookie]
        text = action.text(action.renamed(flow.actions, switch.numbers)) or "drop"
        port = ports.get(flow.in_port, "")
        # a controller may have moved its priority: what has it wins, then what does the same
        first = max(
            same, key=lambda one: (one.port == port, one.priority == flow.priority, one.actions == text)
        )
        others += [one for one in same if one is not first]
        if port:
            least[port] = min(first.priority, least.get(port, first.priority))
    return [
        one for one in others
        if not any(word in one.match for word in _DISCOVERY)
        and any(one.priority >= known for port, known in least.items() if one.port in ("", port))
    ]  # fmt: skip
