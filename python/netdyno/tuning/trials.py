"""Trials in pairs: A beside B, in an order drawn by coins, each again where it was disturbed.

A trial is measured again in its own place, before the next: which setting comes first was drawn before, so
that what disturbs a place does so whichever setting is there, and the tests stay exact.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from netdyno.stats.paired import Order, design
from netdyno.tuning.model import Bench, Observation, Setting

Pair = tuple[Observation, Observation]

Progress = Callable[[int, int, Observation], None]
"""Told after each trial: how many are done, of how many, and what it saw."""


@dataclass(frozen=True)
class Limits:
    """How much the machine may be disturbed during a trial that is to count."""

    steal: float = 0.05
    """Share of the processors' time that the hypervisor gave to others."""
    memory: float = 0.10
    """Share of the time in which all tasks waited for memory."""
    io: float = 0.50
    """Share of the time in which all tasks waited for disks."""


def disturbed(counters: Mapping[str, float], seconds: float, limits: Limits) -> str:
    """What disturbed a trial; nothing when nothing did.

    Pressure on processors is no disturbance: the load itself makes it.
    """
    whole = counters.get("cpu.all", 0.0)
    shares = {
        "steal": (counters.get("cpu.steal", 0.0) / whole if whole > 0 else 0.0, limits.steal),
        "memory pressure": (counters.get("psi.memory.full", 0.0) / 1e6 / max(seconds, 1e-9), limits.memory),
        "disk pressure": (counters.get("psi.io.full", 0.0) / 1e6 / max(seconds, 1e-9), limits.io),
    }
    over = [f"{name} {share:.0%}" for name, (share, limit) in shares.items() if share > limit]
    return ", ".join(over)


def gated(seen: Observation, limits: Limits) -> Observation:
    """An observation that is invalid if the trial was disturbed."""
    why = disturbed(seen.counters, seen.seconds, limits)
    return replace(seen, valid=False, why=why) if seen.valid and why else seen


_DISTURBED = re.compile(r"(steal|memory pressure|disk pressure) \d+%(?:, |$)")


def cause(seen: Observation) -> str:
    """What a trial was lost to, without its figures, so that such can be counted."""
    if names := _DISTURBED.findall(seen.why):
        return " and ".join(names)
    return f"failures ({seen.why})" if seen.why else "failures"


@dataclass
class Spare:
    """Trials that may be measured again, of all that is measured together."""

    left: int
    again: Counter[str] = field(default_factory=Counter)
    """How many were, by what they were lost to."""

    def __post_init__(self) -> None:
        """Half of it may go to trials that saw nothing: they failed by themselves, and mostly do again."""
        self._for_failures = self.left // 2

    def take(self, seen: Observation) -> bool:
        """Whether a trial that does not count may be measured again; then it is one of them."""
        failed = not seen.metrics
        if self.left <= 0 or (failed and self._for_failures <= 0):
            return False
        self.left -= 1
        self._for_failures -= failed
        self.again[cause(seen)] += 1
        return True


def settled(
    measure: Callable[[int], Observation],
    spare: Spare,
    limits: Limits | None = None,
    after: Callable[[Observation], None] = lambda seen: None,
) -> Observation:
    """A trial, again as long as it does not count and there are any to spare.

    `measure` is told how often it was measured before.
    """
    attempt = 0
    while True:
        seen = gated(measure(attempt), limits or Limits())
        again = not seen.valid and spare.take(seen)
        after(seen)
        if not again:
            return seen
        attempt += 1


def measure_pairs(
    bench: Bench,
    a: Setting,
    b: Setting,
    pairs: int,
    seed: int,
    *,
    order: Order = "shuffled",
    limits: Limits | None = None,
    spare: Spare | None = None,
    progress: Progress = lambda done, of, seen: None,
) -> list[Pair]:
    """Measure A and B in pairs. A disturbed trial is measured again as long as there are any to `spare`, by
    default as many as are planned; what is left invalid then stays so."""
    rest = Spare(2 * pairs) if spare is None else spare
    found: list[Pair] = []
    done, before = 0, rest.again.total()

    def after(seen: Observation) -> None:
        nonlocal done
        done += 1
        progress(done, 2 * pairs + rest.again.total() - before, seen)

    def trial(arm: Setting, number: int) -> Observation:
        return settled(lambda _: bench.measure(arm, seed * 100_003 + number), rest, limits, after)

    for number, a_first in enumerate(design(pairs, seed, order)):
        first = trial(a if a_first else b, number)
        second = trial(b if a_first else a, number)
        found.append((first, second) if a_first else (second, first))
    return found


def both(pairs: Sequence[Pair], metric: str) -> list[tuple[float, float]]:
    """What A and B had of a metric in the pairs that count and have it."""
    return [
        (a.metrics[metric], b.metrics[metric])
        for a, b in valid(pairs)
        if metric in a.metrics and metric in b.metrics
    ]


def valid(pairs: Sequence[Pair]) -> list[Pair]:
    """The pairs in which both trials count."""
    return [(a, b) for a, b in pairs if a.valid and b.valid]


def lost(pairs: Sequence[Pair]) -> dict[str, int]:
    """How many pairs do not count, by what the first of their trials that does not was lost to."""
    gone = (next(one for one in pair if not one.valid) for pair in pairs if not all(o.valid for o in pair))
    return dict(Counter(map(cause, gone)).most_common())
