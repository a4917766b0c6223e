"""Figures with their units, for people."""

from __future__ import annotations

from netdyno.cli import console


def quantity(value: float | None, unit: str) -> str:
    """A number with its unit, for people."""
    if value is None:
        return "–"
    if unit == "s":
        return console.delay(value * 1e9)
    if unit in ("ms", "us", "ns"):
        return console.delay(value * {"ms": 1e6, "us": 1e3, "ns": 1.0}[unit])
    if unit == "ratio":
        return f"{value * 100:.3g}%"
    for scale, prefix in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= scale and unit.endswith(("/s", "bytes")):
            return f"{value / scale:.4g} {prefix}{unit}"
    text = f"{value:,.4g}" if abs(value) < 1e4 else f"{value:,.0f}"
    return f"{text} {unit}".rstrip() if unit != "count" else text
