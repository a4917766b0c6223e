"""One connection of a fleet and the hosts behind it: an agent, or a relay that speaks with several."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Protocol

from netdyno.core.client import Client
from netdyno.core.result import CaptureReport
from netdyno.core.wire import SeriesPoint, Status, TrialResult
from netdyno.errors import Error
from netdyno.fleet import answers
from netdyno.fleet.agents import Agent, Connection
from netdyno.fleet.captures import HostCapture
from netdyno.fleet.host import LOST, Host, lost, named
from netdyno.fleet.launchers import launcher
from netdyno.fleet.shard import Shard
from netdyno.system.journal import Journal

PATIENCE = 15.0
"""Seconds for a run to end of which the lease has ended."""
SILENCE = 10.0
"""Seconds without an answer to a heartbeat after which a host is lost: its own lease has ended by then."""
OVERDUE = 30.0
"""Seconds that a host may need for a run beyond its phases; then it is lost, though its heart beats."""
Rates = Mapping[str, Mapping[str, Any]]
"""Rates that are asked for, by group."""
Notes = Mapping[str, Mapping[str, Any]]
"""By host, the id of its run and its devices by group, as its controller noted them."""


class Link(Protocol):
    """What a run asks of a connection."""

    client: Client
    status: Status
    lost: Error | None
    elapsed: float
    """Seconds of the run that it has told."""
    overdue: float
    """Seconds that it may need for a run beyond its phases."""

    @property
    def name(self) -> str:
        """The agent's host, or the relay."""

    @property
    def hosts(self) -> Sequence[Host]:
        """Those behind it."""

    def load(self, **more: Any) -> dict[str, Any]:
        """Give each host its shard."""

    def start(self, at: float, seconds: float, drain: float) -> None:
        """Begin at this time of our clock, by each host's own; `seconds`: of all phases, with `drain`."""

    def point(self, sample: Mapping[str, Any]) -> SeriesPoint:
        """A sample that it sent. Raises `ND-91-32` where it is none."""

    def rate(self, shares: Mapping[str, Rates], timeout: float | None) -> list[dict[str, Any]]:
        """Ask each host for its share of other rates; the changes."""

    def result(self) -> TrialResult:
        """What its hosts measured, with a report of each under `hosts`."""

    def collect(self, noted: Notes) -> TrialResult | None:
        """What its hosts have kept of a run that lost its controller; those that have nothing are lost."""

    def loss(self, why: Error) -> tuple[Error, dict[str, Error]]:
        """That it does not answer any more: in one sentence, and by host."""

    def named(self, error: Error) -> Error:
        """An error that came over it, with the host's name."""

    def close(self) -> None:
        """Hang up."""


class AgentLink:
    """A connection to an agent."""

    def __init__(self, client: Client, connection: Connection, host: Host, agent: Agent) -> None:
        self._agent = agent
        self.client = client
        self.hosts: Sequence[Host] = (host,)
        self.status = Status()
        self.lost: Error | None = None
        self.elapsed = 0.0
        self.overdue = OVERDUE
        self._connection = connection
        self._capture: HostCapture | None = None

    @property
    def name(self) -> str:
        """That of its host."""
        return self.hosts[0].name

    def load(self, **more: Any) -> dict[str, Any]:
        """Its shard is a profile."""
        shard = self.hosts[0].shard
        answer = self.client.call("run.load", profile=shard.profile, **more)
        loaded = answers.loaded(answer, shard.devices)
        self.hosts[0].run = loaded["run"]
        return loaded

    def point(self, sample: Mapping[str, Any]) -> SeriesPoint:
        """Of its own groups alone."""
        return answers.point(sample, self.hosts[0].shard.devices)

    def start(self, at: float, seconds: float, drain: float) -> None:
        """Its clock is that much ahead of ours."""
        host = self.hosts[0]
        host.at = at + host.offset.seconds
        self.client.call("run.start", at=host.at)

    def start_capture(self, path: Path, settings: Mapping[str, Any]) -> None:
        """Keep its packets."""
        self._capture = HostCapture(self._agent, self.client, path)
        self._capture.start(settings)
        self.hosts[0].capture = self._capture.file.name

    def stop_capture(self) -> CaptureReport:
        """Have them."""
        assert self._capture is not None, "it was started"
        found = self._capture.stop()
        if found.state == "failed":
            self.hosts[0].capture = None
        return found

    def rate(self, shares: Mapping[str, Rates], timeout: float | None) -> list[dict[str, Any]]:
        """Its share."""
        return answers.changes(self.client.call("run.rate", timeout=timeout, groups=shares[self.name]))

    def result(self) -> TrialResult:
        """Its own; one that heard nothing from us is lost, too."""
        found = answers.part(self.client.result(), self.hosts[0].shard.devices)
        if found.stopped == "lease" and found.error is None:
            why = lost(self.name, "for more than 3 s: its agent heard nothing from us, and stopped")
            found.error = why.as_dict()
        report = self.hosts[0].report(found)
        return TrialResult.model_validate(found.model_dump() | {"hosts": [report]})

    def collect(self, noted: Notes) -> TrialResult | None:
        """Its own, once its run is over."""
        (host,), run = self.hosts, noted[self.name]["run"]
        host.shard = Shard({}, dict(noted[self.name]["devices"]))
        until = time.monotonic() + PATIENCE
        try:
            while (status := self.client.status()).run == run and not status.ended:
                if time.monotonic() > until:
                    raise Error(LOST, f"its run goes on after {PATIENCE:g} s")
                time.sleep(0.2)
            if status.run != run:
                raise Error(LOST, "its agent has had another run since, or was started again")
            found = answers.part(self.client.result(), host.shard.devices)
        except Error as e:
            host.lost = lost(self.name, f"with what it measured: {e.what}")
            return None
        return TrialResult.model_validate(found.model_dump() | {"hosts": [host.report(found)]})

    def loss(self, why: Error) -> tuple[Error, dict[str, Error]]:
        """The host's; we hang up, so that an agent that still runs stops with its lease."""
        threading.Thread(target=self.client.close, name=f"fleet-close-{self.name}", daemon=True).start()
        error = lost(self.name, f"after {self.elapsed:.1f} s of the run: {why.what}")
        return error, {self.name: error}

    def named(self, error: Error) -> Error:
        """By its host."""
        return named(self.name, error)

    def close(self) -> None:
        """Hang up, and end the way there."""
        for one in (self.client, self._connection):
            with contextlib.suppress(Error, OSError):
                one.close()


def connect(agent: Agent, token: str, notes: Journal) -> AgentLink:
    """A connection to an agent, with its clock measured. Raises where it does not answer."""
    with ExitStack() as undo:
        way = launcher(agent.host).connect(agent, token, notes)
        undo.callback(way.close)
        client = Client(way.address, silence=SILENCE)
        undo.callback(client.close)
        about = answers.about(client.call("core.describe"), str(way.address))
        host = Host(agent.host, about, way.offset(client))
        undo.pop_all()
    return AgentLink(client, way, host, agent)
