"""Quantities as profiles write them."""

from netdyno.stats.metric import bound


def seconds(text: str | float) -> float:
    """`"250ms"` in seconds."""
    return bound(text) / 1e9 if isinstance(text, str) else float(text)
