"""Judge thresholds over repetitions.

With two or more repetitions a condition passes when the whole interval over them, at the threshold's
confidence, lies on the good side: what the repetitions cannot tell apart from a failure is not a pass. Value
and interval come from one estimator: of delays the geometric mean of each repetition's figure, else the mean.
With one there is no interval, the value alone decides, and the result says so (`n` = 1, `interval` = null).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from netdyno.core.result import ThresholdResult
from netdyno.core.wire import TrialResult
from netdyno.stats.estimate import mean, positive_interval, t_interval
from netdyno.stats.metric import GroupMetric
from netdyno.units import bound


def located(
    metric: GroupMetric, values: Sequence[float], confidence: float
) -> tuple[float | None, tuple[float, float] | None]:
    """A value over repetitions and its interval, from one estimator."""
    if not values:
        return None, None
    if metric.stat in ("min", "max"):
        # the extreme of all repetitions
        return (min if metric.stat == "min" else max)(values), None
    if metric.unit == "ns":
        return positive_interval(values, confidence)
    interval = t_interval(values, confidence)
    # shares, counts and rates are never below 0
    return mean(values), interval and (max(0.0, interval[0]), interval[1])


def judge(leg: str, threshold: Mapping[str, Any], trials: Sequence[TrialResult]) -> ThresholdResult:
    """One threshold of a profile over the repetitions of its leg. Without a value it is not judged."""
    confidence = float(threshold.get("confidence", 0.95))
    metric = GroupMetric.parse(str(threshold["metric"]))
    values = [value for trial in trials if (value := metric.of(trial)) is not None]
    value, interval = located(metric, values, confidence)
    if values and metric.stat in ("min", "max"):
        # a limit for an extreme is for that of each repetition: the worst decides
        value = max(values) if threshold.get("max") is not None else min(values)
    return against(leg, threshold, value, interval, len(values))


def against(
    leg: str,
    threshold: Mapping[str, Any],
    value: float | None,
    interval: tuple[float, float] | None,
    n: int,
) -> ThresholdResult:
    """A value over `n` repetitions against its limit."""
    kind = "max" if threshold.get("max") is not None else "min"
    limit = bound(threshold[kind])
    strict = bool(threshold.get("strict", False))
    if value is None:
        passed = False
    elif kind == "max":
        worst = max(value, interval[1] if interval else value)
        passed = worst < limit if strict else worst <= limit
    else:
        worst = min(value, interval[0] if interval else value)
        passed = worst > limit if strict else worst >= limit
    return ThresholdResult(
        leg=leg,
        metric=str(threshold["metric"]),
        bound=limit,
        kind="max" if kind == "max" else "min",
        strict=strict,
        value=value,
        interval=interval,
        confidence=float(threshold.get("confidence", 0.95)),
        passed=passed,
        n=n,
    )
