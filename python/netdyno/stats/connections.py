"""How much a number of connections carries (Little's law), and whether workers had the CPU to use them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from netdyno.core.result import GroupSummary, Repetition
from netdyno.core.wire import GroupResult

FULL = 0.9
"""Share of its time from which on a worker may be what limits the load."""
STARVED = 0.1
"""Share of its time that a worker waited for its core, from which on the core is what it lacks."""
ROOM = 1.1
"""Connections above those that Little's law asks for: answers do not all take as long."""
STEAL = 0.05
"""Share of the processors' time that the host took, from which on it disturbs."""


def cpu_was_short(reps: Sequence[Repetition]) -> bool:
    """Whether CPU was short: used up by a worker, waited for, or taken by the host."""
    full = any(w.cpu >= FULL or w.starved >= STARVED for r in reps for w in r.workers)
    return full or any((r.steal or 0.0) >= STEAL for r in reps)


@dataclass(frozen=True)
class ConnectionsNeeded:
    """Load that busy connections carried, and the connections that the intended load needs."""

    group: str
    had: int
    carried: float
    """Per second, by all of them."""
    intended: float
    """Per second."""

    @property
    def each(self) -> float:
        """How long a message keeps a connection busy, seconds."""
        return self.had / self.carried

    @property
    def devices(self) -> int:
        """How many carry the load, to two significant digits."""
        least = ROOM * self.intended * self.each
        scale: int = 10 ** max(0, math.floor(math.log10(max(1.0, least))) - 1)
        return max(self.had + 1, math.ceil(least / scale - 1e-9) * scale)

    def __str__(self) -> str:
        time = f"{self.each * 1e3:.3g} ms" if self.each < 1 else f"{self.each:.3g} s"
        return f"{self.had} connection{'s' * (self.had != 1)} × {time} = {self.carried:,.3g}/s"


def needed(group: GroupSummary | GroupResult) -> ConnectionsNeeded | None:
    """Of a group whose connections were all busy; None where nothing is known."""
    rates = {
        name: float(rate if isinstance(rate, (int, float)) else rate.mean)
        for name, rate in group.rates.items()
    }
    flows = bool(rates.get("flows_intended"))
    intended = rates.get("flows_intended" if flows else "messages_intended", 0.0)
    carried = rates.get("messages_delivered", 0.0)
    if flows and group.measured.flows_started:
        # messages of each flow, so that both are counted alike
        carried *= group.measured.flows_started / max(1, group.measured.messages_sent)
    if not group.devices or not carried or not intended:
        return None
    return ConnectionsNeeded(group.name, group.devices, carried, intended)
