"""What `netdyno impair` shows: a line a second and direction, or a table that is kept up to date."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from rich.console import Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from netdyno import quantities
from netdyno.cli import console
from netdyno.lab import impairment
from netdyno.report import units

Counts = Mapping[str, int]
WAYS = ("a_to_b", "b_to_a")
OPTIONS = {"a_to_b": "--there", "b_to_a": "--back"}
"""What says something of one way only."""
_DROPS = {
    "lost": "lost",
    "tail_dropped": "queue full",
    "red_dropped": "RED",
    "codel_dropped": "CoDel",
    "queue_full": "no room!",
    "not_taken": "not taken!",
    "missed": "missed!",
    "duplicated": "doubled",
    "corrupted": "damaged",
    "reordered": "reordered",
}
_HEADS = ("", "packets/s", "Mbit/s", "packets", "arrived", "on the way", "otherwise", "late p99")


class Rates:
    """What passed since the last time, per second."""

    def __init__(self) -> None:
        self._before: Mapping[str, Any] = {}

    def take(self, stats: Mapping[str, Any]) -> dict[str, tuple[float, float]]:
        """Packets and Mbit per second of each way, as they came."""
        before, self._before = self._before, stats
        dt = float(stats["elapsed"]) - float(before.get("elapsed", 0.0))

        def rate(way: str, key: str) -> float:
            passed = stats[way][key] - (before[way][key] if before else 0)
            return float(passed) / dt if dt > 0 else 0.0

        return {way: (rate(way, "packets_in"), rate(way, "bytes_in") * 8 / 1e6) for way in WAYS}


def became(way: Counts) -> str:
    """What became of packets that did not just pass."""
    named = [f"{way[key]:,} {word}" for key, word in _DROPS.items() if way[key]]
    if not way["lost"]:
        return ", ".join(named)
    share = units.exact(units.percent(way["lost"] / way["packets_in"])).replace(units.THIN, " ")
    return ", ".join(named) + f" ({share} lost)"


class Plain:
    """Lines on standard error."""

    def __init__(self, names: Sequence[str], quiet: bool = False) -> None:
        self._arrows = _arrows(names)
        self._rates = Rates()
        self._quiet = quiet

    def say(self, line: str) -> None:
        """A line."""
        console.note(line)

    def paths(self, spec: Mapping[str, Any]) -> str:
        """What a specification does to packets, in a line."""
        there, back = (impairment.describe(spec[way]) for way in WAYS)
        if there == back:
            return f"each way: {there}"
        return f"{self._arrows['a_to_b']}: {there}; {self._arrows['b_to_a']}: {back}"

    def take(self, stats: Mapping[str, Any]) -> None:
        """A line for each way in which something passed."""
        rates = self._rates.take(stats)
        for way in WAYS if not self._quiet else ():
            packets, mbit = rates[way]
            if packets:
                rest = f", {became(stats[way])}" if became(stats[way]) else ""
                head = f"{stats['elapsed']:6.0f} s  {self._arrows[way]}"
                held = f"{stats[way]['held']:,} on the way"
                self.say(f"{head}  {packets:,.0f} packets/s  {mbit:,.1f} Mbit/s  {held}{rest}")

    def summary(self, stats: Mapping[str, Any]) -> None:
        """A table on standard output."""
        rows = [
            _row(self._arrows[way], stats[way], None)[:1] + _row("", stats[way], None)[3:] for way in WAYS
        ]
        console.table((_HEADS[0], *_HEADS[3:]), rows, right=_HEADS[1:6], spare=("on the way", "late p99"))


class Screen(Plain):
    """A table on the terminal, kept up to date."""

    def __init__(self, names: Sequence[str], live: Live) -> None:
        super().__init__(names)
        self._live = live
        self._lines: list[str] = []

    def say(self, line: str) -> None:
        """A line above the table."""
        self._lines.append(line)

    def take(self, stats: Mapping[str, Any]) -> None:
        """Redraw the table."""
        rates = self._rates.take(stats)
        table = Table(box=None, pad_edge=False, header_style="bold")
        for head in _HEADS:
            table.add_column(head, justify="right" if head in _HEADS[1:6] else "left")
        for way in WAYS:
            table.add_row(*_row(self._arrows[way], stats[way], rates[way]))
        above: list[RenderableType] = [Text(line) for line in self._lines[-5:]]
        self._live.update(
            Group(*above, Text(f"{stats['elapsed']:.0f} s; Ctrl-C ends it", style="dim"), table)
        )


@contextmanager
def view(names: Sequence[str], quiet: bool = False) -> Iterator[Plain]:
    """The view that fits where we are."""
    if quiet or not (sys.stdout.isatty() and sys.stderr.isatty()):
        yield Plain(names, quiet)
        return
    with Live(console=console.err(), refresh_per_second=4, transient=True) as live:
        yield Screen(names, live)


def _arrows(names: Sequence[str]) -> dict[str, str]:
    a, b = (name.removesuffix(":wan0") for name in names)
    return {"a_to_b": f"{a} → {b}", "b_to_a": f"{b} → {a}"}


def _row(arrow: str, way: Counts, rate: tuple[float, float] | None) -> list[str]:
    packets, mbit = rate or (0.0, 0.0)
    late = quantities.delay(way["late_p99_ns"]) if way["packets_out"] else "–"
    counts = [f"{way[key]:,}" for key in ("packets_in", "packets_out", "held")]
    return [arrow, f"{packets:,.0f}", f"{mbit:,.1f}", *counts, became(way), late]
