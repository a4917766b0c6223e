"""The launchers by name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from netdyno.fleet.address import ByAddress
from netdyno.fleet.agents import Agent, Connection, Launcher
from netdyno.fleet.hosts import HostSpec
from netdyno.fleet.local import Local
from netdyno.fleet.ray import Ray
from netdyno.fleet.ssh import Ssh
from netdyno.system.journal import Journal

LAUNCHERS: Mapping[str, Launcher] = {"local": Local(), "ssh": Ssh(), "address": ByAddress(), "ray": Ray()}
"""`launcher:` of a host → what starts and ends its agent."""


def launcher(host: HostSpec) -> Launcher:
    """What starts and ends the agent of a host."""
    return LAUNCHERS[host.launcher]


@contextmanager
def connected(agent: Agent, token: str, notes: Journal) -> Iterator[Connection]:
    """A way to an agent for some time."""
    one = launcher(agent.host).connect(agent, token, notes)
    try:
        yield one
    finally:
        one.close()
