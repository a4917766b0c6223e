"""Several connections as one: all are asked at once, and what they tell is one run.

Both the controller of a fleet and its relays speak with what is behind them in this way.
"""

from __future__ import annotations

import contextlib
import math
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from netdyno.core.client import Event, Subscription
from netdyno.core.wire import RateChange, SeriesPoint, Status, TrialResult
from netdyno.errors import Error
from netdyno.fleet import merge, rates
from netdyno.fleet.agents import Agent
from netdyno.fleet.answers import GONE
from netdyno.fleet.host import LOST, Host
from netdyno.fleet.link import AgentLink, Link, Notes, Rates, connect
from netdyno.fleet.sum import LiveSum
from netdyno.system.journal import Journal

STATES, PHASES = ("idle", "loaded", "running", "paused", "draining"), (None, "warmup", "measure", "drain")
WAITS = ("run.pause", "run.resume")
LOOK = 0.5
"""Seconds between two looks whether a run is overdue."""
AT_ONCE = 64
"""Connections that are asked at one time."""

T = TypeVar("T")


class Links:
    """What is connected, and how far its run is."""

    def __init__(self, on_lost: Callable[[list[Host], Error], None]) -> None:
        """`on_lost`: hosts are lost from now on, and why; called with `lock` held."""
        self.links: list[Link] = []
        self.events = Subscription()
        self.lock = threading.RLock()
        self.failure: Error | None = None
        self._on_lost = on_lost
        self._sum = LiveSum([])
        self._told = ""
        self._closed = threading.Event()
        self._until = math.inf
        """When the run is over by its phases, by the monotonic clock."""
        self._drain = 0.0
        self._paused: float | None = None
        """Since when it is paused by us."""

    @property
    def hosts(self) -> list[Host]:
        """The hosts of all."""
        return [host for link in self.links for host in link.hosts]

    @property
    def active(self) -> list[Link]:
        """Those that have a part of the load."""
        return [link for link in self.links if any(host.shard.devices for host in link.hosts)]

    @property
    def left(self) -> list[Link]:
        """Those of them whose part is not lost."""
        return [link for link in self.active if not _gone(link)]

    def each(self, ask: Callable[[Link], T], links: Sequence[Link] | None = None) -> dict[str, T]:
        """Ask all at once; one that does not answer is lost, other errors name their host."""
        asked = [link for link in (self.links if links is None else links) if not link.lost]
        if not asked:
            return {}
        with ThreadPoolExecutor(max_workers=min(AT_ONCE, len(asked))) as pool:
            tasks = [(link, pool.submit(ask, link)) for link in asked]
        found: dict[str, T] = {}
        errors: list[Error] = []
        for link, task in tasks:
            try:
                found[link.name] = task.result()
            except Error as e:
                if e.code in GONE:
                    self.lose(link, e)
                elif not all(host.lost for host in link.hosts):
                    # a relay without hosts has told of each
                    errors.append(link.named(e))
        if errors:
            raise errors[0]
        return found

    def order(self, method: str, timeout: float | None = None) -> Any:
        """An order to all that can take it: one whose run is over takes none, and one that is draining is not
        paused, as it may be before others. Raises `ND-104-11` where there is nobody to pause or to resume."""
        able = [link for link in self.left if not link.status.ended]
        if method in WAITS:
            able = [link for link in able if link.status.state != "draining"]
            if not able:
                raise Error("ND-104-11", "the load of every host is over", fix="See run.status")
        taken: list[Any] = []
        try:
            self.each(lambda link: taken.append(link.client.call(method, timeout=timeout)), able)
        finally:
            # also where one of them has refused it
            if taken or method not in WAITS:
                self._ordered(method)
        return next(iter(taken), None)

    def _ordered(self, method: str) -> None:
        """When the run is over changes with what it is ordered to do."""
        now = time.monotonic()
        with self.lock:
            if method == "run.pause" and self._paused is None:
                self._paused = now
            elif method == "run.resume" and self._paused is not None:
                self._until += now - self._paused
                self._paused = None
            elif method == "run.stop":
                self._until = min(self._until, now + self._drain)
                self._paused = None

    def load(self, order: Sequence[str], **more: Any) -> dict[str, Any]:
        """Give each host its shard; all together answer as one, with groups in this order."""
        loaded = self.each(lambda link: link.load(**more), self.active)
        if self.failure or not loaded:
            raise self.failure or Error(LOST, "no host has loaded its part")
        groups: dict[str, dict[str, Any]] = {}
        for one in (group for answer in loaded.values() for group in answer["groups"]):
            known = groups.setdefault(one["name"], dict(one) | {"devices": 0})
            known["devices"] += one["devices"]
            known.setdefault("tokens", []).append(one.get("token"))
        return {
            "run": next(iter(loaded.values()))["run"],
            "groups": [groups[name] for name in order if name in groups],
        }

    def start(self, at: float, seconds: float, drain: float) -> None:
        """Begin everywhere at one time a run whose phases take so long, draining included."""
        self.each(lambda link: link.start(at, seconds, drain), self.active)
        if self.failure:
            raise self.failure
        self._until, self._drain = time.monotonic() + max(0.0, at - time.time()) + seconds, drain
        threading.Thread(target=self._deadline, name="fleet-deadline", daemon=True).start()

    def _deadline(self) -> None:
        """Hosts whose run does not end are lost, though they answer."""
        while not self._closed.wait(LOOK):
            with self.lock:
                running = [link for link in self.left if not link.status.ended]
                if not running:
                    return
                late = time.monotonic() - self._until if self._paused is None else -math.inf
                for link in running:
                    if late > link.overdue:
                        what = f"its run is not over {link.overdue:g} s after the end of its phases"
                        self.lose(link, Error("ND-91-22", what))

    def rate(self, shares: Mapping[str, Rates], timeout: float | None = None) -> list[dict[str, Any]]:
        """Other rates from now on, by host; the changes of all as one."""
        told = self.each(
            lambda link: link.rate(shares, timeout),
            [
                link
                for link in self.left
                if not link.status.ended and any(shares.get(host.name) for host in link.hosts)
            ],
        )
        changes = [[RateChange.model_validate(one) for one in answer] for answer in told.values()]
        return [one.model_dump() for one in rates.merged(changes)]

    def subscribe(self) -> Subscription:
        """Sums of samples and changes of state from now on."""
        self._sum = LiveSum([link.name for link in self.active])
        for link in self.active:
            events = link.client.subscribe()
            threading.Thread(
                target=self._pump, args=(link, events), name=f"fleet-{link.name}", daemon=True
            ).start()
        return self.events

    def status(self) -> Status:
        """Where the run is; `failed` once it is over and something failed."""
        with self.lock:
            return self._status()

    def result(self, profile: dict[str, Any], started: str) -> TrialResult:
        """What all that are left measured, merged, with a report of each host. Raises when there is none."""
        found = self.each(lambda link: link.result(), self.left)
        if not found:
            raise self.failure or Error(LOST, "no host has told what it measured")
        whole = profile | {"targets": next(iter(found.values())).profile.get("targets") or {}}
        reports: list[dict[str, Any]] = []
        for link in self.links:
            told = found.get(link.name)
            reports += (
                [host.report() for host in link.hosts] if told is None else (told.model_extra or {})["hosts"]
            )
        merged = merge.trial(found, whole, started)
        return TrialResult.model_validate(merged.model_dump() | {"hosts": reports})

    def collect(self, noted: Notes, profile: dict[str, Any], started: str) -> TrialResult | None:
        """What all have kept of a run that lost its controller, merged; None where nobody has anything."""
        told = self.each(lambda link: link.collect(noted))
        found = {name: one for name, one in told.items() if one}
        if not found:
            return None
        whole = profile | {"targets": next(iter(found.values())).profile.get("targets") or {}}
        reports = [report for one in found.values() for report in (one.model_extra or {})["hosts"]]
        merged = merge.trial(found, whole, started)
        return TrialResult.model_validate(merged.model_dump() | {"hosts": reports})

    def flows(self, log: Callable[[str], None]) -> Iterator[list[Any]]:
        """The summary of each device; devices are numbered through all hosts.

        What the hosts measured is there by now. Devices of one that answers no more are left out, and logged.
        """
        for link in self.left:
            try:
                yield from link.client.flows()
            except Error as e:
                log(f"the summaries of devices of {link.name} are not complete: {e.what}")

    def lose(self, link: Link, why: Error) -> None:
        """A connection is gone, and all hosts behind it."""
        with self.lock:
            if link.lost:
                return
            link.lost, hosts = link.loss(why)
            self.lose_hosts(link, hosts, link.lost)

    def lose_hosts(self, link: Link, errors: Mapping[str, Error], why: Error) -> None:
        """Some hosts behind a connection are lost."""
        with self.lock:
            gone = [host for host in link.hosts if host.name in errors and not host.lost]
            for host in gone:
                host.lost = errors[host.name]
            if _gone(link):
                self._tell(self._sum.ended(link.name))
            if gone:
                self._on_lost(gone, why)
            self._changed()

    def lose_behind(self, link: Link, errors: Mapping[str, Error]) -> None:
        """A relay has lost hosts."""
        self.lose_hosts(link, errors, next(iter(errors.values())))

    def fail(self, error: Error) -> None:
        """The run has failed: the others end theirs, and what they measured is kept."""
        if self.failure is not None:
            return
        self.failure = error
        self._ordered("run.stop")

        def stop(link: Link) -> None:
            with contextlib.suppress(Error):
                link.client.call("run.stop", timeout=5.0)

        for link in self.left:
            if not link.status.ended:
                threading.Thread(target=stop, args=(link,), daemon=True).start()

    def close(self) -> None:
        """Hang up everywhere."""
        self._closed.set()
        for link in self.links:
            link.close()

    def _pump(self, link: Link, events: Subscription) -> None:
        """Take what one tells until its run is over."""
        try:
            while not (link.lost or link.status.ended or self._closed.is_set()):
                event = events.next(1.0)
                with self.lock:
                    if event and event.sample:
                        point = link.point(event.sample)
                        link.elapsed = point.elapsed
                        self._tell(self._sum.add(link.name, point))
                    if event and event.status:
                        self._state(link, event.status)
        except Error as e:
            if not self._closed.is_set():
                self.lose(link, e)

    def _tell(self, points: list[SeriesPoint]) -> None:
        for one in points:
            self.events.put(Event(sample=one.model_dump()))

    def _state(self, link: Link, status: Status) -> None:
        link.status = status
        if status.ended:
            self._tell(self._sum.ended(link.name))
        # a relay that has lost all of its hosts tells that of each
        if status.state == "failed" and not _gone(link):
            known = status.error if isinstance(status.error, Mapping) else {"what": status.error}
            self.fail(link.named(Error.of(known)))
        self._changed()

    def _changed(self) -> None:
        """Tell the state of the run where it has changed."""
        status = self._status()
        key = f"{status.state} {status.phase}"
        if key != self._told:
            self._told = key
            self.events.put(Event(status=status))

    def _status(self) -> Status:
        left = self.left
        if all(link.status.ended for link in left):
            if self.failure:
                return Status(run=self.run(), state="failed", error=self.failure.as_dict())
            return left[0].status if left else Status()
        return min((link.status for link in left if not link.status.ended), key=_progress)

    def run(self) -> str:
        """The run's id."""
        return next((link.status.run for link in self.active if link.status.run), "")


def _gone(link: Link) -> bool:
    """Whether no host behind a connection has a part of the load any more."""
    return all(host.lost for host in link.hosts if host.shard.devices)


def _progress(status: Status) -> tuple[int, int]:
    """How far a run is: all are as far as the one that is least so."""
    state = STATES.index(status.state) if status.state in STATES else 0
    return state, PHASES.index(status.phase) if status.phase in PHASES else 0


def connect_all(
    agents: Sequence[Agent], token: str, notes: Journal
) -> tuple[list[AgentLink], dict[str, Error]]:
    """Connections to agents, all at once; and by host why there is none."""
    with ThreadPoolExecutor(max_workers=min(32, len(agents))) as pool:
        tasks = [(agent.host.name, pool.submit(connect, agent, token, notes)) for agent in agents]
    links: list[AgentLink] = []
    absent: dict[str, Error] = {}
    for name, task in tasks:
        try:
            links.append(task.result())
        except Error as e:
            absent[name] = e
    return links, absent
