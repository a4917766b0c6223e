"""How much better one value is than another, so that unlike metrics can be laid side by side."""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterable, Mapping, Sequence

from netdyno.errors import Error
from netdyno.stats.observation import Metric, Observation

LEAST = 1e-3
"""The smallest share of its reference that a ratio counts: nothing at all is no infinite loss."""


def gain(metric: Metric, value: float, reference: float) -> float:
    """By how much `value` is better: a log-ratio; of counts that should be 0 a difference of their roots.

    Of many things that happen by chance the count varies by its root: by that, a difference weighs the same
    whether few happen or many.
    """
    if metric.zero_is_best:
        return math.sqrt(max(0.0, reference)) - math.sqrt(max(0.0, value))
    floor = LEAST * abs(reference) or LEAST
    ratio = math.log(max(value, floor) / max(reference, floor))
    return ratio if metric.better == "higher" else -ratio


def change(metric: Metric, better_by: float, reference: float) -> float:
    """What `gain` gave, as the change of the metric itself: 0.5 is half as much again; of counts how many."""
    if metric.zero_is_best:
        return max(0.0, math.sqrt(max(0.0, reference)) - better_by) ** 2 - reference
    return math.expm1(better_by if metric.better == "higher" else -better_by)


def centre(metric: Metric, values: Sequence[float]) -> float:
    """The value in the middle of several: the geometric mean of what is compared by ratios."""
    if not metric.zero_is_best and all(v > 0 for v in values):
        return math.exp(math.fsum(map(math.log, values)) / len(values))
    return math.fsum(values) / len(values)


def has_metrics(seen: Observation, *metrics: str) -> bool:
    """Whether a trial counts, and saw all of these."""
    return seen.valid and all(math.isfinite(seen.metrics.get(name, math.nan)) for name in metrics)


def of_bench(known: Mapping[str, Metric], names: Sequence[str], at: str = "") -> list[Metric]:
    """Metrics by name; refuses what a bench does not measure. `at`: the option that named them."""
    for name in names:
        if name not in known:
            raise unmeasured(name, known, at)
    return [known[name] for name in names]


def unmeasured(name: str, known: Iterable[str], at: str = "", others: Iterable[str] = ()) -> Error:
    """That a bench measures nothing of this name; `others` may have been meant too, and are not listed."""
    metrics = list(known)
    near = difflib.get_close_matches(name, [*metrics, *others], 1)
    fix = f"Did you mean {near[0]!r}? " if near else ""
    fix += f"It measures: {', '.join(metrics)}"
    return Error("ND-104-52", f"the bench measures no {name!r}", at=at or name, fix=fix)
