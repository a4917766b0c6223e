"""What `netdyno run --fleet NAME` connects to."""

from __future__ import annotations

from collections.abc import Callable

from netdyno.experiment.measurer import Connect, Core
from netdyno.fleet import agents
from netdyno.fleet.client import FleetClient


def connector(name: str, tolerate: int) -> Connect:
    """Connects to a fleet of which `tolerate` hosts may be lost. Raises `ND-104-90` where none is up."""
    fleet = agents.load(name)

    def connect(log: Callable[[str], None]) -> Core:
        return FleetClient(fleet, tolerate, log)

    return connect
