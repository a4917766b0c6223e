"""What a case is: what is measured in it, and what is aimed at."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from judge import Goal, Metric
from rounds import Sides


@dataclass(frozen=True)
class Case:
    """One comparison: `setup` makes what all sides need and yields them."""

    setup: Callable[[], contextlib.AbstractContextManager[Sides]]
    metrics: Mapping[str, Metric]


AS_GOOD = (Goal(least=1.0, ratio=True),)


def rate(unit: str, *goals: Goal) -> dict[str, Metric]:
    """The figure that every case has."""
    return {"rate": Metric(unit, goals=goals)}


def cost(unit: str, *goals: Goal) -> dict[str, Metric]:
    """Generator CPU for each operation."""
    return {"cpu": Metric(unit, lower=True, goals=goals)}


def less(unit: str, *goals: Goal) -> Metric:
    """A figure of which less is better."""
    return Metric(unit, lower=True, goals=goals)


CYCLES = less("cycles/packet")
"""What the elements of a run spend on a packet; two builds are compared by it, too."""
BUILD = "other build"
"""The name of the peer that is a build of ours."""
EXACT = Goal(most=0, exact=True)
