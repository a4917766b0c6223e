"""What a search of an application found, on a terminal: the key performance indicators of RFC 9411."""

from __future__ import annotations

from rich.text import Text

from netdyno import quantities
from netdyno.cli import console
from netdyno.core.search import SearchPart, SearchReport
from netdyno.search.rfc9411 import OPTIONS

SHOWN = ("connect", "first_byte", "response")
"""Delays: to the connection, to the first byte, to the last."""
HEADS = {"connect": "connect", "first_byte": "first byte", "response": "last byte"}


def head(kind: str, other: str = "frame") -> str:
    """What the parts of a search differ in."""
    return "object" if kind in OPTIONS else other


def show(search: SearchReport) -> None:
    """A row of figures for each part, and why the lowest load failed that did."""
    if search.kind not in OPTIONS:
        return
    delays = [name for name in SHOWN if any(_delay(part, name, "mean") for part in search.parts)]
    rows = [
        [part.name, *_counts(part), *(_spread(part, name) for name in delays)]
        for part in search.parts
        if part.figures
    ]
    if rows:
        heads = ["object", "connections", "transactions", "received", "at a time", "failed", "reset"]
        heads += [HEADS[name] for name in delays]
        title = f"measured {'at half of it' if search.kind == 'transaction-latency' else 'there'}: "
        title += "delays are shortest / mean / longest"
        console.table(heads, rows, title, right=tuple(heads[1:]))
    for part in search.parts:
        failed = [one for one in part.trials if one.counts and one.broken]
        if failed:
            first = min(failed, key=lambda one: one.load)
            said = "; ".join(first.broken)
            console.out().print(Text(f"  {part.name}: at {first.load:,.0f}: {said}"), soft_wrap=True)


def _counts(part: SearchPart) -> list[str]:
    def of(name: str, unit: str) -> str:
        return quantities.number(part.figures.get(name), unit)

    few, many = of("concurrent_min", "count"), of("concurrent_max", "count")
    return [
        of("connections_rate", "/s"),
        of("transactions_rate", "/s"),
        of("received_bits", "bit/s"),
        few if few == many else f"{few} – {many}",
        of("failed_share", "ratio"),
        of("reset_share", "ratio"),
    ]


def _delay(part: SearchPart, name: str, stat: str) -> float | None:
    """Of the first group that has it."""
    found = (value for key, value in part.figures.items() if key.endswith(f".{name}.{stat}"))
    return next(found, None)


def _spread(part: SearchPart, name: str) -> str:
    return " / ".join(quantities.delay(_delay(part, name, stat)) for stat in ("min", "mean", "max"))
