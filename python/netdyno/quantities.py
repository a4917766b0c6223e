"""Numbers with their units as plain text, for terminals and messages; `report.units` has those of pages."""

from __future__ import annotations

NONE = "–"
"""Stands for a number that is not there."""
NANOSECONDS = {"ns": 1.0, "us": 1e3, "µs": 1e3, "ms": 1e6, "s": 1e9}
"""In one of each unit of time."""


def delay(ns: float | None) -> str:
    """A time in the unit that suits it: `12.3 ms`."""
    if ns is None:
        return NONE
    for unit in ("s", "ms", "µs"):
        amount = ns / NANOSECONDS[unit]
        if abs(amount) >= 1:
            return f"{amount:.3g} {unit}" if abs(amount) < 1000 else f"{amount:,.0f} {unit}"
    return f"{ns:.0f} ns"


def number(value: float | None, unit: str = "") -> str:
    """A number in the unit of a metric: `1.5%`, `12,000`, `1.48 Mbit/s`."""
    if value is None:
        return NONE
    if unit in NANOSECONDS:
        return delay(value * NANOSECONDS[unit])
    if unit == "ratio":
        return f"{value * 100:.4g}%"
    if unit not in ("", "count", "/s"):
        return si(value, unit) if unit.endswith(("/s", "bytes")) else f"{_plain(value)} {unit}"
    text = f"{value:,.0f}" if abs(value) >= 100 or value == int(value) else f"{value:.4g}"
    return text + (unit if unit == "/s" else "")


def _plain(value: float) -> str:
    """Four digits, or all of a whole part with more; never with an exponent for what is large."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def difference(value: float) -> str:
    """A difference of counts or amounts, with its sign: `+12,417`, `-0.5`; whole numbers with each digit."""
    whole = value == round(value) or abs(value) >= 1000
    return f"{value:+,.0f}" if whole else f"{value:+.4g}"


def si(value: float, unit: str, digits: int = 4) -> str:
    """A number with an SI prefix: `11.8 Mpps`."""
    for prefix, factor in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if abs(value) >= factor:
            return f"{value / factor:.{digits}g} {prefix}{unit}"
    return f"{value:.{digits}g} {unit}"


def wait(seconds: float) -> str:
    """A time to wait: `45 s`, `12 min`, `1.5 h`."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def change(ratio: float) -> str:
    """A change as a share or, where it is large, as a factor: `+12.5%`, `× 3.2`."""
    return f"{ratio:+.1%}" if ratio < 1 else f"× {1 + ratio:.3g}"
