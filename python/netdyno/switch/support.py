"""Which switches this machine can run: of every driver whether, its version, and why not."""

from __future__ import annotations

from dataclasses import dataclass

from netdyno.lab.dut.base import DutSite
from netdyno.switch.driver import DRIVERS


@dataclass(frozen=True)
class Support:
    """A switch on this machine."""

    name: str
    about: str
    works: bool
    why: str
    """What it lacks, if it does not work."""
    version: str
    openflow: bool
    ports: int | None
    """How many it can join at most; None: as many as there are."""


def support() -> list[Support]:
    """Of every driver."""
    found = []
    for name, kind in DRIVERS.items():
        why = kind.missing()
        version = kind(DutSite("switch", "")).version() if not why else ""
        found.append(Support(name, kind.about, not why, why, version, kind.openflow, kind.most_ports))
    return found
