"""What to do about parameters that bind: samples in, actions out. `watch_run.py` has the I/O and the clock.

A rule acts when its counter binds in several of the last windows, by one step, and then looks. A step that
made things worse, and steps that did not help, are taken back, and the rule waits, each time twice as long.
What helped stays. Each value only ever goes one way from where it was, so nothing swings.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from fnmatch import fnmatchcase
from pathlib import Path
from statistics import median
from typing import Literal

from pydantic import Field, model_validator

from netdyno import config, paths
from netdyno.errors import Error
from netdyno.stats.observation import Value
from netdyno.tuning.registry import Registry

SEEN, BINDING = 4, 2
"""A rule acts when its counter binds in so many of so many windows."""
LOOK = 2
"""Windows to look at after a step, and one before them that is not looked at."""
NOISE = 6
"""Windows of which the best must be worse, where it is a rate that judges: those fall by themselves too."""
BEFORE, AFTER = 8, 3
"""Windows at most that a rate is compared with, and at least those after a step."""
CHANCE = 0.03
"""How likely a rate that did not change may pass for one that grew, at each of the windows three to six, and
a pause between bursts for a counter that stands still.
Over all of them 0.3 % of rates that vary by 10 % from window to window are so said to have helped, and 5 %
of those that vary by 30 % (2,000 simulated each)."""
STEPS = 4
"""Steps of which one must have helped."""
HELPED, WORSE = 0.8, 1.5
"""Of what a window brings, the share that still binds: below it a step helped, above it did harm. Of a rate
that is to grow it is the share that there was before."""
HARM = {"psi.memory.full": 50_000.0, "TcpExtTCPMemoryPressures": 0.0}
"""More than so much a second says that memory is short: microseconds in which all waited, and how often."""
SLO, SINCE = "slo.broken", "slo.since"
"""Gauges of a load that runs beside: whether its last run broke the SLO, and when that run began. A step is
judged by a run that began after it."""
STUCK = "listeners.stuck"
"""Gauge of listeners from which nothing is accepted: what happens to their queues proves nothing."""
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
    """What is done about one parameter. `{value}` in the name of a gauge stands for what it is."""

    tunable: str
    counter: str
    least: float = 1.0
    """So many a second at least; of a gauge, its value."""
    only_where: str = ""
    classes: tuple[Traffic, ...] = ()
    """Only for such traffic."""
    factor: float | None = None
    """One step, where it is a number to be multiplied."""
    to: Value | None = None
    """The one step, where it is a choice."""
    bits: int | None = None
    """The one step, where it is a sum of bits: those that are to be in it."""
    limit: int | None = None
    """As far as it goes, if that is nearer than what the registry allows."""
    horizon: int = Field(default=SEEN, ge=SEEN, le=600)
    """Windows of which two must bind. Long where nothing but this parameter moves the counter: so that bursts
    count that come seldom."""
    gain: str = ""
    """A rate that must grow; without one, the counter must stand still."""
    patience: int = 0
    """So many windows it waits for that rate to be there at all, while other rules go on: for what takes
    effect on what begins later only. When nothing comes it is taken back."""
    reach: Literal["", "backlog", "udp", "tcp"] = ""
    """What of running sockets follows."""
    along: tuple[str, ...] = ()
    """Parameters that a step multiplies as much, each at most as large as the one named before it."""

    @model_validator(mode="after")
    def _one_step(self) -> Rule:
        if sum(step is not None for step in (self.factor, self.to, self.bits)) != 1:
            raise ValueError("a rule has one of factor, to and bits")
        if self.factor is not None and (self.factor <= 0 or (self.factor < 1 and self.limit is None)):
            raise ValueError("a factor is above 0, and one below 1 has a limit")
        if self.patience and not self.gain:
            raise ValueError("patience is for a gain")
        if self.along and (self.factor or 0) <= 1:
            raise ValueError("what is raised along has a factor above 1")
        return self

    def binding(self, sample: Sample) -> float:
        """Its counter."""
        return sample.rate(_named(self.counter, sample.values[self.tunable]))

    def brings(self, sample: Sample) -> float:
        """What is to grow."""
        return sample.rate(_named(self.gain, sample.values[self.tunable])) if self.gain else 0.0

    def next(self, now: Value, high: int | None, low: int | None = None) -> Value | None:
        """The value after a step, if there is one more; never below the least that is allowed."""
        if self.to is not None:
            return None if str(now) == str(self.to) else self.to
        number = int(now)
        if self.bits is not None:
            return None if number & self.bits == self.bits else number | self.bits
        assert self.factor is not None
        wanted = int(number * self.factor)
        if self.factor < 1:
            assert self.limit is not None
            return max(self.limit, wanted) if number > self.limit else None
        most = min(limit for limit in (high, self.limit, max(wanted, low or 0)) if limit is not None)
        return most if most > number else None

    def others(self, values: Mapping[str, Value], value: Value) -> dict[str, Value]:
        """What is raised along with a step to a value; nothing that is above what bounds it already."""
        if not self.along:
            return {}
        found: dict[str, Value] = {}
        most = int(value)
        for name in self.along:
            now = int(values.get(name, most + 1))
            if now > most:
                break
            raised = min(most, int(now * int(value) / int(values[self.tunable])))
            if raised > now:
                found[name] = raised
            most = max(now, raised)
        return found

    def describe(self, sample: Sample) -> str:
        """What its counter does."""
        name = _named(self.counter, sample.values[self.tunable])
        unit = "" if name.startswith(("tcp.", "ports.")) else " a second"
        return f"{name} is at {self.binding(sample):.4g}{unit}"


def _named(gauge: str, value: Value) -> str:
    return gauge.replace("{value}", str(value))


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
    value: Value
    why: str
    also: Mapping[str, Value] = field(default_factory=dict)
    """Others that are raised along."""


@dataclass(frozen=True)
class Revert:
    """Put a tunable back to what it was before the rule touched it."""

    rule: str
    name: str
    value: Value
    why: str
    also: Mapping[str, Value] = field(default_factory=dict)
    """Others that were raised along."""


@dataclass(frozen=True)
class Freeze:
    """Leave everything alone from now on."""

    name: str
    why: str


@dataclass(frozen=True)
class Say:
    """Something worth a line in the log."""

    why: str
    rule: str = ""
    """The one whose limit binds, of which it is told."""
    setting: Mapping[str, Value] = field(default_factory=dict)
    """What would lift the limit and is not set by the watch; empty where no parameter does."""


Action = Set | Revert | Freeze | Say


@dataclass
class _Attempt:
    """Steps that are being looked at."""

    start: Value
    """The value before the first of them."""
    binding: float
    """The share that bound before the latest."""
    first: float
    """The share that bound before the first."""
    began: float
    """When the latest was taken."""
    kept: bool
    """Whether the SLO was kept before the first of them."""
    gain: float
    """The rate before the latest, at its best."""
    before: list[float]
    """The rate before the latest, window by window."""
    often: float
    """The share of windows that bound before the first, since one of them did."""
    others: Mapping[str, Value]
    """The values before the first of what is raised along."""
    steps: int = 1
    windows: list[float] = field(default_factory=list)
    """The share that bound since the latest; the first of them is of before and after."""
    gains: list[float] = field(default_factory=list)
    """The rate since the latest, where there was one."""


@dataclass
class _State:
    seen: deque[float]
    """The share that bound, window by window; 0 where it did not."""
    gains: deque[float] = field(default_factory=lambda: deque(maxlen=BEFORE))
    attempt: _Attempt | None = None
    free: float = float("-inf")
    """When it may act again."""
    wait: float = WAIT
    full: bool = False
    """That its bound is reached was said."""

    def end(self, free: float) -> None:
        """No more of this attempt."""
        self.attempt = None
        self.seen.clear()
        self.gains.clear()
        self.free = free

    def punish(self, now: float) -> None:
        """Wait, and twice as long the next time."""
        self.end(now + self.wait)
        self.wait = min(2 * self.wait, LONGEST)


class Watcher:
    """Decides, window by window."""

    def __init__(
        self,
        rules: Mapping[str, Rule],
        high: Mapping[str, int],
        dry: bool = False,
        *,
        low: Mapping[str, int] | None = None,
        closed: Mapping[str, str] | None = None,
    ) -> None:
        """`high`, `low`: bounds of the tunables. `closed`: those not to be set here, and what allows it;
        where one of them binds, that is said once."""
        self.rules = rules
        self.traffic = Traffic.IDLE
        self.frozen = ""
        """Why, once it is."""
        self._high = high
        self._dry = dry
        self._low, self._closed = low or {}, closed or {}
        self._states = {name: _State(deque(maxlen=rule.horizon)) for name, rule in rules.items()}
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
        """What was asked for could not be done: it is as it was."""
        for name in (self.rules[rule].tunable, *self.rules[rule].along):
            self._expected.pop(name, None)
        self._states[rule].punish(now)

    def _decide(self, sample: Sample) -> Iterator[Action]:
        before, self.traffic = self.traffic, classify(sample)
        if self.traffic is not before:
            yield Say(f"the traffic is {self.traffic} now, it was {before}")
        # one at a time: of two it could not be told which helped
        busy = any(state.attempt and not self.rules[name].patience for name, state in self._states.items())
        held = {self.rules[name].tunable for name, state in self._states.items() if state.attempt}
        for name, rule in self.rules.items():
            if rule.tunable not in sample.values:
                continue
            state = self._states[name]
            share = self._binding(rule, sample)
            state.seen.append(share)
            state.gains.append(rule.brings(sample))
            if state.attempt:
                yield from self._check_rule(name, rule, state, state.attempt, sample)
            elif not busy and rule.tunable not in held and self._binds(state, sample.time):
                for action in self._act(name, rule, state, sample):
                    busy = busy or isinstance(action, Set)
                    yield action

    def _binding(self, rule: Rule, sample: Sample) -> float:
        """What binds for each packet that comes; 0 where it is not enough, or not this parameter."""
        rate = rule.binding(sample)
        if rate < rule.least or (rule.classes and self.traffic not in rule.classes):
            return 0.0
        if rule.only_where and not sample.rate(rule.only_where):
            return 0.0
        if rule.factor is None and self._next(rule, sample.values[rule.tunable]) is None:
            # it is what it would be set to
            return 0.0
        return rate if rule.gain else rate / max(sample.load, 1.0)

    def _binds(self, state: _State, now: float) -> bool:
        return state.seen[-1] > 0 and sum(one > 0 for one in state.seen) >= BINDING and now >= state.free

    def _act(self, name: str, rule: Rule, state: _State, sample: Sample) -> Iterator[Action]:
        now = sample.values[rule.tunable]
        value = self._next(rule, now)
        if rule.tunable in self._closed:
            if not state.full:
                state.full = True
                to = "" if value is None else f", {value} would be tried"
                closed = self._closed[rule.tunable]
                why = f"{rule.describe(sample)}: {rule.tunable} = {now} binds{to}; {closed}"
                setting = {} if value is None else {rule.tunable: value, **rule.others(sample.values, value)}
                yield Say(why, name, setting)
            return
        if value is None:
            if not state.full:
                state.full = True
                yield Say(f"{rule.tunable} = {now} binds ({rule.counter}), and may not be more", name)
            return
        why = f"{rule.describe(sample)}, as before; the traffic is {self.traffic}"
        also = rule.others(sample.values, value)
        yield Set(name, rule.tunable, value, why, also)
        if self._dry:
            state.punish(sample.time)
            return
        binding, since = max(state.seen), list(itertools.dropwhile(lambda one: not one, state.seen))
        state.attempt = _Attempt(
            now, binding, binding, sample.time, not sample.rate(SLO), max(state.gains), list(state.gains),
            sum(one > 0 for one in since) / len(since),
            {other: sample.values[other] for other in rule.along if other in sample.values},
        )  # fmt: skip
        self._expected |= {rule.tunable: value, **also}

    def _check_rule(
        self, name: str, rule: Rule, state: _State, attempt: _Attempt, sample: Sample
    ) -> Iterator[Action]:
        attempt.windows.append(state.seen[-1])
        if len(attempt.windows) < LOOK:
            return
        if gain := state.gains[-1]:
            attempt.gains.append(gain)
        now = self._expected[rule.tunable]
        harm = next((name for name, most in HARM.items() if sample.rate(name) > most), "")
        verdict = self._grown(rule, attempt) if rule.gain else self._still(attempt)
        if harm:
            yield self._back(name, rule, state, attempt, f"memory is short ({harm})", sample.time)
        elif attempt.kept and sample.rate(SLO):
            yield self._back(name, rule, state, attempt, "the SLO is broken, it was kept before", sample.time)
        elif rule.reach == "backlog" and sample.rate(STUCK):
            yield self._back(name, rule, state, attempt, "a server accepts nothing", sample.time)
        elif SINCE in sample.rates and sample.rate(SINCE) < attempt.began:
            # no run of the load that began after the step has ended
            return
        elif verdict == "helped":
            yield Say(f"{rule.tunable} = {now} {self._outcome(rule, attempt)}")
            state.wait = WAIT
            state.end(sample.time + (0.0 if rule.gain else REST))
        elif verdict in ("more", "vain"):
            yield from self._further(name, rule, state, attempt, verdict == "more", sample)
        elif verdict != "wait":
            yield self._back(name, rule, state, attempt, verdict, sample.time)

    def _further(
        self, name: str, rule: Rule, state: _State, attempt: _Attempt, helped: bool, sample: Sample
    ) -> Iterator[Action]:
        """One more step, or the end: it still binds."""
        now = self._expected[rule.tunable]
        value = self._next(rule, now)
        if rule.gain and helped:
            # what it brought stays, whatever comes of the next one
            attempt.start, attempt.steps, attempt.gain = now, 0, max(attempt.gains)
            attempt.before = list(attempt.gains)
        if not helped and (rule.gain or attempt.steps >= STEPS or value is None):
            steps = "it" if rule.gain else "all that it may be" if value is None else f"{STEPS} steps"
            yield self._back(name, rule, state, attempt, f"{steps} did not help", sample.time)
        elif value is None:
            yield Say(f"{rule.tunable} = {now} helped in part, and may not be more")
            state.end(sample.time + REST)
        else:
            attempt.steps += 1
            attempt.began = sample.time
            attempt.binding = max(attempt.windows[1:][-LOOK:])
            attempt.windows, attempt.gains = [], []
            also = rule.others({**sample.values, rule.tunable: now}, value)
            self._expected |= {rule.tunable: value, **also}
            yield Set(name, rule.tunable, value, f"still {rule.describe(sample)}", also)

    def _still(self, attempt: _Attempt) -> str:
        """What to make of a counter since a step: wait, helped, more, vain, or why to take it back."""
        looked = attempt.windows[1:]
        share, after = looked[-1], max(looked[-LOOK:])
        if len(looked) < LOOK and (not share or share > WORSE * max(attempt.binding, attempt.first)):
            return "wait"
        if not after:
            return "helped"
        if not share and len(looked) < NOISE:
            # it may just have helped
            return "wait"
        # a table that fills up again after a step binds as before the first of them, and not more
        if after > WORSE * max(attempt.binding, attempt.first):
            return "it got worse"
        return "more" if after <= HELPED * attempt.first else "vain"

    def _grown(self, rule: Rule, attempt: _Attempt) -> str:
        """The same of a rate that is to grow."""
        looked, best = attempt.windows[1:], max(attempt.gains, default=0.0)
        if grown(attempt.before, attempt.gains):
            more = self._next(rule, self._expected[rule.tunable]) is not None
            return "more" if looked[-1] and more else "helped"
        if rule.patience and not attempt.gains:
            return "wait" if len(looked) < rule.patience else "nothing came that makes use of it"
        if len(attempt.gains if rule.patience else looked) < NOISE:
            return "wait"
        if WORSE * best < attempt.gain and attempt.gains:
            return "it got worse"
        return "vain" if rule.patience or max(looked[-LOOK:]) > 0 else "helped"

    def _outcome(self, rule: Rule, attempt: _Attempt) -> str:
        gain = _named(rule.gain, self._expected[rule.tunable])
        if gain and grown(attempt.before, attempt.gains):
            return f"helped: {gain} went from {median(attempt.before):.4g} to {median(attempt.gains):.4g}"
        counter = _named(rule.counter, self._expected[rule.tunable])
        quiet = len(list(itertools.takewhile(lambda one: not one, reversed(attempt.windows[1:]))))
        if (1 - attempt.often) ** quiet <= CHANCE:
            return f"helped: {counter} stands still"
        # bursts that come seldom leave such a pause by themselves
        often = f"it moved in {attempt.often:.0%} of the windows before"
        return f"stays: {counter} stands still for {quiet} windows, too few to tell that it helped; {often}"

    def _back(self, name: str, rule: Rule, state: _State, attempt: _Attempt, why: str, now: float) -> Revert:
        also = {
            other: value
            for other, value in attempt.others.items()
            if str(self._expected[other]) != str(value)
        }
        self._expected |= {rule.tunable: attempt.start, **also}
        again = f"{why}; next attempt in {state.wait:.0f} s at the earliest"
        state.punish(now)
        return Revert(name, rule.tunable, attempt.start, again, also)

    def _next(self, rule: Rule, now: Value) -> Value | None:
        return rule.next(now, self._high.get(rule.tunable), self._low.get(rule.tunable))

    def _stranger(self, sample: Sample) -> tuple[str, str] | None:
        """What somebody else has changed."""
        for name, value in sample.values.items():
            if name in self._closed:
                continue
            expected = self._expected.setdefault(name, value)
            if str(expected) != str(value):
                return (
                    name,
                    f"somebody set {name} to {value}, it was {expected}: hands off until the next start",
                )
        return None


def grown(before: Sequence[float], after: Sequence[float]) -> bool:
    """Whether a rate is larger than it was: by a quarter in the middle, and by more than chance (rank sum).

    With few windows before, each of those after must be larger than the largest of them, by a quarter.
    """
    if len(after) < AFTER or HELPED * median(after) < median(before) or not median(after):
        return False
    if len(before) < SEEN:
        return HELPED * min(after) >= max(before)
    return rank_sum(before, after) <= CHANCE


def rank_sum(before: Sequence[float], after: Sequence[float]) -> float:
    """One-sided p of the exact rank sum test: in how many ways to choose so many of all are they as large."""
    listed = sorted([*before, *after])
    ranks = [listed.index(one) + listed.count(one) / 2 for one in (*before, *after)]
    least = sum(ranks[len(before) :])
    ways = [sum(chosen) for chosen in itertools.combinations(ranks, len(after))]
    return sum(one >= least - 1e-9 for one in ways) / len(ways)


def classify(sample: Sample) -> Traffic:
    """What passes, by its shape."""
    segments = sample.rate("TcpInSegs") + sample.rate("TcpOutSegs")
    datagrams = sum(
        sample.rate(f"{family}{name}")
        for family in ("Udp", "Udp6")
        for name in ("InDatagrams", "OutDatagrams", "RcvbufErrors")
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


def without(chosen: Mapping[str, Rule], names: Iterable[str]) -> dict[str, Rule]:
    """The rules but those of these names, or of these parameters; `*` stands for anything in a name."""
    left = dict(chosen)
    for name in names:
        gone = {
            rule for rule, one in chosen.items()
            if fnmatchcase(rule, name) or fnmatchcase(one.tunable, name) or one.tunable.startswith(f"{name}.")
        }  # fmt: skip
        if not gone:
            there = ", ".join(f"{rule} ({one.tunable})" for rule, one in chosen.items())
            raise Error(
                "ND-104-40", f"no rule is called or sets {name!r}", at=name, fix=f"There are: {there}"
            )
        left = {rule: one for rule, one in left.items() if rule not in gone}
    return left


def least(known: Registry, names: Iterable[str]) -> dict[str, int]:
    """The least that each tunable may be."""
    found = {name: known.find(name).low for name in names}
    return {name: low for name, low in found.items() if low is not None}


def bounds(known: Registry, names: Iterable[str]) -> dict[str, int]:
    """The most that each tunable may be."""
    found = {name: known.find(name).high for name in names}
    return {name: high for name, high in found.items() if high is not None}
