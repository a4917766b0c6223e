"""What `netdyno run --fleet NAME` connects to, and each host of a fleet by itself."""

from __future__ import annotations

from collections.abc import Callable

from netdyno.experiment.measurer import Connect, Core, FleetHost
from netdyno.fleet import agents
from netdyno.fleet.agents import Agent, Fleet
from netdyno.fleet.client import FleetClient
from netdyno.fleet.launchers import launcher


def connector(name: str, tolerate: int) -> Connect:
    """Connects to a fleet of which `tolerate` hosts may be lost. Raises `ND-104-90` where none is up."""
    return _connector(agents.load(name), tolerate)


def hosts(name: str) -> list[FleetHost]:
    """The hosts of a fleet. Raises `ND-104-90` where none is up."""

    fleet = agents.load(name)

    def alone(agent: Agent) -> FleetHost:
        connect = _connector(Fleet(fleet.name, (agent,)), 0)
        ports = tuple(port.settings() for port in agent.host.ports)
        return FleetHost(agent.host.name, connect, launcher(agent.host).kernel(agent.host), ports)

    return [alone(agent) for agent in fleet.agents]


def _connector(fleet: Fleet, tolerate: int) -> Connect:
    def connect(log: Callable[[str], None]) -> Core:
        return FleetClient(fleet, tolerate, log)

    return connect
