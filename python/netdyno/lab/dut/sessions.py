"""Devices under test that keep sessions: how many there are, and all ended by the device's own command."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Mapping
from types import MappingProxyType

from netdyno.errors import Error
from netdyno.lab.dut.base import Dut

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


def tear_down(dut: Dut) -> None:
    """Clear the sessions of a device, and keep what that took (RFC 9693, connection tear-down rate)."""
    if not isinstance(dut, KeepsSessions):
        what = f"{dut.driver} keeps no sessions that could be cleared"
        raise Error("ND-104-07", what, at=dut.place.at, fix="Use the drivers graph or kernel-nat")
    before = _settled(dut)
    took = dut.clear_sessions()
    dut.cleared = {SESSIONS: float(before - dut.sessions()), SECONDS: took}


def _settled(dut: KeepsSessions) -> int:
    """How many sessions there are when no more are opened: the last frames may wait for a core."""
    count, end = dut.sessions(), time.monotonic() + PATIENCE
    while time.monotonic() < end:
        time.sleep(PAUSE)
        before, count = count, dut.sessions()
        if count == before:
            break
    return count
