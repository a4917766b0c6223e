"""Metrics of tuning as the page shows them: whatever the unit that a bench measures in."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from netdyno.report import units

_TIMES = {"s": 1e9, "ms": 1e6, "us": 1e3, "µs": 1e3, "ns": 1.0}


def scale(unit: str) -> tuple[float, str]:
    """By what a value is multiplied to be in one of the page's own units, and which that is."""
    if unit in _TIMES:
        return _TIMES[unit], "ns"
    if unit in ("bit/s", "count", "ratio"):
        return 1.0, unit
    return 1.0, "/s" if unit.endswith("/s") else "number"


def with_unit(value: float | None, unit: str) -> str:
    """A value with its unit."""
    if value is None or not math.isfinite(value):
        return units.NONE
    factor, own = scale(unit)
    match own:
        case "ns":
            return units.duration(value * factor)
        case "bit/s":
            return units.scaled(value, "bit/s")
        case "/s":
            return units.rate(value, unit)
        case "ratio":
            return units.percent(value)
        case "count":
            return units.count(value)
        case _ if value == round(value):
            return f"{units.count(value)}{units.THIN}{unit}".rstrip(units.THIN)
        case _:
            return f"{units.significant(value, 4)}{units.THIN}{unit}".rstrip(units.THIN)


def sized(metric: Mapping[str, Any], size: float, reference: float) -> str:
    """The size of an effect: as the change of what gets better; of counts how many more it may be.

    Sizes are gains as `netdyno.tuning.gain` has them: log-ratios, and of counts differences of their roots.
    """
    if metric["zero_is_best"]:
        more = (math.sqrt(max(0.0, reference)) + size) ** 2 - reference
        return f"±{units.significant(more)}" if size else "0"
    moved = math.expm1(size if metric["better"] == "higher" else -size)
    if moved >= 1:
        return f"×{units.significant(1 + moved)}"
    return f"{moved * 100:+.1f}{units.THIN}%"
