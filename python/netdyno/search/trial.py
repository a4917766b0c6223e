"""What strategies and the trials that they ask for say to each other. Pure: no clock, no I/O.

A strategy is a generator: it yields the load that it wants tried, and is sent what the trial showed. The
load axis has a unit (frames per second, flows per second, devices, frames of a burst); strategies need not
know which.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field

from netdyno.errors import Error
from netdyno.search.criteria import TransactionCounts


@dataclass(frozen=True)
class TrialRequest:
    """A trial that a strategy requests."""

    load: float
    seconds: float
    shape: str = ""
    """How the load is offered, where it is not steady: `burst`, `recovery`, `reset`; `at-0.5`: half of
    what was found."""
    check: bool = False
    """It only tells whether the DUT still answers."""


@dataclass(frozen=True)
class SilentGroup:
    """A group that got no more answers, and since when."""

    group: str
    """Its name."""
    since: float | None = None
    """When the last answer came, seconds from the start of the trial; none: none came at all."""


@dataclass(frozen=True)
class LoadTrial:
    """What one trial showed at one load."""

    load: float
    """The intended load, in the unit of the axis."""
    seconds: float
    """How long it was offered."""
    sent: int
    """What our side offered: frames, or messages."""
    lost: int
    """What of it did not come back."""
    broken: tuple[str, ...] = ()
    """Thresholds of the profile that did not hold."""
    cause: str = ""
    """Why it failed: failures in the server's words, else the values that broke a threshold."""
    short: bool = False
    """An end of ours did not carry the load: it bounds us, and says nothing of the DUT."""
    overrun: bool = False
    """The receiver: it did not take all that reached it; else the generator, which did not offer it."""
    connections: str = ""
    """What its connections carried, where all were waiting for answers: more of them would carry the load."""
    disturbed: str = ""
    """What disturbed it, by no fault of the DUT; nothing: nothing did."""
    figures: Mapping[str, float] = field(default_factory=dict)
    """Whatever else was measured."""
    late: Mapping[str, float] = field(default_factory=dict)
    """Of these, delays that the generator's own lateness is much of: how much, as a share."""
    silent: tuple[SilentGroup, ...] = ()
    """Groups that nobody answered, in the whole trial or at its end."""
    answered: bool = True
    """Whether anything was delivered."""
    heard: bool = False
    """Whether anything was delivered in any phase, the warm-up among them."""
    number: int = 0
    """Its place in the order in which all ran, from 1."""
    shape: str = ""
    """As it was asked for."""
    counts: TransactionCounts | None = None
    """Of transactions and connections."""

    @property
    def loss(self) -> float:
        """Share of what was offered that did not come back; nothing offered is all lost."""
        return self.lost / self.sent if self.sent else 1.0


@dataclass(frozen=True)
class Goal:
    """What a load is to meet: a predicate on a trial."""

    name: str
    met: Callable[[LoadTrial], bool] = field(compare=False)
    words: str = ""
    """What it means, in words that continue "the highest load …"."""
    ratio: float | None = None
    """The loss ratio that it allows; none where it is of another kind."""
    why: Callable[[LoadTrial], tuple[str, ...]] = field(default=lambda _: (), compare=False)
    """Which of several criteria a trial did not keep, in words."""

    def passed(self, trial: LoadTrial) -> bool:
        """Whether a trial met it; a load that our side could not offer is none to search at."""
        return not trial.short and self.met(trial)


def loss_goal(name: str, ratio: float, at: str = "loss") -> Goal:
    """The highest load of which at most this share is lost; 0: no frame (RFC 2544 §26.1)."""
    if not isinstance(ratio, int | float) or isinstance(ratio, bool) or not 0 <= ratio < 1:
        fix = "Give a share from 0 (no loss) to below 1, like 0.005"
        raise Error("ND-104-05", f"{ratio!r} is no share that may be lost", at=at, fix=fix)
    words = f"with at most {ratio:.4g} lost" if ratio else "without a lost frame"
    return Goal(name, lambda seen: seen.loss <= ratio, words, ratio)


def threshold_goal() -> Goal:
    """The highest load at which every threshold of the profile holds."""
    return Goal("thresholds", lambda seen: not seen.broken, "that keeps the thresholds")


def rfc9411_goal(*, held: bool = False) -> Goal:
    """The highest load of which fewer than one transaction in 100,000 fails, and fewer than one connection in
    100,000 is reset (RFC 9411 §7); `held`: and of whose connections as few were lost."""

    def broken(seen: LoadTrial) -> tuple[str, ...]:
        if seen.counts is None:
            return ("loss",) if seen.lost else ()
        return seen.counts.broken(held=held)

    words = "with less than 0.001 % of transactions failed and of connections reset"
    words += ", all connections kept" if held else ""
    return Goal("rfc9411", lambda seen: not seen.broken and not broken(seen), words, why=broken)


def broken(goals: Sequence[Goal], trial: LoadTrial) -> list[str]:
    """The criteria of goals that a trial did not keep, in words."""
    return list(dict.fromkeys(said for goal in goals for said in goal.why(trial)))


@dataclass(frozen=True)
class Space:
    """Where to look: the loads there are, and how fine."""

    most: float
    """The highest load to try: what the medium carries, or what the profile says."""
    resolution: float = 0.005
    """How far apart the bounds may be in the end, as a share of the upper one."""
    seconds: float = 10.0
    """Length of a trial."""
    least: float = 0.0
    """The lowest load to try; 0: the resolution's share of the highest."""
    step: float = 0.0
    """Loads are whole multiples of it; 0: any load."""

    @property
    def bottom(self) -> float:
        """The lowest load to try."""
        least = self.least or self.most * self.resolution
        # a resolution may come to a share of a step
        return max(1, math.ceil(least / self.step - 1e-9)) * self.step if self.step else least

    def is_resolved(self, low: float, high: float) -> bool:
        """Whether an edge between these is known to the resolution; nothing is finer than a step."""
        return high - low <= max(self.resolution * high, self.step)

    def round(self, load: float) -> float:
        """The nearest load there is."""
        # loads that are meant to be the same are the same: trials at a load are counted together
        fine = self.step or self.most * self.resolution / 8
        steps = round(load / fine)
        return min(self.most, max(self.bottom, steps * fine))


Strategy = Generator[TrialRequest, LoadTrial, str]
"""Yields what it wants tried and is sent what that showed; returns why it stopped."""


def run(strategy: Strategy, measure: Callable[[TrialRequest], LoadTrial]) -> tuple[list[LoadTrial], str]:
    """Drive a strategy to its end: all trials in order, and why it stopped."""
    seen: list[LoadTrial] = []
    try:
        ask = next(strategy)
        while True:
            seen.append(measure(ask))
            ask = strategy.send(seen[-1])
    except StopIteration as end:
        return seen, str(end.value or "")


def prepend(strategy: Strategy, seen: list[LoadTrial]) -> Strategy:
    """A strategy as the first part of another one; its trials are added to `seen`."""
    try:
        ask = next(strategy)
        while True:
            seen.append((yield ask))
            ask = strategy.send(seen[-1])
    except StopIteration as end:
        return str(end.value or "")


def counting_trials(trials: Sequence[LoadTrial]) -> list[LoadTrial]:
    """The trials that are evidence: not disturbed, and with the load that was asked for."""
    return [one for one in trials if not one.disturbed and not one.short]
