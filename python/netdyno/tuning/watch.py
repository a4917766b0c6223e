"""What to do about parameters that bind: samples in, actions out. `watching.py` has the I/O and the clock.

A rule acts when its counter binds in several of the last windows, by one step, and then looks. A step that
made things worse, and steps that did not help, are taken back, and the rule waits, each time twice as long.
What helped stays. Values only ever rise from where they were, so nothing swings.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Literal

from netdyno import config, paths
from netdyno.tuning.model import Value
from netdyno.tuning.registry import Registry

SEEN, BINDING = 4, 2
"""A rule acts when its counter binds in so many of so many windows."""
LOOK = 2
"""Windows to look at after a step, and one before them that is not looked at."""
STEPS = 4
"""Steps of which one must have helped."""
HELPED, WORSE = 0.8, 1.5
"""Of what a window brings, the share that still binds: below it a step helped, above it did harm."""
HARM = {"psi.memory.full": 50_000.0, "TcpExtTCPMemoryPressures": 0.0}
"""More than so much a second says that memory is short: microseconds in which all waited, and how often."""
REST = 5.0
"""Seconds between the end of one attempt and the next."""
WAIT, LONGEST = 600.0, 14400.0
"""Seconds that a rule waits after it had to take its steps back, and at most."""


class Traffic(StrEnum):
    """What passes, by its shape."""

    IDLE = "idle"
    REQUESTS = "requests"
    """Small segments, or many connections."""
    BULK = "bulk"
    DATAGRAMS = "datagrams"


class Rule(config.Config):
    """What is done about one parameter."""

    tunable: str
    counter: str
    least: float = 1.0
    """So many a second at least; of a gauge, its value."""
    factor: int = 2
    only_where: str = ""
    classes: tuple[Traffic, ...] = ()
    """Only for such traffic."""
    reach: Literal["", "backlog", "udp"] = ""
    """What of running sockets follows."""

    def says(self, sample: Sample) -> str:
        """What its counter does."""
        unit = "" if self.counter.startswith("tcp.") else " a second"
        return f"{self.counter} is at {sample.rate(self.counter):.4g}{unit}"


@dataclass(frozen=True)
class Sample:
    """One window, of about a second."""

    time: float
    """Seconds, of any clock that does not go back."""
    rates: Mapping[str, float]
    """Counters a second, and gauges as they are."""
    values: Mapping[str, Value]
    """What the tunables of the rules are now."""

    def rate(self, name: str) -> float:
        """How fast a counter moves; one that is not there does not."""
        return self.rates.get(name, 0.0)

    @property
    def load(self) -> float:
        """Packets a second that came for us."""
        return self.rate("IpInReceives") + self.rate("Ip6InReceives")


@dataclass(frozen=True)
class Set:
    """Give a tunable a value."""

    rule: str
    name: str
    value: int
    why: str


@dataclass(frozen=True)
class Revert:
    """Put a tunable back to what it was before the rule touched it."""

    rule: str
    name: str
    value: int
    why: str


@dataclass(frozen=True)
class Freeze:
    """Leave everything alone from now on."""

    name: str
    why: str


@dataclass(frozen=True)
class Say:
    """Something worth a line in the log."""

    why: str


Action = Set | Revert | Freeze | Say


@dataclass
class _Attempt:
    """Steps that are being looked at."""

    start: int
    """The value before the first of them."""
    binding: float
    """The share that bound before the latest."""
    first: float
    """The share that bound before the first."""
    steps: int = 1
    windows: list[float] = field(default_factory=list)


@dataclass
class _State:
    seen: deque[float] = field(default_factory=lambda: deque(maxlen=SEEN))
    """The share that bound, window by window; 0 where it did not."""
    attempt: _Attempt | None = None
    free: float = float("-inf")
    """When it may act again."""
    wait: float = WAIT
    full: bool = False
    """That its bound is reached was said."""


class Watcher:
    """Decides, window by window."""

    def __init__(self, rules: Mapping[str, Rule], high: Mapping[str, int], dry: bool = False) -> None:
        self.rules = rules
        self.traffic = Traffic.IDLE
        self.frozen = ""
        """Why, once it is."""
        self._high = high
        self._dry = dry
        self._states = {name: _State() for name in rules}
        self._expected: dict[str, Value] = {}

    def step(self, sample: Sample) -> list[Action]:
        """What to do after a window."""
        if self.frozen:
            return []
        if strange := self._stranger(sample):
            name, why = strange
            self.frozen = why
            return [Freeze(name, why)]
        return list(self._decide(sample))

    def became(self, name: str, value: Value) -> None:
        """What the kernel made of a value that was set: to expect from now on."""
        self._expected[name] = value

    def refused(self, rule: str, now: float) -> None:
        """What was asked for could not be done."""
        state = self._states[rule]
        state.attempt = None
        state.seen.clear()
        self._punish(state, now)

    def _decide(self, sample: Sample) -> Iterator[Action]:
        before, self.traffic = self.traffic, classify(sample)
        if self.traffic is not before:
            yield Say(f"the traffic is {self.traffic} now, it was {before}")
        busy = any(state.attempt for state in self._states.values())
        for name, rule in self.rules.items():
            state = self._states[name]
            share = self._binding(rule, sample)
            state.seen.append(share)
            if state.attempt:
                yield from self._look(name, rule, state, state.attempt, share, sample)
            elif not busy and self._binds(rule, state, sample.time):
                # one at a time: of two it could not be told which helped
                for action in self._act(name, rule, state, sample):
                    busy = busy or isinstance(action, Set)
                    yield action

    def _binding(self, rule: Rule, sample: Sample) -> float:
        """What binds for each packet that comes; 0 where it is not enough, or not this parameter."""
        rate = sample.rate(rule.counter)
        if rate < rule.least or rule.tunable not in sample.values:
            return 0.0
        if rule.classes and self.traffic not in rule.classes:
            return 0.0
        if rule.only_where and not sample.rate(rule.only_where):
            return 0.0
        return rate / max(sample.load, 1.0)

    def _binds(self, rule: Rule, state: _State, now: float) -> bool:
        return state.seen[-1] > 0 and sum(one > 0 for one in state.seen) >= BINDING and now >= state.free

    def _act(self, name: str, rule: Rule, state: _State, sample: Sample) -> Iterator[Action]:
        now = int(sample.values[rule.tunable])
        value = self._next(rule, now)
        if value is None:
            if not state.full:
                state.full = True
                yield Say(f"{rule.tunable} = {now} binds ({rule.counter}), and may not be more")
            return
        why = f"{rule.says(sample)}, as before; the traffic is {self.traffic}"
        yield Set(name, rule.tunable, value, why)
        if self._dry:
            state.seen.clear()
            self._punish(state, sample.time)
            return
        binding = max(state.seen)
        state.attempt = _Attempt(now, binding, binding)
        self._expected[rule.tunable] = value

    def _look(
        self, name: str, rule: Rule, state: _State, attempt: _Attempt, share: float, sample: Sample
    ) -> Iterator[Action]:
        attempt.windows.append(share)
        if len(attempt.windows) <= LOOK:
            return
        after = max(attempt.windows[-LOOK:])
        if after and not share and len(attempt.windows) <= 3 * LOOK:
            # it may just have helped
            return
        now = int(self._expected[rule.tunable])
        harm = next((name for name, most in HARM.items() if sample.rate(name) > most), "")
        if harm:
            yield from self._back(name, rule, state, attempt, f"memory is short ({harm})", sample.time)
        elif not after:
            yield Say(f"{rule.tunable} = {now} helped: {rule.counter} stands still")
            self._end(state, sample.time + REST)
            state.wait = WAIT
        elif after > WORSE * attempt.binding:
            yield from self._back(name, rule, state, attempt, "it got worse", sample.time)
        elif attempt.steps >= STEPS and after > HELPED * attempt.first:
            yield from self._back(name, rule, state, attempt, f"{STEPS} steps did not help", sample.time)
        elif (value := self._next(rule, now)) is None:
            if after > HELPED * attempt.first:
                yield from self._back(
                    name, rule, state, attempt, "all that it may be did not help", sample.time
                )
            else:
                yield Say(f"{rule.tunable} = {now} helped in part, and may not be more")
                self._end(state, sample.time + REST)
        else:
            attempt.steps += 1
            attempt.binding, attempt.windows = after, []
            self._expected[rule.tunable] = value
            yield Set(
                name,
                rule.tunable,
                value,
                f"{rule.counter} still moves by {sample.rate(rule.counter):.4g} a second",
            )

    def _back(
        self, name: str, rule: Rule, state: _State, attempt: _Attempt, why: str, now: float
    ) -> Iterator[Action]:
        self._expected[rule.tunable] = attempt.start
        yield Revert(
            name, rule.tunable, attempt.start, f"{why}; next attempt in {state.wait:.0f} s at the earliest"
        )
        self._end(state, now)
        self._punish(state, now)

    def _end(self, state: _State, free: float) -> None:
        state.attempt = None
        state.seen.clear()
        state.free = free

    def _punish(self, state: _State, now: float) -> None:
        state.free = now + state.wait
        state.wait = min(2 * state.wait, LONGEST)

    def _next(self, rule: Rule, now: int) -> int | None:
        high = self._high[rule.tunable]
        return min(high, now * rule.factor) if now < high else None

    def _stranger(self, sample: Sample) -> tuple[str, str] | None:
        """What somebody else has changed."""
        for name, value in sample.values.items():
            expected = self._expected.setdefault(name, value)
            if str(expected) != str(value):
                return (
                    name,
                    f"somebody set {name} to {value}, it was {expected}: hands off until the next start",
                )
        return None


def classify(sample: Sample) -> Traffic:
    """What passes, by its shape."""
    segments = sample.rate("TcpInSegs") + sample.rate("TcpOutSegs")
    datagrams = (
        sample.rate("UdpInDatagrams") + sample.rate("UdpOutDatagrams") + sample.rate("UdpRcvbufErrors")
    )
    if segments + datagrams < 10:
        return Traffic.IDLE
    if datagrams > segments:
        return Traffic.DATAGRAMS
    octets = sample.rate("IpExtInOctets") + sample.rate("IpExtOutOctets")
    connects = sample.rate("TcpPassiveOpens") + sample.rate("TcpActiveOpens")
    # acknowledgements are as many again as full segments, and short
    large = octets > 500 * segments
    return Traffic.BULK if large and connects < segments / 100 else Traffic.REQUESTS


def rules(path: Path | None = None) -> dict[str, Rule]:
    """The rules of a file, or those that come with netdyno."""
    path = path or paths.data("tunables") / "watch.yaml"
    return {
        name: config.check(Rule, written, "ND-104-41", f"{path.name}: {name}")
        for name, written in dict(config.read(path)).items()
    }


def bounds(known: Registry, names: Iterable[str]) -> dict[str, int]:
    """The most that each tunable may be."""
    found = {name: known.find(name).high for name in names}
    return {name: high for name, high in found.items() if high is not None}
