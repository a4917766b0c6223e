"""The world around `watch.py`: counters every second, parameters set and put back, a line for everything."""

from __future__ import annotations

import contextlib
import errno
import os
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from netdyno.errors import Error
from netdyno.lab import counters, sockets
from netdyno.stats.observation import Value
from netdyno.system import bpf, namespace, sysctl
from netdyno.system.journal import Journal, journal
from netdyno.tuning import descriptors, gauges, host_state, live_sockets, sufferers
from netdyno.tuning.apply import apply
from netdyno.tuning.fixed_buffers import FixedBuffer, FixedBuffers, held_back
from netdyno.tuning.followers import FOLLOWERS, UDP_DROPS
from netdyno.tuning.kernel_events import BriefConnections, DroppedPackets, Findings, KernelEvents, Window
from netdyno.tuning.model import Scope
from netdyno.tuning.plan import plan
from netdyno.tuning.registry import registry
from netdyno.tuning.short_queues import ShortQueue, ShortQueues, UnknownListener
from netdyno.tuning.socket_drops import dropped, parse
from netdyno.tuning.stuck_listeners import StuckListeners
from netdyno.tuning.watch import (
    BINDING,
    SEEN,
    STUCK,
    Action,
    Freeze,
    Revert,
    Rule,
    Sample,
    Say,
    Set,
    Traffic,
    Watcher,
    bounds,
    least,
)
from netdyno.tuning.watchdog import Watchdog


@dataclass(frozen=True)
class AffectedProcess:
    """Who meets a limit, as sock_diag tells."""

    name: str
    """Of the parameter."""
    process: str
    pid: int
    port: int
    serves: bool
    """Whether the port is its own; else it is connected to it."""
    why: str


Logged = (
    Action | AffectedProcess | ShortQueue | UnknownListener | FixedBuffer | DroppedPackets | BriefConnections
)
Log = Callable[[Logged], None]

WINDOW, TICK = 1.0, 0.1
"""Seconds between two decisions, and at most between two calls of `tick`."""
GLANCE = 0.25
"""Seconds between two looks at connections, of which many live and rest for less than a window."""
SHARE = 0.1
"""The share of a processor that such looks may take: of many connections there are fewer looks."""
QUEUES = 60.0
"""Seconds for which queues are looked at after one was too short: as the horizon of its rule, in windows."""
GONE = (errno.ENOENT, errno.EINVAL)
"""What is said of a namespace that is gone, or of which only the file of its name is left for a moment."""
CROWDED = 0.8
"""The share of local ports that must wait after connections for it to matter where those went."""


RECEIVE, SEND, QUEUE = "net.ipv4.tcp_rmem.max", "net.ipv4.tcp_wmem.max", "net.core.somaxconn"
BUFFERS = ("net.core.rmem_default", "net.core.rmem_max")
"""What gives datagram sockets their receive buffers."""


class NamespaceWatch:
    """A watched namespace and the changes made to it."""

    def __init__(
        self,
        rules: Mapping[str, Rule],
        where: str | None,
        log: Log,
        *,
        allow_global: bool = False,
        dry: bool = False,
        reaching: bool = True,
        seen: Callable[[Sample], None] = lambda sample: None,
        notes: Journal | None = None,
        probe: Callable[[], Mapping[str, float]] = dict,
        called: str = "",
    ) -> None:
        """`called`: the namespace as it was asked for, if not by its name."""
        self.where = where
        self._log, self._seen, self._probe = log, seen, probe
        self._dry = dry
        self._reaching = reaching
        self._notes = notes or journal()
        self._known = registry()
        names = {rule.tunable for rule in rules.values()}
        found = host_state.read_states(self._known, names, where)
        may = {
            name for name, one in found.items()
            if one.state == "there" and (allow_global or one.scope is not Scope.GLOBAL)
        }  # fmt: skip
        self.rules = {name: rule for name, rule in rules.items() if rule.tunable in may and self._has(rule)}
        self._usable = sorted({rule.tunable for rule in self.rules.values()})
        closed = {
            name: _permission(called or where)
            for name, one in found.items()
            if one.state == "there" and name not in may
        }
        advised = {name: rule for name, rule in rules.items() if rule.tunable in closed and self._has(rule)}
        closed |= {other: closed[rule.tunable] for rule in advised.values() for other in rule.along}
        along = {name for rule in self.rules.values() for name in rule.along}
        self._seen_names = sorted({*self._usable, *closed, *along})
        self.left_out = sorted(names - set(self._usable))
        """Parameters that are not touched: missing here, or of the whole machine."""
        self._allow_global = allow_global
        known = self._known
        self.watcher = Watcher(
            self.rules | advised,
            bounds(known, self._seen_names),
            dry,
            low=least(known, self._seen_names),
            closed=closed,
        )
        self._entries: dict[str, list[int]] = {}
        self._first: dict[str, Value] = {}
        """What was, of what is set."""
        self._cut: dict[str, set[tuple[int, int]]] = {}
        """Sockets that were seen to be cut by a parameter, by process and descriptor."""
        self._left: dict[str, set[int]] = {}
        """Sizes of sockets that a parameter cut before it was raised."""
        self._told: set[int] = set()
        """Servers that were said to be short of descriptors."""
        self._queues_until = float("-inf")
        """Until when queues are looked at: connections were turned away, and bursts come again."""
        self._full: set[tuple[int, int]] = set()
        """Listeners whose queue was seen full since."""
        self._fullest: sufferers.Sufferer | None = None
        """The fullest of them since it was told."""
        self._short = ShortQueues(live_sockets.listeners(where))
        self._fixed = FixedBuffers()
        self._held: deque[bool] = deque(maxlen=SEEN)
        """Whether fixed send buffers may have held connections back, window by window."""
        self._stuck = StuckListeners()
        self._datagrams = ("", live_sockets.datagrams(where))
        """Their sockets at the last two looks."""
        self._connections = gauges.Connections()
        self._glance = time.monotonic()
        """When the next look at connections is due."""
        self._queue_glance = self._glance
        """When the next look at queues is due."""
        self._kernel = counters.KernelLog()
        self._kernel.mark()
        self._place = counters.CounterSource(where)
        self._before, self._time = counters.read(self._place), time.monotonic()
        self._observe()
        self._due = time.monotonic() + WINDOW
        self._watchdog = None if dry else Watchdog(self._notes.path)
        self._events: KernelEvents | None = None
        self.unseen: bpf.BpfError | None = None
        """Why drops are not told by reason, nor brief connections, if they are not."""
        self._findings = Findings()
        try:
            self._events = KernelEvents(where)
        except bpf.BpfError as e:
            self.unseen = e

    def tick(self) -> float:
        """Look, and step when a window is over: in how many seconds to come again."""
        self._glimpse()
        if time.monotonic() >= self._due:
            self.step()
            # a window that was missed is not made up for
            self._due = max(self._due + WINDOW, time.monotonic() + WINDOW / 2)
        return max(0.0, min(TICK, self._due - time.monotonic()))

    def step(self) -> Sample:
        """One window: look, decide, do."""
        try:
            sample = self._sample()
        except OSError as e:
            named = e.errno == errno.ENOENT and self.where in namespace.names()
            if self.where is None or e.errno not in GONE or named:
                raise
            what = f"the namespace {self.where} is gone"
            raise Error("ND-91-26", what, fix="Start again once it is there") from e
        self._seen(sample)
        for action in self.watcher.step(sample):
            self._log(action)
            if isinstance(action, Set):
                new = action.name not in self._first
                for name in (action.name, *action.also):
                    self._first.setdefault(name, sample.values[name])
                if new and (risk := self._known.find(action.name).risk):
                    self._log(Say(f"the risk of {action.name}: {risk}"))
            if isinstance(action, (Set, Say)) and action.rule:
                self._tell_sufferer(self.watcher.rules[action.rule])
            if isinstance(action, Freeze):
                # it is theirs now, also when we end
                if entries := self._entries.pop(action.name, []):
                    self._notes.forget(*entries)
            elif not self._dry and isinstance(action, (Set, Revert)):
                self._do(action, sample)
        return sample

    def _glimpse(self) -> None:
        """Look at the connections between two windows, if there is traffic and it is time to."""
        # a namespace that is gone is told of with the next window
        try:
            if self.watcher.traffic is not Traffic.IDLE:
                self._observe()
            self._look_at_queues()
        except OSError as e:
            if e.errno not in GONE:
                raise

    def _observe(self) -> None:
        begin, worked = time.monotonic(), sum(os.times()[:4])
        if begin < self._glance:
            return
        self._connections.glance(begin, sockets.read(self.where, "-m"))
        self._glance = begin + max(GLANCE, (sum(os.times()[:4]) - worked) / SHARE)

    def _look_at_queues(self) -> None:
        """Note which listeners are full: they are for moments only."""
        begin, worked = time.monotonic(), sum(os.times()[:4])
        if not self._queue_glance <= begin < self._queues_until:
            return
        text = live_sockets.full_queues(self.where)
        self._short.look(text)
        self._full.update((one.pid, one.fd) for one in live_sockets.parse_listeners(text) if one.full)
        self._fullest = sufferers.most([self._fullest, sufferers.of_queue(text)])
        self._queue_glance = begin + max(TICK, (sum(os.times()[:4]) - worked) / SHARE)

    def close(self) -> None:
        """Put everything back, and end."""
        self._kernel.close()
        if self._events:
            self._events.close()
        entries = [number for listed in self._entries.values() for number in listed]
        self._entries.clear()
        try:
            self._notes.undo(*entries)
        finally:
            if self._watchdog:
                self._watchdog.stop()

    def _do(self, action: Set | Revert, sample: Sample) -> None:
        rule, name = self.rules[action.rule], action.name
        try:
            new = self._give(name, action.value, isinstance(action, Revert))
            for other, value in action.also.items():
                self._give(other, value, isinstance(action, Revert))
        except Error as e:
            self._log(Say(str(e)))
            self.watcher.refused(action.rule, sample.time)
            return
        if rule.reach and self._reaching and new is not None:
            try:
                self._carry(name, int(sample.values[name]), int(new))
            except Error as e:
                # the value is in force for new sockets, and is judged as any
                self._log(Say(str(e)))

    def _give(self, name: str, value: Value, back: bool) -> Value | None:
        """Set a parameter, and what the kernel made of it; None where all of it is as it was."""
        if back and str(value) == str(self._first[name]):
            self._left.pop(name, None)
            self._notes.undo(*self._entries.pop(name))
            return None
        applied = apply(plan({name: value}, self.where, allow_global=self._allow_global), self._notes)
        self._entries.setdefault(name, []).extend(applied.entries)
        got = applied.value(name)
        new = value if got is None else got
        self.watcher.became(name, new)
        return new

    def _carry(self, name: str, old: int, new: int) -> None:
        """Have running sockets follow."""
        if name not in FOLLOWERS:
            self._widen(old, new)
            return
        size = old * FOLLOWERS[name].scale
        self._left.setdefault(name, set()).add(size)
        for one in live_sockets.sockets(FOLLOWERS[name].what, self.where):
            if one.size == size and (one.full or (one.pid, one.fd) in self._cut.get(name, ())):
                self._resize(one, name, new)

    def _widen(self, old: int, new: int) -> None:
        """Have connections follow that receive, and whose buffers are as large as they might be."""
        if self._reaching:
            for one in live_sockets.grow_receive_buffers(self.where, old, new):
                self._log_socket(one)

    def _resize(self, one: live_sockets.LiveSocket, name: str, new: int) -> None:
        entry = live_sockets.resize(one, new * FOLLOWERS[name].scale, self._notes)
        if entry is not None:
            self._entries.setdefault(name, []).append(entry)
            self._log_socket(one)

    def _log_socket(self, one: live_sockets.LiveSocket) -> None:
        self._log(Say(f"the socket {one.fd} of process {one.pid} follows"))

    def _sample(self) -> Sample:
        seen = self._events.window() if self._events else Window()
        after, now = counters.read(self._place), time.monotonic()
        span = max(now - self._time, 1e-3)
        moved = counters.increases(self._before, after)
        self._before, self._time = after, now
        rates = {
            name: value if name in counters.GAUGES or name.startswith("sockets.") else value / span
            for name, value in moved.items()
        }
        rates |= counters.parse_log(self._kernel.since())
        # a full queue of complete connections is counted as both; so is one of half-open ones that is as long
        # as the listener may have it
        dropped, *others = (
            rates.get(f"TcpExt{what}", 0.0) for what in ("ListenDrops", "ListenOverflows", "TCPReqQFullDrop")
        )
        rates[UDP_DROPS] = rates.get("UdpRcvbufErrors", 0.0) + rates.get("Udp6RcvbufErrors", 0.0)
        rates["listen.refused"] = max(0.0, dropped - sum(others))
        values = {
            name: one.value
            for name, one in host_state.read_states(self._known, self._seen_names, self.where).items()
            if one.value is not None
        }
        self._observe()
        rates |= self._connections.window(float(values.get(RECEIVE, 0)), float(values.get(SEND, 0)))
        if rates["tcp.windows_stuck"] and RECEIVE in self._first and not self.watcher.frozen:
            # they are those of connections that came later
            self._widen(int(self._first[RECEIVE]), int(values.get(RECEIVE, 0)))
        rates |= self._bound(rates, values)
        self._tell_fixed(rates, values)
        for lost in self._findings.drops(now, seen, rates):
            self._log(lost)
        for brief in self._findings.flows(now, seen):
            self._log(brief)
        rates |= seen.rates(span)
        rates |= self._probe()
        rates["ports.short"] = gauges.shortage(self._ports(rates.get("sockets.TCP.tw", 0.0)), rates)
        return Sample(now, rates, {name: v for name, v in values.items() if self._counts(name, rates)})

    def _bound(self, rates: Mapping[str, float], values: Mapping[str, Value]) -> dict[str, float]:
        """Sockets that are as large as a parameter let them be: asked for only when something drops."""
        found: dict[str, float] = {}
        if overflows := rates.get(sufferers.QUEUE, 0.0):
            exact = rates.get("TcpExtListenDrops", 0.0) <= overflows
            lost = self._short.count(time.monotonic(), live_sockets.listeners(self.where), exact)
            self._full.update((one.pid, one.fd) for one, _ in lost)
            dropped = [sufferers.of_overflow(one, count) for one, count in lost if one.pid]
            self._fullest = sufferers.most([self._fullest, *dropped])
        stuck = self._accept_nothing(rates)
        found[STUCK] = float(len(stuck))
        for name, follower in FOLLOWERS.items():
            if rates.get(follower.counter) and name in values:
                listed = [
                    replace(one, full=True) if (one.pid, one.fd) in self._full else one
                    for one in live_sockets.sockets(follower.what, self.where)
                ]
                cut = live_sockets.limiting(listed, follower.scale * int(values[name]))
                if name == QUEUE:
                    cut = [one for one in cut if (one.pid, one.fd) not in stuck]
                found[follower.gauge] = len(cut)
                self._cut.setdefault(name, set()).update((one.pid, one.fd) for one in cut)
                late = [
                    one for size in self._left.get(name, ()) for one in live_sockets.limiting(listed, size)
                ]
                # hands are off once somebody else has set one
                for one in late if not self.watcher.frozen else ():
                    # it was not full when the parameter was raised, and is now
                    with contextlib.suppress(Error):
                        self._resize(one, name, int(values[name]))
        if overflows:
            self._queues_until = time.monotonic() + QUEUES
            self._tell_descriptors()
            self._tell_short(values)
            if not stuck and not found.get(FOLLOWERS[QUEUE].gauge):
                for unknown in self._short.unknown(time.monotonic(), overflows):
                    self._log(unknown)
        self._full = set()
        return found

    def _tell_sufferer(self, rule: Rule) -> None:
        """Say whose sockets meet a limit."""
        full, self._fullest = self._fullest, None
        found = sufferers.find(
            rule.counter,
            lambda options: live_sockets.listed(options, self.where),
            self._connections.spans,
            self._datagrams,
        )
        if rule.counter == sufferers.QUEUE:
            found = sufferers.most([full, found])
        if found:
            self._log(
                AffectedProcess(rule.tunable, **asdict(found.owner), why=f"{found.owner}: {found.what}")
            )

    def _accept_nothing(self, rates: Mapping[str, float]) -> set[tuple[int, int]]:
        """Listeners that accept nothing, looked for as long as connections were turned away lately; of one
        that hangs it is said once."""
        now = time.monotonic()
        if not rates.get("TcpExtListenOverflows") and now >= self._queues_until:
            return set()
        hung = self._stuck.look(now, live_sockets.listed("-tanpOH", self.where))
        for one, seconds in hung.items():
            if one.pid not in self._told and not descriptors.exhausted(one.pid):
                self._told.add(one.pid)
                who = f"{one.process} (process {one.pid}), port {one.port}"
                what = f"has accepted nothing for {seconds:.0f} s while connections wait"
                self._log(Say(f"{who}, {what}: no kernel parameter helps. Find out why its program hangs"))
        full = {(one.pid, one.fd) for one in live_sockets.sockets("backlog", self.where) if one.full}
        return {(one.pid, one.fd) for one in hung} | {
            one for one in full | self._full if descriptors.exhausted(one[0])
        }

    def _tell_descriptors(self) -> None:
        """Say once of each server with a full queue that it may open no more files: it cannot accept."""
        for pid in {one.pid for one in live_sockets.sockets("backlog", self.where) if one.full} - self._told:
            if said := descriptors.advice(pid, _at(self.where)):
                self._told.add(pid)
                self._log(said)

    def _tell_short(self, values: Mapping[str, Value]) -> None:
        """Say whose queue overflows that its own program keeps short."""
        allowed = self._value(QUEUE, values) or 0
        cut = {*self._left.get(QUEUE, ()), int(self._first.get(QUEUE, 0))}
        for one in self._short.tell(time.monotonic(), allowed, cut):
            self._log(one)

    def _tell_fixed(self, rates: Mapping[str, float], values: Mapping[str, Value]) -> None:
        """Say whose buffer is too small that its own program fixed: no parameter enlarges it."""
        now = time.monotonic()
        if rates.get(UDP_DROPS):
            self._datagrams = self._datagrams[1], live_sockets.datagrams(self.where)
            followed = set().union(*(self._cut.get(name, ()) for name in BUFFERS))
            lost = [each for each in dropped(*self._datagrams) if each[0].socket[:2] not in followed]
            sizes = {size for name in BUFFERS for size in self._left.get(name, ())}
            for name in BUFFERS:
                for size in (self._value(name, values), self._first.get(name)):
                    sizes.add(int(size or 0) * FOLLOWERS[name].scale)
            for one in self._fixed.datagrams(now, lost, sizes, self._value("net.core.rmem_max", values)):
                self._log(one)
        held = held_back(self._connections.spans, float(values.get(SEND, 0)))
        self._held.append(bool(held))
        if held and sum(self._held) >= BINDING:
            lines = parse(live_sockets.listed("-tanpOH", self.where))
            for one in self._fixed.connections(now, lines, held, self._value("net.core.wmem_max", values)):
                self._log(one)

    def _value(self, name: str, values: Mapping[str, Value]) -> int | None:
        """What a parameter is, also of the whole machine, and where no rule sets it."""
        if name in values:
            return int(values[name])
        text = sysctl.read(self.where, name) or sysctl.read(None, name)
        return int(text) if text else None

    def _ports(self, waiting: float) -> float:
        """The share of local ports that wait after connections to one peer: asked for only when many do."""
        text = sysctl.read(self.where, "net.ipv4.ip_local_port_range") or ""
        low, high = (int(part) for part in text.split()) if len(text.split()) == 2 else (1, 65535)
        if waiting < CROWDED * (high - low + 1):
            return 0.0
        return gauges.ports_taken(sockets.waiting(self.where), low, high)

    def _has(self, rule: Rule) -> bool:
        """Whether what it would set it to is there to be chosen."""
        choices = self._known.find(rule.tunable).choices
        return rule.to is None or not choices or rule.to in choices

    def _counts(self, name: str, rates: Mapping[str, float]) -> bool:
        """Whether setting it would change something, asked for only when its counter moves."""
        if not any(rates.get(rule.counter) for rule in self.rules.values() if rule.tunable == name):
            return True
        now = host_state.reader(self._known, self.where)
        return not any(True for _ in self._known.advice(name, lambda condition: condition.holds(now)))


def _permission(where: str | None) -> str:
    """What allows a parameter of the whole machine to be set."""
    return f"it holds for the whole machine: netdyno tune watch{_at(where)} --global"


def _at(where: str | None) -> str:
    return f" --where {where}" if where else ""


ACTIONS: Mapping[type[Logged], str] = {
    Set: "set",
    Revert: "revert",
    Freeze: "freeze",
    Say: "say",
    AffectedProcess: "suffers",
    ShortQueue: "shortqueue",
    UnknownListener: "unknownlistener",
    FixedBuffer: "fixedbuffer",
    DroppedPackets: "droppedpackets",
    BriefConnections: "briefconnections",
}
"""What each is called in JSON: names that scripts rely on."""


def document(action: Logged) -> dict[str, Any]:
    """An action as JSON."""
    return {"action": ACTIONS[type(action)], **asdict(action)}


def recorded(sample: Sample) -> dict[str, Any]:
    """A window as JSON: what is not zero, to four digits."""
    rates = {name: float(f"{rate:.4g}") for name, rate in sorted(sample.rates.items()) if rate}
    return {"time": round(sample.time, 3), "rates": rates, "values": dict(sample.values)}


def _all(action: Set | Revert) -> str:
    each = {action.name: action.value, **action.also}
    return ", ".join(f"{name} to {value}" for name, value in each.items())


def words(action: Logged, dry: bool = False) -> str:
    """An action as a line."""
    if isinstance(action, Set):
        return f"{'would set' if dry else 'set'} {_all(action)}: {action.why}"
    if isinstance(action, Revert):
        return f"put back {_all(action)}: {action.why}"
    return action.why
