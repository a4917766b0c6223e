"""Several agents as one core: a run is loaded in shards, begins everywhere at one time, and is told as one.

What fails on one host fails the run, with the host's name; a host that is lost ends it, unless as few are
lost as may be tolerated. What the other hosts measured is kept either way.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

from netdyno import paths
from netdyno.core.address import Address
from netdyno.core.client import Client, Event, Subscription
from netdyno.core.wire import RateChange, SeriesPoint, Status, TrialResult
from netdyno.errors import Error
from netdyno.fleet import merge, rates, shard
from netdyno.fleet.agents import Agent, Connection, Fleet, Offset
from netdyno.fleet.launchers import launcher
from netdyno.fleet.shard import Part, Shard
from netdyno.fleet.steer import Methods, SteeringSocket
from netdyno.fleet.sum import LiveSum
from netdyno.system.journal import Journal, journal

LEAD, LEAD_EACH = 0.5, 0.01
"""Seconds from now to the common start, and more of them for each host: all must be told before."""
LOST = "ND-91-50"
STATES, PHASES = ("idle", "loaded", "running", "paused", "draining"), (None, "warmup", "measure", "drain")
STEERING = ("run.stop", "run.pause", "run.resume")

T = TypeVar("T")


@dataclass
class Host:
    """A host while it is connected."""

    agent: Agent
    connection: Connection
    client: Client
    about: dict[str, Any]
    offset: Offset
    shard: Shard = field(default_factory=lambda: Shard({}))
    status: Status = field(default_factory=Status)
    lost: Error | None = None
    elapsed: float = 0.0
    """Seconds of the run that it has told."""

    @property
    def name(self) -> str:
        """Its name."""
        return self.agent.host.name

    @property
    def part(self) -> Part:
        """What it brings along."""
        spec = self.agent.host
        cores = tuple(spec.cores or self.about.get("cores") or ())
        addresses = tuple(str(one) for i in self.about.get("interfaces") or () for one in i["addresses"])
        weight = spec.weight or float(len(cores) or 1)
        return Part(self.name, weight, cores, addresses, tuple(spec.sources), remote=spec.launcher != "local")


class FleetClient:
    """What a trial needs of a core, over all agents of a fleet."""

    def __init__(self, fleet: Fleet, tolerate: int = 0, log: Callable[[str], None] = lambda _: None) -> None:
        """Connect to all; raises `ND-91-50` where one does not answer, `ND-92-91` where versions differ."""
        self.address = Address(Path(f"fleet:{fleet.name}"))
        self._tolerate = tolerate
        self._log = log
        self._hosts: list[Host] = []
        self._absent: dict[str, Error] = {}
        """Hosts that were lost before the run, and are done without."""
        self._events = Subscription()
        self._lock = threading.RLock()
        self._sum = LiveSum([])
        self._profile: dict[str, Any] = {}
        self._failure: Error | None = None
        self._told = ""
        self._over = threading.Event()
        self._closed = False
        self._at = 0.0
        self._steering = ExitStack()
        token = f"{int(time.time() * 1000) % 10**9:09d}"
        try:
            self._connect(fleet, token, journal())
            self._same_version()
            self._steered(token, journal())
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
        if method.startswith("capture."):
            fix = "Leave the capture out, or run the profile on one host with --socket"
            raise Error(shard.APART, "a capture is a file of one host", at="capture", fix=fix)
        # a run that is over takes no more orders
        asked = [host for host in self._active if not host.status.ended] if method in STEERING else None
        answers = self._each(lambda host: host.client.call(method, timeout=timeout, **params), asked)
        return next(iter(answers.values()), None)

    def acquire(self) -> None:
        """Become the writer of all, and keep their leases."""
        self._each(lambda host: host.client.acquire())

    def release(self) -> None:
        """Let others write."""
        self._each(lambda host: host.client.release())

    def subscribe(self) -> Subscription:
        """Sums of samples and changes of state from now on."""
        self._sum = LiveSum([host.name for host in self._active])
        for host in self._active:
            events = host.client.subscribe()
            threading.Thread(
                target=self._pump, args=(host, events), name=f"fleet-{host.name}", daemon=True
            ).start()
        return self._events

    def status(self) -> Status:
        """Where the run is; `failed` once a host is lost or has failed."""
        with self._lock:
            return self._status()

    def result(self) -> TrialResult:
        """What the hosts that are left measured, merged. Raises when there is none."""
        found = self._each(lambda host: host.client.result(), self._active)
        if not found:
            raise self._failure or Error(LOST, "no host has told what it measured")
        whole = self._profile | {"targets": next(iter(found.values())).profile.get("targets") or {}}
        started = datetime.fromtimestamp(self._at, UTC).isoformat(timespec="milliseconds")
        for name, one in found.items():
            if one.stopped == "lease" and self._failure is None:
                self._failure = lost(name, "for more than 3 s: its agent heard nothing from us, and stopped")
                one.error = self._failure.as_dict()
        absent = [{"name": name, "lost": error.what} for name, error in self._absent.items()]
        merged = merge.trial(found, whole, started.replace("+00:00", "Z"))
        return TrialResult.model_validate(
            merged.model_dump() | {"hosts": [self._report(host, found) for host in self._hosts] + absent}
        )

    def flows(self) -> Iterator[list[Any]]:
        """The summary of each device; devices are numbered through all hosts."""
        for host in self._active:
            if host.lost:
                continue
            yield from host.client.flows()

    def close(self) -> None:
        """Hang up everywhere."""
        self._closed = True
        self._steering.close()
        for host in self._hosts:
            with contextlib.suppress(Error, OSError):
                host.client.close()
            with contextlib.suppress(Error, OSError):
                host.connection.close()

    # ---- hosts

    @property
    def _active(self) -> list[Host]:
        """Hosts that have a part of the load."""
        return [host for host in self._hosts if host.shard.devices]

    def _connect(self, fleet: Fleet, token: str, notes: Journal) -> None:
        """Connect to all hosts; those that do not answer are done without as far as that is tolerated."""

        def connect(agent: Agent) -> Host:
            with ExitStack() as undo:
                connection = launcher(agent.host).connect(agent, token, notes)
                undo.callback(connection.close)
                client = Client(connection.address)
                undo.callback(client.close)
                about, offset = client.call("core.describe"), connection.offset(client)
                host = Host(agent, connection, client, about, offset)
                undo.pop_all()
            return host

        with ThreadPoolExecutor(max_workers=min(32, len(fleet.agents))) as pool:
            tasks = [(agent.host.name, pool.submit(connect, agent)) for agent in fleet.agents]
        for name, task in tasks:
            try:
                self._hosts.append(task.result())
            except Error as e:
                self._absent[name] = lost(
                    name, f"before the run: {e.what}", f"See `netdyno fleet status {fleet.name}`"
                )
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

    def _steered(self, token: str, notes: Journal) -> None:
        """Let others of this machine see and steer the run, as that of a daemon."""
        path = paths.with_folder(paths.runtime() / f"nd-run-{token}.sock")
        self._steering.callback(notes.undo, notes.write("path", path=str(path)))
        methods: Methods = {
            "run.status": lambda: self.status().model_dump(),
            "run.rate": lambda **given: self.call("run.rate", **given),
            "run.stop": lambda: self.call("run.stop"),
        }
        self._steering.callback(SteeringSocket(path, methods).close)

    def _each(self, ask: Callable[[Host], T], hosts: list[Host] | None = None) -> dict[str, T]:
        """Ask hosts at once; a host that does not answer is lost, other errors name it."""
        asked = [host for host in (self._hosts if hosts is None else hosts) if not host.lost]
        if not asked:
            return {}
        with ThreadPoolExecutor(max_workers=min(64, len(asked))) as pool:
            tasks = [(host, pool.submit(ask, host)) for host in asked]
        found: dict[str, T] = {}
        errors: list[Error] = []
        for host, task in tasks:
            try:
                found[host.name] = task.result()
            except Error as e:
                if e.code in ("ND-91-21", "ND-91-22"):
                    self._lose(host, e)
                else:
                    errors.append(named(host.name, e))
        if errors:
            raise errors[0]
        return found

    # ---- a run

    def _load(self, profile: dict[str, Any], **more: Any) -> dict[str, Any]:
        self._profile = profile
        for host, one in zip(
            self._hosts, shard.shards(profile, [host.part for host in self._hosts]), strict=True
        ):
            host.shard = one
        loaded = self._each(
            lambda host: host.client.call(
                "run.load", profile=host.shard.profile, **more | {"timeout": more.get("timeout") or 60.0}
            ),
            self._active,
        )
        if self._failure or not loaded:
            raise self._failure or Error(shard.APART, "no host has a device of it", at="groups")
        for host in self._hosts:
            part = ", ".join(f"{count} of {name}" for name, count in host.shard.devices.items()) or "nothing"
            clock = f"; clock {host.offset.seconds * 1e3:+.3f} ms ± {host.offset.error * 1e3:.3f} ms"
            self._log(f"host {host.name}: devices {part}{clock}")
        groups: dict[str, dict[str, Any]] = {}
        for one in (group for answer in loaded.values() for group in answer["groups"]):
            known = groups.setdefault(one["name"], dict(one) | {"devices": 0})
            known["devices"] += one["devices"]
        order = [str(group.get("name")) for group in profile.get("groups") or ()]
        return {
            "run": next(iter(loaded.values()))["run"],
            "groups": [groups[name] for name in order if name in groups],
        }

    def _start(self) -> dict[str, Any]:
        """Begin everywhere at one time, by each host's own clock."""
        self._at = time.time() + LEAD + LEAD_EACH * len(self._active)
        self._each(
            lambda host: host.client.call("run.start", at=self._at + host.offset.seconds), self._active
        )
        if self._failure:
            raise self._failure
        return self.status().model_dump()

    def _rate(self, groups: dict[str, Any], timeout: float | None = None) -> dict[str, Any]:
        """Other rates from now on, of which each host has its share."""
        every = [host.shard for host in self._active]
        shares = {host.name: rates.share(groups, host.shard, every) for host in self._active}
        told = self._each(
            lambda host: host.client.call("run.rate", timeout=timeout, groups=shares[host.name]),
            [host for host in self._active if shares[host.name] and not host.status.ended],
        )
        changes = [[RateChange.model_validate(one) for one in answer["rates"]] for answer in told.values()]
        return {"run": self._run(), "rates": [one.model_dump() for one in rates.merged(changes)]}

    def _pump(self, host: Host, events: Subscription) -> None:
        """Take what one host tells until its run is over."""
        try:
            for event in events:
                with self._lock:
                    if event.sample:
                        point = SeriesPoint.model_validate(event.sample)
                        host.elapsed = point.elapsed
                        self._tell(self._sum.add(host.name, point))
                    if event.status:
                        self._state(host, event.status)
        except Error as e:
            if not self._closed:
                self._lose(host, e)

    def _tell(self, points: list[SeriesPoint]) -> None:
        for one in points:
            self._events.put(Event(sample=one.model_dump()))

    def _state(self, host: Host, status: Status) -> None:
        host.status = status
        if status.ended:
            self._tell(self._sum.ended(host.name))
        if status.state == "failed" and self._failure is None:
            known = status.error if isinstance(status.error, Mapping) else {"what": status.error}
            self._fail(named(host.name, Error.of(known)))
        self._changed()

    def _lose(self, host: Host, error: Error) -> None:
        with self._lock:
            if host.lost:
                return
            host.lost = lost(host.name, f"after {host.elapsed:.1f} s of the run: {error.what}")
            self._tell(self._sum.ended(host.name))
            away = [one for one in self._hosts if one.lost]
            if len(away) + len(self._absent) > self._tolerate or len(away) == len(self._hosts):
                if self._failure is None:
                    self._fail(host.lost)
            else:
                self._log(f"{host.lost}; going on without it (--tolerate {self._tolerate})")
            self._changed()

    def _fail(self, error: Error) -> None:
        """The run has failed: the other hosts end theirs, and what they measured is kept."""
        self._failure = error

        def stop(host: Host) -> None:
            with contextlib.suppress(Error):
                host.client.call("run.stop", timeout=5.0)

        for host in self._active:
            if not host.lost and not host.status.ended:
                threading.Thread(target=stop, args=(host,), daemon=True).start()

    def _changed(self) -> None:
        """Tell the state of the run where it has changed."""
        status = self._status()
        key = f"{status.state} {status.phase}"
        if key != self._told:
            self._told = key
            self._events.put(Event(status=status))

    def _status(self) -> Status:
        left = [host for host in self._active if not host.lost]
        if all(host.status.ended for host in left):
            if self._failure:
                return Status(run=self._run(), state="failed", error=self._failure.as_dict())
            return left[0].status if left else Status()
        return min((host.status for host in left if not host.status.ended), key=_progress)

    def _run(self) -> str:
        return next((host.status.run for host in self._active if host.status.run), "")

    def _report(self, host: Host, found: Mapping[str, TrialResult]) -> dict[str, Any]:
        """What a result says of a host."""
        trial = found.get(host.name)
        return {
            "name": host.name,
            "launcher": host.agent.host.launcher,
            "version": str(host.about["version"]),
            "cores": list(host.part.cores),
            "devices": dict(host.shard.devices),
            "clock_offset": host.offset.seconds,
            "clock_error": host.offset.error,
            "valid": None if trial is None else trial.validity.valid,
            "measured": {}
            if trial is None
            else {one.name: one.measured.model_dump() for one in trial.groups},
            "lost": host.lost.what if host.lost else None,
        }


def _progress(status: Status) -> tuple[int, int]:
    """How far a run is: the fleet is as far as the host that is least so."""
    state = STATES.index(status.state) if status.state in STATES else 0
    return state, PHASES.index(status.phase) if status.phase in PHASES else 0


def named(host: str, error: Error) -> Error:
    """An error of one host, with its name."""
    plain = error.as_dict()
    return Error.of(plain | {"what": f"host {host}: {error.what}"})


def lost(host: str, why: str, fix: str = "What the other hosts measured is kept") -> Error:
    """That a host of the fleet does not answer, or not any more."""
    return Error(LOST, f"the host {host} was lost {why}", at=host, fix=fix)
