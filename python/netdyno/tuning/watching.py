"""The world around `watch.py`: counters every second, parameters set and put back, a line for everything."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict
from typing import Any

from netdyno import namespace
from netdyno.errors import Error
from netdyno.journal import Journal, journal
from netdyno.tuning import counters, gauges, here, reach, sockets
from netdyno.tuning.apply import apply
from netdyno.tuning.model import Scope, Value
from netdyno.tuning.plan import plan
from netdyno.tuning.registry import registry
from netdyno.tuning.watch import Action, Freeze, Revert, Rule, Sample, Say, Set, Traffic, Watcher, bounds
from netdyno.tuning.watchdog import Watchdog

Log = Callable[[Action], None]

GLANCE = 0.25
"""Seconds between two looks at connections, of which many live and rest for less than a window."""
SHARE = 0.1
"""The share of the time that such looks may take: where there are many connections, there are fewer looks."""
CROWDED = 0.8
"""The share of local ports that must wait after connections for it to matter where those went."""


class Watching:
    """A namespace that is watched, and what was changed of it."""

    def __init__(
        self,
        rules: Mapping[str, Rule],
        where: str | None,
        log: Log,
        *,
        allow_global: bool = False,
        dry: bool = False,
        reaching: bool = True,
        notes: Journal | None = None,
    ) -> None:
        self.where = where
        self._log = log
        self._dry = dry
        self._reaching = reaching
        self._notes = notes or journal()
        self._known = registry()
        names = {rule.tunable for rule in rules.values()}
        found = here.look(self._known, names, where)
        may = {
            name for name, one in found.items()
            if one.state == "there" and (allow_global or one.scope is not Scope.GLOBAL)
        }  # fmt: skip
        self.rules = {name: rule for name, rule in rules.items() if rule.tunable in may and self._has(rule)}
        self._usable = sorted({rule.tunable for rule in self.rules.values()})
        self.left_out = sorted(names - set(self._usable))
        """Parameters that are not touched: missing here, or of the whole machine."""
        self._allow_global = allow_global
        self.watcher = Watcher(self.rules, bounds(self._known, self._usable), dry)
        self._entries: dict[str, list[int]] = {}
        self._first: dict[str, Value] = {}
        """What was, of what is set."""
        self._connections = gauges.Connections()
        self._glance = time.monotonic()
        """When the next look at connections is due."""
        self._kernel = counters.KernelLog()
        self._kernel.mark()
        self._place = counters.Where(where)
        self._before, self._time = counters.read(self._place), time.monotonic()
        self._look()
        self._watchdog = None if dry else Watchdog(self._notes.path)

    def step(self) -> Sample:
        """One window: look, decide, do."""
        try:
            sample = self._sample()
        except FileNotFoundError as e:
            if self.where is None or self.where in namespace.names():
                raise
            what = f"the namespace {self.where} is gone"
            raise Error("ND-91-26", what, fix="Start again once it is there") from e
        for action in self.watcher.step(sample):
            self._log(action)
            if isinstance(action, Set) and action.name not in self._first:
                self._first[action.name] = sample.values[action.name]
                if risk := self._known.find(action.name).risk:
                    self._log(Say(f"the risk of {action.name}: {risk}"))
            if isinstance(action, Freeze):
                # it is theirs now, also when we end
                if entries := self._entries.pop(action.name, []):
                    self._notes.forget(*entries)
            elif not self._dry and isinstance(action, (Set, Revert)):
                self._do(action, sample)
        return sample

    def glance(self) -> None:
        """Look at the connections between two windows, if there is traffic and it is time to."""
        if self.watcher.traffic is not Traffic.IDLE:
            # a namespace that is gone is told of with the next window
            with contextlib.suppress(FileNotFoundError):
                self._look()

    def _look(self) -> None:
        begin = time.monotonic()
        if begin < self._glance:
            return
        self._connections.glance(begin, sockets.read(self.where, "-m"))
        self._glance = begin + max(GLANCE, (time.monotonic() - begin) / SHARE)

    def close(self) -> None:
        """Put everything back, and end."""
        self._kernel.close()
        entries = [number for listed in self._entries.values() for number in listed]
        self._entries.clear()
        try:
            self._notes.undo(*entries)
        finally:
            if self._watchdog:
                self._watchdog.stop()

    def _do(self, action: Set | Revert, sample: Sample) -> None:
        rule, name = self.rules[action.rule], action.name
        held = self._entries.setdefault(name, [])
        try:
            if isinstance(action, Revert) and str(action.value) == str(self._first[name]):
                entries = self._entries.pop(name)
                self._notes.undo(*entries)
                return
            old = sample.values[name]
            applied = apply(
                plan({name: action.value}, self.where, allow_global=self._allow_global), self._notes
            )
            held += applied.entries
            got = applied.value(name)
            new = action.value if got is None else got
            self.watcher.became(name, new)
            if rule.reach and self._reaching:
                for one, entry in self._reach(rule.reach, name, int(old), int(new)):
                    if entry is not None:
                        held.append(entry)
                    self._log(Say(f"the socket {one.fd} of process {one.pid} follows"))
        except Error as e:
            self._log(Say(str(e)))
            self.watcher.refused(action.rule, sample.time)

    def _reach(
        self, what: reach.What, name: str, old: int, new: int
    ) -> Iterable[tuple[reach.Held, int | None]]:
        if what == "tcp":
            return ((one, None) for one in reach.widen(self.where, old, new))
        scale = 2 if name.endswith("_max") else 1
        return reach.follow(what, self.where, scale * old, scale * new, self._notes)

    def _sample(self) -> Sample:
        after, now = counters.read(self._place), time.monotonic()
        span = max(now - self._time, 1e-3)
        moved = counters.moved(self._before, after)
        self._before, self._time = after, now
        rates = {
            name: value if name in counters.GAUGES or name.startswith("sockets.") else value / span
            for name, value in moved.items()
        }
        rates |= counters.parse_log(self._kernel.since())
        # a full queue of complete connections is counted as both
        dropped, full = (rates.get(f"TcpExtListen{what}", 0.0) for what in ("Drops", "Overflows"))
        rates["listen.refused"] = max(0.0, dropped - full)
        values = {
            name: one.value
            for name, one in here.look(self._known, self._usable, self.where).items()
            if one.value is not None
        }
        self._look()
        rates |= self._connections.window(float(values.get("net.ipv4.tcp_rmem.max", 0)))
        rates |= self._bound(rates, values)
        rates["ports.short"] = gauges.shortage(self._ports(rates.get("sockets.TCP.tw", 0.0)), rates)
        return Sample(now, rates, {name: v for name, v in values.items() if self._counts(name, rates)})

    def _bound(self, rates: Mapping[str, float], values: Mapping[str, Value]) -> dict[str, float]:
        """Sockets that are as large as a parameter let them be: asked for only when something drops."""
        found: dict[str, float] = {}
        if rates.get("TcpExtListenOverflows") and "net.core.somaxconn" in values:
            listed = reach.sockets("backlog", self.where)
            found["listeners.cut"] = len(reach.bound(listed, int(values["net.core.somaxconn"])))
        if rates.get("UdpRcvbufErrors"):
            listed = reach.sockets("udp", self.where)
            for gauge, name, scale in (
                ("udp.default", "net.core.rmem_default", 1), ("udp.cut", "net.core.rmem_max", 2)
            ):  # fmt: skip
                if name in values:
                    found[gauge] = len(reach.bound(listed, scale * int(values[name])))
        return found

    def _ports(self, waiting: float) -> float:
        """The share of local ports that wait after connections to one peer: asked for only when many do."""
        text = namespace.read_sysctl(self.where, "net.ipv4.ip_local_port_range") or ""
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
        now = here.reader(self._known, self.where)
        return not any(True for _ in self._known.advice(name, lambda condition: condition.holds(now)))


def document(action: Action) -> dict[str, Any]:
    """An action as JSON."""
    return {"action": type(action).__name__.lower(), **asdict(action)}


def words(action: Action, dry: bool = False) -> str:
    """An action as a line."""
    if isinstance(action, Set):
        return f"{'would set' if dry else 'set'} {action.name} to {action.value}: {action.why}"
    if isinstance(action, Revert):
        return f"put {action.name} back to {action.value}: {action.why}"
    return action.why
