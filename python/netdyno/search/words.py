"""Loads in words, as the field writes them."""

from __future__ import annotations

from netdyno import quantities


def load(value: float | None, unit: str) -> str:
    """A load in the unit of its search."""
    if value is None:
        return "–"
    if unit == "frames/s":
        return quantities.si(value, "pps")
    if unit in ("devices", "frames", "sessions", "connections"):
        count = f"{value:,.0f}"
        return f"{count} {unit.removesuffix('s') if count == '1' else unit}"
    if unit == "sessions/s":
        return quantities.si(value, unit)
    if unit in ("connections/s", "transactions/s"):
        return f"{value:,.0f} {unit}"
    if unit == "x":
        return f"{value:.4g} × the profile's load"
    return f"{value:,.5g} {unit}"
