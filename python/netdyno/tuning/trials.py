"""Trials in pairs: A beside B, in an order drawn by coins, again where one was disturbed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

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


def measure_pairs(
    bench: Bench,
    a: Setting,
    b: Setting,
    pairs: int,
    seed: int,
    *,
    order: Order = "shuffled",
    limits: Limits | None = None,
    progress: Progress = lambda done, of, seen: None,
    known: Sequence[Pair] = (),
    keep: Callable[[Pair], None] = lambda pair: None,
) -> list[Pair]:
    """Measure A and B in pairs. A pair with a disturbed trial is measured again, at most as often as it needs
    half of all pairs; what is left invalid then stays so. `known` pairs are not measured again."""
    bounds, found, spare = limits or Limits(), list(known), pairs // 2
    of, done = 2 * pairs, 2 * len(known)
    for number, a_first in enumerate(design(pairs, seed, order)):
        if number < len(known):
            continue
        while True:
            trial = seed * 100_003 + number
            arms = (a, b) if a_first else (b, a)
            seen: list[Observation] = []
            for arm in arms:
                seen.append(gated(bench.measure(arm, trial), bounds))
                done += 1
                progress(done, of, seen[-1])
            if all(one.valid for one in seen) or not spare:
                break
            spare -= 1
            of += 2
        pair = (seen[0], seen[1]) if a_first else (seen[1], seen[0])
        found.append(pair)
        keep(pair)
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
