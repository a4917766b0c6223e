"""Trials in pairs, A beside B: which count, and what the others were lost to; pure."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from netdyno.stats.observation import Observation

Pair = tuple[Observation, Observation]
FAILURES = "failures"
"""How it begins what trials were lost to that failed by themselves."""


@dataclass(frozen=True)
class DisturbanceLimits:
    """Limits of host disturbance for a trial to count."""

    steal: float = 0.05
    """Share of the processors' time that the hypervisor gave to others."""
    memory: float = 0.10
    """Share of the time in which all tasks waited for memory."""
    io: float = 0.50
    """Share of the time in which all tasks waited for disks."""


def disturbed(counters: Mapping[str, float], seconds: float, limits: DisturbanceLimits) -> str:
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


def gated(seen: Observation, limits: DisturbanceLimits) -> Observation:
    """An observation that is invalid if the trial was disturbed."""
    why = disturbed(seen.counters, seen.seconds, limits)
    return replace(seen, valid=False, why=why) if seen.valid and why else seen


_DISTURBED = re.compile(r"(steal|memory pressure|disk pressure) \d+%(?:, |$)")


def cause(seen: Observation) -> str:
    """What a trial was lost to, without its figures, so that such can be counted."""
    if names := _DISTURBED.findall(seen.why):
        return " and ".join(names)
    return f"{FAILURES} ({seen.why})" if seen.why else FAILURES


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
