"""Several agents as one core: a run is loaded in shards, begins everywhere at one time, and is told as one.

What fails on one host fails the run, with the host's name; a host that is lost ends it, unless as few are
lost as may be tolerated. What the other hosts measured is kept either way. A fleet of more agents than one
process should speak with is reached through relays.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from netdyno import paths
from netdyno.core import defaults, redaction
from netdyno.core.address import Address
from netdyno.core.client import Subscription
from netdyno.core.wire import Status, TrialResult
from netdyno.errors import Error
from netdyno.fleet import captures, orphan, rates, relays, shard
from netdyno.fleet.agents import Fleet
from netdyno.fleet.host import Host, lost
from netdyno.fleet.link import AgentLink, Link
from netdyno.fleet.links import Links, connect_all
from netdyno.fleet.orphan import RunNote
from netdyno.fleet.steer import Methods, SteeringSocket
from netdyno.system.journal import Journal, journal
from netdyno.units import seconds

LEAD, LEAD_EACH = 0.5, 0.01
"""Seconds from now to the common start, and more of them for each that one process tells: all must be told
before."""
WRITES = "ND-104-12"
"""The code of an error where another connection is the writer."""
STEERING = ("run.stop", "run.pause", "run.resume")


class FleetClient:
    """What a trial needs of a core, over all agents of a fleet."""

    def __init__(self, fleet: Fleet, tolerate: int = 0, log: Callable[[str], None] = lambda _: None) -> None:
        """Connect to all; raises `ND-91-50` where one does not answer, `ND-92-91` where versions differ."""
        token = f"{int(time.time() * 1000) % 10**9:09d}"
        self.address = Address(paths.with_folder(paths.runtime() / f"nd-run-{token}.sock"))
        """Where others of this machine see and steer the run, as that of a daemon."""
        self._fleet = fleet.name
        self._tolerate = tolerate
        self._log = log
        self._links = Links(self._lost)
        self._absent: dict[str, Error] = {}
        """Hosts that were lost before the run, and are done without."""
        self._profile: dict[str, Any] = {}
        self._groups: list[dict[str, Any]] = []
        self._at = 0.0
        self._phases: dict[str, float] = {}
        self._noted = False
        self._capture = Path()
        self._steering = ExitStack()
        try:
            self._connect(fleet, token, journal())
            self._same_version()
            self._steered(journal())
        except BaseException:
            self.close()
            raise

    # ---- what a trial asks of a core

    def call(self, method: str, *, timeout: float | None = None, **params: Any) -> Any:
        """A request to all hosts."""
        if method == "run.load":
            return self._load(timeout=timeout, **params)
        if method == "run.start":
            return self._start()
        if method == "run.rate":
            return self._rate(timeout=timeout, **params)
        if method == "core.describe":
            return self._hosts[0].about
        if method == "capture.start":
            return self._start_capture(**params)
        if method == "capture.stop":
            return self._stop_capture()
        if method in STEERING:
            return self._links.order(method, timeout)
        answers = self._links.each(lambda link: link.client.call(method, timeout=timeout, **params))
        return next(iter(answers.values()), None)

    def acquire(self) -> None:
        """Become the writer of all, and keep their leases."""
        try:
            self._links.each(lambda link: link.client.acquire())
        except Error as e:
            if e.code != WRITES:
                raise
            what = f"the fleet {self._fleet} has another run under way"
            fix = f"Wait for it, or stop it; `netdyno fleet status {self._fleet}` shows how far it is"
            raise Error(WRITES, what, at="--fleet", fix=fix) from e

    def release(self) -> None:
        """Let others write."""
        self._links.each(lambda link: link.client.release())

    def subscribe(self) -> Subscription:
        """Sums of samples and changes of state from now on."""
        return self._links.subscribe()

    def status(self) -> Status:
        """Where the run is; `failed` once a host is lost or has failed."""
        return self._links.status()

    def result(self) -> TrialResult:
        """What the hosts that are left measured, merged. Raises when there is none.

        With an error where a host was lost, which may be by its own result."""
        started = datetime.fromtimestamp(self._at, UTC).isoformat(timespec="milliseconds")
        found = self._links.result(self._profile, started.replace("+00:00", "Z"))
        absent = [{"name": name, "lost": error.what} for name, error in self._absent.items()]
        hosts = (found.model_extra or {})["hosts"] + absent
        error = self._links.failure.as_dict() if self._links.failure else found.error
        return TrialResult.model_validate(found.model_dump() | {"hosts": hosts, "error": error})

    def flows(self) -> Iterator[list[Any]]:
        """The summary of each device; devices are numbered through all hosts."""
        return self._links.flows(self._log)

    def close(self) -> None:
        """Hang up everywhere."""
        if self._noted:
            orphan.forget(self._fleet)
        self._steering.close()
        self._links.close()

    # ---- hosts

    @property
    def _hosts(self) -> list[Host]:
        return self._links.hosts

    def _connect(self, fleet: Fleet, token: str, notes: Journal) -> None:
        """Connect to all hosts; those that do not answer are done without as far as that is tolerated."""
        parts = relays.groups(fleet.agents, fleet.agents_per_relay)
        if parts:
            made = relays.start(parts, token, notes, self._links.lose_behind)
            self._links.links.extend(made)
            errors = {name: error for one in made for name, error in one.absent.items()}
            self._log(f"{len(fleet.agents)} agents through {len(made)} relays")
        else:
            links, errors = connect_all(fleet.agents, token, notes)
            self._links.links.extend(links)
        for name, e in errors.items():
            fix = f"See `netdyno fleet status {fleet.name}`"
            self._absent[name] = lost(name, f"before the run: {e.what}", fix)
        if len(self._absent) > self._tolerate or not self._hosts:
            raise next(iter(self._absent.values()))
        for error in self._absent.values():
            self._log(f"{error.what}; going on without it (--tolerate {self._tolerate})")

    def _same_version(self) -> None:
        first = self._hosts[0]
        for host in self._hosts[1:]:
            if host.about["version"] != first.about["version"]:
                what = (
                    f"its agent is version {host.about['version']}, "
                    f"that of {first.name} is {first.about['version']}"
                )
                fix = "Run `netdyno fleet down` and `netdyno fleet up` again"
                raise Error("ND-92-91", what, at=host.name, fix=fix)

    def _steered(self, notes: Journal) -> None:
        """Let others of this machine see and steer the run."""
        path = self.address.path
        assert path is not None, "it is a Unix socket"
        self._steering.callback(notes.undo, notes.write("path", path=str(path)))
        methods: Methods = {
            "run.status": lambda: self.status().model_dump(),
            "run.rate": lambda **given: self.call("run.rate", **given),
            **{name: partial(self.call, name) for name in STEERING},
        }
        self._steering.callback(SteeringSocket(path, methods).close)

    def _lost(self, hosts: list[Host], why: Error) -> None:
        """The run goes on without hosts that are lost, or fails by them."""
        away = [one for one in self._hosts if one.lost]
        if len(away) + len(self._absent) > self._tolerate or len(away) == len(self._hosts):
            self._links.fail(why)
        else:
            self._log(f"{why}; going on without (--tolerate {self._tolerate})")

    # ---- a run

    def _load(self, profile: dict[str, Any], **more: Any) -> dict[str, Any]:
        self._profile = profile
        phases = defaults.filled(profile, "phases") | (more.get("trial") or {})
        self._phases = {name: seconds(phases[name]) for name in ("warmup", "measure", "drain")}
        factor = (more.get("trial") or {}).get("load")
        whole = shard.scaled(profile, factor) if isinstance(factor, int | float) else profile
        shards = shard.shards(whole, [host.part for host in self._hosts])
        for host, one in zip(self._hosts, shards, strict=True):
            host.shard = one
        order = [str(group.get("name")) for group in profile.get("groups") or ()]
        if not self._links.active:
            raise self._links.failure or Error(shard.APART, "no host has a device of it", at="groups")
        loaded = self._links.load(order, **more | {"timeout": more.get("timeout") or 60.0})
        if self._links.failure:
            raise self._links.failure
        self._groups = loaded["groups"]
        for host in self._hosts:
            part = ", ".join(f"{count} of {name}" for name, count in host.shard.devices.items()) or "nothing"
            clock = f"; clock {host.offset.seconds * 1e3:+.3f} ms ± {host.offset.error * 1e3:.3f} ms"
            self._log(f"host {host.name}: devices {part}{clock}")
        return loaded

    def _start(self) -> dict[str, Any]:
        """Begin everywhere at one time, by each host's own clock."""
        links = self._links.active
        told = len(links) + max((_told(link) for link in links), default=0)
        self._at = time.time() + LEAD + LEAD_EACH * told
        self._links.start(self._at, sum(self._phases.values()), self._phases["drain"])
        self._noted = True
        orphan.note(self._fleet, self._note())
        return self.status().model_dump()

    def _note(self) -> RunNote:
        """For whoever collects it when we are gone."""
        hosts = {
            host.name: {"run": host.run, "devices": dict(host.shard.devices)}
            for host in self._hosts
            if host.shard.devices
        }
        return RunNote(redaction.hide_in(self._profile), self._groups, self._at, hosts)

    def _start_capture(self, path: str, **settings: Any) -> dict[str, Any]:
        """Each host keeps its packets in a file of its own."""
        if not all(isinstance(link, AgentLink) for link in self._links.links):
            fix = "Leave the capture out, or use a fleet of at most `agents_per_relay` hosts"
            raise Error(shard.APART, "no files come through relays", at="capture", fix=fix)
        self._capture = Path(path)
        self._links.each(lambda link: _agent(link).start_capture(self._capture, settings), self._links.active)
        return {}

    def _stop_capture(self) -> dict[str, Any]:
        """The files of all that are left."""
        found = self._links.each(lambda link: _agent(link).stop_capture(), self._links.left)
        return captures.merged(found, self._capture)

    def _rate(self, groups: dict[str, Any], timeout: float | None = None) -> dict[str, Any]:
        """Other rates from now on, of which each host has its share."""
        every = [host.shard for host in self._hosts if host.shard.devices]
        shares = {
            host.name: rates.share(groups, host.shard, every) for host in self._hosts if host.shard.devices
        }
        return {"run": self._links.run(), "rates": self._links.rate(shares, timeout)}


def _agent(link: Link) -> AgentLink:
    assert isinstance(link, AgentLink), "relays were refused"
    return link


def _told(link: Link) -> int:
    """How many hosts a connection has to tell in turn."""
    return len(link.hosts) if len(link.hosts) > 1 else 0
