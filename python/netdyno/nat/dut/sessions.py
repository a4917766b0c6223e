"""Devices under test that keep sessions: how many there are, and all ended by the device's own command."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Mapping
from types import MappingProxyType

from netdyno.errors import Error
from netdyno.lab.dut.base import Dut
from netdyno.lab.dut.graph import GraphDut, Part
from netdyno.nat import running

SESSIONS, SECONDS = "cleared.sessions", "cleared.seconds"
"""Counters of a device whose sessions were cleared: how many there were, and how long its command took."""
PAUSE, PATIENCE = 0.2, 5.0
"""Seconds between two readings of how many there are, and after which they are cleared all the same."""


class KeepsSessions(ABC):
    """What a device with a table of sessions can do beside the rest."""

    cleared: Mapping[str, float] = MappingProxyType({})
    """What became of the last time that they were cleared; part of its counters."""

    @abstractmethod
    def sessions(self) -> int:
        """How many there are."""

    @abstractmethod
    def clear_sessions(self) -> float:
        """End all of them: the seconds that the command itself took."""


class Sessions(Part, KeepsSessions):
    """Those of a graph that tracks connections."""

    def counters(self) -> dict[str, float]:
        return {"sessions": float(self.sessions()), **self.cleared}

    def sessions(self) -> int:
        return sum(int(one["sessions"]) for one in self.dut.ask("nat.status")["workers"])

    def clear_sessions(self) -> float:
        began = time.monotonic()
        running.clear(self.dut.ask, all=True)
        return time.monotonic() - began


def keeper(dut: Dut) -> KeepsSessions | None:
    """What has the sessions of a device: itself, or a part of it."""
    parts = dut.parts if isinstance(dut, GraphDut) else ()
    return next((one for one in (dut, *parts) if isinstance(one, KeepsSessions)), None)


def tear_down(dut: Dut) -> None:
    """Clear the sessions of a device, and keep what that took (RFC 9693, connection tear-down rate)."""
    kept = keeper(dut)
    if kept is None:
        what = f"{dut.driver} keeps no sessions that could be cleared"
        fix = "Use the driver kernel-nat, or graph with a nat44 element"
        raise Error("ND-104-07", what, at=dut.place.at, fix=fix)
    before = _settled(kept)
    took = kept.clear_sessions()
    kept.cleared = {SESSIONS: float(before - kept.sessions()), SECONDS: took}


def _settled(kept: KeepsSessions) -> int:
    """How many sessions there are when no more are opened: the last frames may wait for a core."""
    count, end = kept.sessions(), time.monotonic() + PATIENCE
    while time.monotonic() < end:
        time.sleep(PAUSE)
        before, count = count, kept.sessions()
        if count == before:
            break
    return count
