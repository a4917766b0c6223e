"""The program of a relay: `python -m netdyno.fleet.relay DESCRIPTOR`.

A relay speaks with some agents of a fleet as a controller does, and is for its controller what an agent is,
over a socket that both have from the start: samples, counts and histograms are merged on the way. Requests
are those of a daemon; those that concern hosts have what each is to do. It ends with its controller.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import threading
import time
from collections.abc import Mapping
from typing import Any

from netdyno.core.client import Event, Subscription
from netdyno.core.wire import SeriesPoint, TrialResult
from netdyno.errors import Error
from netdyno.fleet import merge
from netdyno.fleet.agents import Agent
from netdyno.fleet.host import Host
from netdyno.fleet.link import Notes
from netdyno.fleet.links import Links, connect_all
from netdyno.fleet.shard import Shard
from netdyno.fleet.steer import Methods, answer
from netdyno.system.journal import journal

LEASE = 3.0
"""Seconds without a heartbeat after which the controller is gone, as for an agent."""
LOST = "hosts.lost"
"""What it tells of hosts that it has lost: `{host: error}`."""


class Relay:
    """Answers one controller."""

    def __init__(self, controller: socket.socket) -> None:
        self._stream = controller.makefile("rwb")
        self._sending = threading.Lock()
        self._links = Links(self._lost)
        self._name = ""
        self._heard: float | None = None
        self.methods: Methods = {
            "relay.connect": self._connect,
            "control.acquire": self._acquire,
            "control.heartbeat": self._heartbeat,
            "control.release": self._release,
            "stats.subscribe": self._subscribe,
            "run.load": self._load,
            "run.start": self._links.start,
            "run.rate": lambda shares: {"rates": self._links.rate(shares)},
            "run.stop": lambda: self._links.order("run.stop"),
            "run.pause": lambda: self._links.order("run.pause"),
            "run.resume": lambda: self._links.order("run.resume"),
            "run.status": lambda: self._links.status().model_dump(),
            "run.result": self._result,
            "run.collect": self._collect,
            "run.flows": self._flows,
        }

    def serve(self) -> None:
        """Until the controller hangs up, or is not heard."""
        threading.Thread(target=self._watch, name="relay-lease", daemon=True).start()
        while line := self._stream.readline():
            threading.Thread(target=self._answer, args=(line,), daemon=True).start()

    def close(self) -> None:
        """Hang up on all agents."""
        self._links.close()

    def _answer(self, line: bytes) -> None:
        # a heartbeat does not wait for a request that takes its time
        self._send(answer(self.methods, line))

    def _send(self, message: dict[str, Any]) -> None:
        try:
            with self._sending:
                self._stream.write(json.dumps(message).encode() + b"\n")
                self._stream.flush()
        except OSError:
            # its end of file ends `serve`
            return

    def _tell(self, method: str, params: Any) -> None:
        self._send({"jsonrpc": "2.0", "method": method, "params": params})

    def _watch(self) -> None:
        while True:
            time.sleep(LEASE / 10)
            heard = self._heard
            if heard is not None and time.monotonic() - heard > LEASE:
                # connections end with the process, and the agents' runs with their leases
                os._exit(1)

    def _connect(self, name: str, agents: list[dict[str, Any]], token: str) -> dict[str, Any]:
        """Connect to agents, and say what they are, and why some are not there."""
        self._name = name
        links, absent = connect_all([Agent.of(one) for one in agents], token, journal())
        self._links.links.extend(links)
        return {
            "journal": str(journal().path),
            "hosts": {
                host.name: {"about": host.about, "offset": host.offset.seconds, "error": host.offset.error}
                for host in self._links.hosts
            },
            "absent": {host: error.as_dict() for host, error in absent.items()},
        }

    def _acquire(self) -> dict[str, Any]:
        self._links.each(lambda link: link.client.acquire())
        self._heard = time.monotonic()
        return {"writer": True}

    def _heartbeat(self) -> dict[str, Any]:
        if self._heard is not None:
            self._heard = time.monotonic()
        return {}

    def _release(self) -> dict[str, Any]:
        self._heard = None
        self._links.each(lambda link: link.client.release())
        return {}

    def _subscribe(self) -> dict[str, Any]:
        events = self._links.subscribe()
        threading.Thread(target=self._forward, args=(events,), name="relay-events", daemon=True).start()
        return {}

    def _forward(self, events: Subscription) -> None:
        while True:
            event = events.next()
            if event:
                self._pass_on(event)

    def _pass_on(self, event: Event) -> None:
        if event.sample:
            point = merge.thinned(SeriesPoint.model_validate(event.sample), self._name)
            self._tell("stats.sample", point.model_dump())
        if event.status:
            self._tell("run.state", event.status.model_dump())

    def _load(self, shards: Mapping[str, Mapping[str, Any]], groups: list[str], **more: Any) -> Any:
        for host in self._links.hosts:
            given = shards[host.name]
            host.shard = Shard(dict(given["profile"]), dict(given["devices"]))
        self._groups = groups
        loaded = self._links.load(groups, **more)
        return loaded | {"runs": {host.name: host.run for host in self._links.hosts if host.run}}

    def _result(self) -> dict[str, Any]:
        return self._thinned(self._links.result(_profile(self._groups), ""))

    def _collect(self, noted: Notes, groups: list[str]) -> dict[str, Any]:
        """What hosts have kept of a run that another controller has begun, and those that have nothing."""
        found = self._links.collect(noted, _profile(groups), "")
        return {
            "result": self._thinned(found) if found else None,
            "lost": {host.name: host.lost.as_dict() for host in self._links.hosts if host.lost},
        }

    def _thinned(self, found: TrialResult) -> dict[str, Any]:
        found.series = [merge.thinned(point, self._name) for point in found.series]
        return found.model_dump()

    def _flows(self, offset: int, limit: int) -> dict[str, Any]:
        """A page of the summaries of all hosts."""
        rows: list[Any] = []
        total = 0
        for link in self._links.left:
            room = limit - len(rows)
            told = link.client.call("run.flows", offset=max(0, offset - total), limit=max(1, room))
            rows += told["flows"][:room]
            total += int(told["total"])
        return {"flows": rows, "total": total}

    def _lost(self, hosts: list[Host], why: Error) -> None:
        self._tell(LOST, {host.name: host.lost.as_dict() for host in hosts if host.lost})


def _profile(groups: list[str]) -> dict[str, Any]:
    """What merging asks of a profile: the order of its groups."""
    return {"groups": [{"name": name} for name in groups]}


def main() -> None:
    """Serve the controller whose socket is inherited."""
    relay = Relay(socket.socket(fileno=int(sys.argv[1])))
    try:
        relay.serve()
    finally:
        relay.close()


if __name__ == "__main__":
    main()
