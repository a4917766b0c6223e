"""Loads in words, as the field writes them."""

from __future__ import annotations


def si(value: float, unit: str, digits: int = 4) -> str:
    """A figure with a prefix: 11.8 M."""
    for prefix, factor in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if abs(value) >= factor:
            return f"{value / factor:.{digits}g} {prefix}{unit}"
    return f"{value:.{digits}g} {unit}"


def load(value: float | None, unit: str) -> str:
    """A load in the unit of its search."""
    if value is None:
        return "–"
    if unit == "frames/s":
        return si(value, "pps")
    if unit in ("devices", "frames", "sessions"):
        count = f"{value:,.0f}"
        return f"{count} {unit.removesuffix('s') if count == '1' else unit}"
    if unit == "sessions/s":
        return si(value, unit)
    if unit == "x":
        return f"{value:.4g} × the profile's load"
    return f"{value:,.5g} {unit}"


def seconds(value: float) -> str:
    """A length of time that a person waits."""
    if value < 90:
        return f"{value:.0f} s"
    return f"{value / 60:.0f} min" if value < 5400 else f"{value / 3600:.1f} h"
