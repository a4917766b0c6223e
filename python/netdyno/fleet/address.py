"""The launcher `address`: an agent that runs already, as a service of its machine or of a cluster.

It serves mutual TLS (`netdynod --mtls HOST:PORT --identity FOLDER`), and its certificate has the host's name.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from netdyno.core.address import Address
from netdyno.core.client import Client
from netdyno.core.mtls import Identity
from netdyno.errors import Error
from netdyno.fleet import answers
from netdyno.fleet.agents import Agent, Offset, measured
from netdyno.fleet.hosts import CERTIFICATES, HostSpec
from netdyno.system.journal import Journal

PORT = 7448
WAIT = 10.0
"""Seconds for an answer."""


class Secure:
    """A way to an agent over mutual TLS."""

    def __init__(self, host: str, port: int, folder: Path, name: str) -> None:
        self.address = Address(None, host, port, identity=Identity(folder, name))

    def offset(self, client: Client) -> Offset:
        """What the agent says of its clock."""
        return measured(lambda: answers.clock(client.call("core.clock", timeout=WAIT)))

    def close(self) -> None:
        """Nothing to do: the connection is the client's."""


def shut_down(way: Secure) -> bool:
    """End the agent at the other end; whether one served there."""
    try:
        client = Client(way.address, timeout=WAIT)
    except Error as e:
        if e.code == "ND-91-21" and "refused" in e.what:
            return False
        raise
    with client:
        client.acquire()
        try:
            client.call("core.shutdown")
        except Error as e:
            # it may be gone before its answer is out: then nothing serves there any more
            if e.code != "ND-91-21" or not _gone(way):
                raise
    return True


def _gone(way: Secure) -> bool:
    try:
        Client(way.address, timeout=WAIT).close()
    except Error as e:
        return e.code == "ND-91-21" and "refused" in e.what
    return False


class ByAddress:
    """Takes agents that others started into a fleet."""

    remote = True

    def brings_files(self, _: HostSpec) -> bool:
        """Nothing but the agent's own port leads there."""
        return False

    def start(self, fleet: str, host: HostSpec, notes: Journal) -> Agent:
        """See that it answers. Raises `ND-92-90`, or `ND-92-92` where certificates do not fit."""
        agent = _agent(host)
        self._about(agent)
        return agent

    def connect(self, agent: Agent, token: str, notes: Journal) -> Secure:
        """Over mutual TLS."""
        return _way(agent)

    def stop(self, agent: Agent) -> bool:
        """End it, so that no certificate opens it, unless its service manager starts it again."""
        return shut_down(_way(agent))

    def kernel(self, host: HostSpec) -> None:
        """None: its agent alone is reached."""

    def examine(self, host: HostSpec) -> Iterator[tuple[bool, str, str]]:
        """Whether it answers, and what it is."""
        about = self._about(_agent(host))
        yield True, f"netdynod {about['version']}, {len(about['cores'])} cores", ""
        if away := [core for core in host.cores if core not in about["cores"]]:
            yield False, f"there is no core {away[0]}", "Use cores of the host"

    @staticmethod
    def _about(agent: Agent) -> dict[str, Any]:
        try:
            with Client(_way(agent).address, timeout=WAIT) as client:
                return answers.about(client.call("core.describe"), client.path)
        except Error as e:
            if e.code != "ND-91-21":
                raise
            fix = "Start it with `netdynod --mtls HOST:PORT --identity FOLDER`; name its port with `port:`"
            raise Error("ND-92-90", e.what.replace("daemon", "agent"), at=e.at, fix=fix) from e


def _agent(host: HostSpec) -> Agent:
    return Agent(host, "", identity=host.certificates or CERTIFICATES, port=host.port or PORT)


def _way(agent: Agent) -> Secure:
    return Secure(agent.host.address or agent.host.name, agent.port, Path(agent.identity), agent.host.name)
