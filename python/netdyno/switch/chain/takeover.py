"""The controllers' master killed or cut off while TCP connections pass a chain, and what was lost by that."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from netdyno.errors import Error
from netdyno.switch.chain import verify as verifying
from netdyno.switch.chain.connections import ConnectionReport, Connections
from netdyno.switch.chain.lab import ChainLab
from netdyno.switch.chain.proof import proven
from netdyno.switch.chain.talk import free_port
from netdyno.switch.chain.verify import Verification
from netdyno.switch.controller.base import Replaceable, Takeover
from netdyno.switch.controller.embedded import Embedded
from netdyno.switch.controller.kinds import ControllerChoice
from netdyno.switch.tunnel import SWITCH

How = Literal["kill", "partition"]
CONNECTIONS = 8
UNDISTURBED = 0.5
"""Seconds that connections run before and after each kill."""


@dataclass(frozen=True)
class TakeoverReport:
    """Takeovers, the connections that were open meanwhile, and the chain afterwards."""

    takeovers: list[Takeover]
    connections: list[ConnectionReport]
    missing: list[int]
    """Numbers of rules that the switch does not have afterwards."""
    excess: list[int]
    """Cookies of flow entries that it has too often, or that are no rule's."""
    verification: Verification

    @property
    def lost(self) -> str:
        """What was lost; empty: nothing."""
        if odd := next((one for one in self.connections if one.lost), None):
            return f"a TCP connection was lost after {odd.messages:,} messages: {odd.lost}"
        if self.missing or self.excess:
            return f"flow entries are missing {self.missing} or too many {self.excess}"
        return self.verification.first_fault

    def document(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "lost": self.lost, "takeovers": [asdict(one) for one in self.takeovers],
            "connections": [asdict(one) for one in self.connections],
            "flows_missing": self.missing, "flows_excess": self.excess,
            "proof": self.verification.document(),
        }  # fmt: skip


def check(chosen: ControllerChoice, kills: int, how: How) -> None:
    """Raises Error if so many masters of these controllers cannot be killed, or cut off."""
    kind, count = chosen.kind, chosen.count
    if not issubclass(kind, Replaceable) or getattr(chosen.options, "url", None):
        what = f"a controller {kind.kind} cannot be killed here and replaced"
        fix = "Use embedded:N, opendaylight or opendaylight:3"
        raise Error("ND-104-83", what, at="--controller", fix=fix)
    if how == "partition" and kind is not Embedded:
        what = f"a controller {kind.kind} cannot be cut off"
        raise Error("ND-104-83", what, at="--how", fix="Use --how kill, or --controller embedded:N")
    if kind.most_kills(count) < (kills if how == "kill" else 1):
        what = f"{kills} masters of {count} {kind.kind} controllers cannot be gone one after the other"
        fix = "Use more controllers, or fewer --kills"
        raise Error("ND-104-83", what, at="--kills", fix=fix)


def run(
    lab: ChainLab,
    name: str,
    kills: int,
    connections: int = CONNECTIONS,
    how: How = "kill",
    switch: str = SWITCH,
    told: Callable[[Takeover], None] = lambda _: None,
) -> TakeoverReport:
    """Kill the master of a switch's controllers so many times, or cut it off and connect it again.

    Raises Error if the chain does not work before, has too few controllers, or none takes over.
    """
    controller = lab.controllers[switch]
    check(ControllerChoice(type(controller), controller.count, controller.options), kills, how)
    assert isinstance(controller, Replaceable), "it was checked"
    proven(lab, name)
    takeovers: list[Takeover] = []
    talking = Connections(lab, connections, free_port(lab.chain))
    try:
        time.sleep(UNDISTURBED)
        for _ in range(kills):
            if how == "kill" or not isinstance(controller, Embedded):
                takeovers.append(controller.kill_master())
            else:
                taken = controller.partition_master()
                time.sleep(UNDISTURBED)
                takeovers.append(replace(taken, healed=controller.heal(taken.killed)))
            told(takeovers[-1])
            time.sleep(UNDISTURBED)
    finally:
        reports = talking.finish()
    wanted, there = Counter(one.flow.cookie for one in lab.rules), Counter(lab.flow_cookies())
    missing, excess = sorted((wanted - there).elements()), sorted((there - wanted).elements())
    return TakeoverReport(takeovers, reports, missing, excess, verifying.verify(lab))
