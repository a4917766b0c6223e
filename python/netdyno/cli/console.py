"""What goes to people: words on standard error, results on standard output."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Literal

from rich.console import Console
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from netdyno.errors import Error

DEBUG = False
"""Whether stack traces are shown."""


class _Out(Console):
    def on_broken_pipe(self) -> None:
        """Leave it to `heard`: the exit code is not for the reader of our output to decide."""
        raise BrokenPipeError


def out() -> Console:
    """Standard output."""
    # a pipe has no width: give tables room
    return _Out(highlight=False) if sys.stdout.isatty() else _Out(highlight=False, width=200)


@contextmanager
def heard() -> Iterator[None]:
    """Print results in here: when the reader has had enough, the rest goes nowhere and all else goes on."""
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:
        unheard()


def unheard() -> None:
    """Whoever read our output has had enough: no more of it."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def err() -> Console:
    """Standard error."""
    return Console(stderr=True, highlight=False, soft_wrap=True)


def error(text: str) -> None:
    """A line of error."""
    err().print(Text.assemble(("error ", "bold red"), text))


def note(text: str) -> None:
    """A line for people that is no result."""
    err().print(Text(text))


def show(e: Error) -> None:
    """An error: its code and what, where, and what to do."""
    findings: Sequence[Mapping[str, Any]] = e.all or [e.as_dict()]
    for one in findings:
        finding(one)


def finding(one: Mapping[str, Any], prefix: str = "") -> None:
    """One finding {code, at, what, fix}."""
    at = ": ".join(part for part in (prefix, str(one.get("at") or "")) if part)
    line = Text.assemble(
        (str(one.get("code") or "error"), "bold red"), ": ", str(one.get("what") or "").rstrip(".")
    )
    if at:
        line.append(f"\n  at  {at}", style="dim")
    if one.get("fix"):
        line.append(f"\n  do  {one['fix']}", style="cyan")
    err().print(line)


def document(data: Any) -> None:
    """One JSON document on standard output."""
    sys.stdout.write(json.dumps(data, indent=2, ensure_ascii=False) + "\n")


def table(
    columns: Iterable[str],
    rows: Iterable[Sequence[Any]],
    title: str | None = None,
    *,
    right: Collection[str] = (),
    spare: Sequence[str] = (),
) -> None:
    """A table on standard output; numbers and `right` to the right, `spare` only where there is room."""
    heads, listed, to = list(columns), [list(row) for row in rows], out()
    for less in range(len(spare) + 1):
        kept = [i for i, head in enumerate(heads) if head not in spare[:less]]
        made = Table(title=title, title_justify="left", box=None, pad_edge=False, header_style="bold")
        for i in kept:
            numeric = bool(listed) and all(isinstance(row[i], (int, float)) for row in listed)
            side: Literal["left", "right"] = "right" if numeric or heads[i] in right else "left"
            made.add_column(heads[i], justify=side, overflow="fold")
        for row in listed:
            made.add_row(*(row[i] if isinstance(row[i], Text) else Text(str(row[i])) for i in kept))
        if Measurement.get(to, to.options.update(max_width=10_000), made).maximum <= to.width:
            break
    to.print(made)


MAIN = ("publish", "response", "round_trip", "one_way", "flow", "step")
"""Delays of messages, before those of setting up; the first that was measured is the one to show."""


def main_delay(counts: Mapping[str, int]) -> str | None:
    """The delay to show of a group, from how often each was measured."""
    return next((name for name in (*MAIN, *counts) if counts.get(name)), None)


def delay(ns: float | None) -> str:
    """A delay in the unit that suits it."""
    if ns is None:
        return "–"
    for unit, factor in (("s", 1e9), ("ms", 1e6), ("µs", 1e3)):
        if abs(ns) >= factor:
            return f"{ns / factor:.3g} {unit}"
    return f"{ns:.0f} ns"


def number(value: float | None, unit: str = "") -> str:
    """A number in the unit of a metric."""
    if value is None:
        return "–"
    if unit == "ns":
        return delay(value)
    if unit == "ratio":
        return f"{value * 100:.4g}%"
    text = f"{value:,.0f}" if abs(value) >= 100 or value == int(value) else f"{value:.4g}"
    return text + (unit if unit == "/s" else "")
