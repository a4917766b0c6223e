"""Changes that were measured, in words and numbers: what became of a metric, and how sure that is."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from netdyno.report import units
from netdyno.report.quantity import with_unit
from netdyno.report.text import M, Msg

Found = Mapping[str, Any]
"""A finding as `netdyno.stats.comparison` writes it."""

MARKS = {"better": "good", "worse": "bad"}
FURTHEST = math.log(16)
"""What is changed more than sixteenfold is drawn at the edge."""


def words(verdict: str) -> Msg:
    """A verdict."""
    return {
        "better": M("better"),
        "worse": M("worse"),
        "invalid": M("invalid: unequal discards"),
        "no effect": M("no effect that matters"),
        "too few pairs": M("too few pairs"),
    }.get(verdict, M("not shown"))


def shift(found: Found) -> str:
    """The change of a metric."""
    return of(found, found["effect"]["change"])


def ends(found: Found) -> str:
    """The interval of a change; nothing where there is none."""
    interval = found["effect"]["interval"]
    return units.span(*(of(found, end) for end in interval)) if interval else ""


def of(found: Found, value: float) -> str:
    """A change of the metric."""
    if not found["effect"]["absolute"]:
        return ratio(value)
    unit = found["metric"]["unit"]
    # percentage points: a loss of 5 % that becomes 12 % has not grown by 7 %
    points = f"{units.significant(100 * value)}{units.THIN}pp"
    text = points if unit == "ratio" else units.difference(value)
    return f"+{text}" if value > 0 else text


def plot_position(share: float) -> float:
    """How far from no change it is drawn: as far for twice as much as for half."""
    return max(-FURTHEST, min(FURTHEST, math.log1p(share) if share > -1 else -FURTHEST))


def ratio(change: float) -> str:
    """A change as a share or, where it is large, as a factor."""
    return f"×{units.significant(1 + change)}" if change >= 1 else f"{change * 100:+.1f}{units.THIN}%"


def least(change: float | None) -> str:
    """The least change to be seen; none where there is no such thing."""
    if change is None:
        return units.NONE
    return ratio(change) if change >= 1 else f"±{units.THIN}{units.percent(change)}"


def measured(mean: float, sd: float, unit: str) -> str:
    """A mean and a standard deviation."""
    if unit == "ratio":
        return f"{units.percent(mean)} ± {units.percent(sd)}"
    return f"{with_unit(mean, unit)} ± {with_unit(sd, unit)}"
