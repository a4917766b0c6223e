"""Numbers as people read them: SI units, honest digits, the same in every language."""

from __future__ import annotations

import math
import re

from netdyno.stats import percentile

#: Narrow no-break space: stands before units. Thousands have a comma, as everywhere in netdyno.
THIN = "\u202f"
#: What stands for a number that is not there.
NONE = "–"

NOISE = 1e-12
"""By how much a ratio that is 1 may differ from it, as it was computed."""

_BIG = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))
_TIMES = ((1e9, "s"), (1e6, "ms"), (1e3, "µs"))


def _usable(x: object) -> bool:
    return isinstance(x, (int, float)) and not isinstance(x, bool) and math.isfinite(x)


def significant(x: float, digits: int = 3) -> str:
    """`x` with so many significant digits, never in scientific notation, thousands grouped."""
    if x == 0:
        return "0"
    places = digits - 1 - math.floor(math.log10(abs(x)))
    rounded = round(x, places)
    # Rounding may have carried into a new digit: 9.996 -> 10.0.
    places = digits - 1 - math.floor(math.log10(abs(rounded)))
    return f"{rounded:,.{max(0, places)}f}"


def difference(x: float) -> str:
    """A difference of counts or amounts: each digit of a whole number, else four digits and no fewer than all
    before the point."""
    return f"{x:,.0f}" if x == round(x) or abs(x) >= 1000 else significant(x, 4)


def count(n: float | None) -> str:
    """A count: every digit of it, grouped."""
    if n is None or not _usable(n):
        return NONE
    return f"{round(n):,}"


def duration(ns: float | None, digits: int = 3) -> str:
    """Nanoseconds in the unit that fits."""
    if ns is None or not _usable(ns):
        return NONE
    for scale, unit in _TIMES:
        if abs(ns) >= scale:
            return f"{significant(ns / scale, digits)}{THIN}{unit}"
    return f"{significant(ns, digits)}{THIN}ns"


def rate(x: float | None, unit: str = "/s") -> str:
    """Something per second: four digits, a prefix from 100,000 on."""
    if x is None or not _usable(x):
        return NONE
    if abs(x) < 1e5:
        return f"{significant(x, 4)}{THIN}{unit}" if abs(x) >= 1000 else f"{significant(x)}{THIN}{unit}"
    return scaled(x, unit, 4)


def scaled(x: float | None, unit: str, digits: int = 3) -> str:
    """A quantity with an SI prefix: `12.3 Mbit/s`."""
    if x is None or not _usable(x):
        return NONE
    for scale, prefix in _BIG:
        if abs(x) >= scale:
            return f"{significant(x / scale, digits)}{THIN}{prefix}{unit}"
    return f"{significant(x, digits)}{THIN}{unit}"


def percent(ratio: float | None, digits: int = 3) -> str:
    """A ratio as per cent; what is nearly but not quite all never reads as 100 %."""
    if ratio is None or not _usable(ratio):
        return NONE
    # a double has 16 digits: closer to all than that is the noise of a sum
    if 0.99 <= ratio < 1 - NOISE:
        places = max(1, 1 - math.floor(math.log10((1 - ratio) * 100)))
        return exact(f"{min(ratio * 100, 100 - 10**-places):.{places}f}{THIN}%")
    shown = 1.0 if abs(ratio - 1) <= NOISE else ratio
    return f"{significant(shown * 100, digits)}{THIN}%"


def exact(text: str) -> str:
    """A limit that somebody chose, without the zeros that a measured value keeps: `5.00 ms` is `5 ms`."""
    return re.sub(r"\.(\d*?)0+(?!\d)", lambda m: f".{m[1]}" if m[1] else "", text)


def span(low: str, high: str) -> str:
    """Two formatted numbers as a range; a unit that both have is said once."""
    number, _, unit = low.rpartition(THIN)
    if number and high.endswith(THIN + unit):
        low = number
    return f"{low} … {high}"


def seconds(s: float | None) -> str:
    """A time a person waits: `12 s`, `1 min 30 s`, `2 h 5 min`."""
    if s is None or not _usable(s):
        return NONE
    if 0 < s < 1:
        return exact(duration(s * 1e9, 2))
    if s < 60:
        return exact(f"{significant(s, 2 if s < 10 else 3)}{THIN}s")
    minutes, rest = divmod(round(s), 60)
    if minutes < 60:
        return f"{minutes}{THIN}min {rest}{THIN}s" if rest else f"{minutes}{THIN}min"
    hours, minutes = divmod(minutes, 60)
    return f"{hours}{THIN}h {minutes}{THIN}min"


def unit_of(metric: str) -> str:
    """Which of the units below a threshold's metric is in."""
    parts = percentile.parts(metric)
    if parts[1:2] == ["stalls"]:
        return "ns" if parts[-1] in ("longest", "time") else "ratio"
    if len(parts) > 2 and (parts[1] in ("delay", "ipdv", "lateness") or parts[1:3] == ["reordering", "late"]):
        return "ns"
    if parts[1:2] == ["value"]:
        return "value"
    if parts[1:2] == ["index"] or parts[-1] in (
        "loss",
        "noticeable",
        "ratio",
        "by_three",
        "displaced",
        "cpu",
        "starved",
        "offered",
    ):
        return "ratio"
    if parts[-1] == "rate":
        return {"bytes": "B/s", "bits": "bit/s"}.get(parts[-2].split("_")[0], "/s")
    return "count"


def show(x: float | None, unit: str) -> str:
    """`x` in the unit that `unit_of` named."""
    match unit:
        case "ns":
            return duration(x)
        case "ratio":
            return percent(x)
        case "value":
            return NONE if x is None or not _usable(x) else significant(x)
        case "/s":
            return rate(x)
        case "B/s" | "bit/s":
            return scaled(x, unit)
        case _:
            return count(x)
