"""What goes to people: words on standard error, results on standard output."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import IO, Any, Literal

from rich.console import Console, ConsoleOptions, RenderableType
from rich.measure import Measurement
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from netdyno import escape
from netdyno.core import redaction
from netdyno.errors import Error

DEBUG = False
"""Whether stack traces are shown."""


lost: list[Error] = []
"""That standard output took no more, for another reason than that its reader had had enough."""


class Safe(Console):
    """A console that what it prints cannot steer: neither by markup nor by control characters."""

    def __init__(self, **options: Any) -> None:
        super().__init__(highlight=False, markup=False, emoji=False, **options)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """What is drawn, with the control characters of texts shown; those of the console itself stay."""
        for segment in super().render(renderable, options):
            text = segment.text if segment.control else escape.lines(segment.text)
            yield segment if text == segment.text else Segment(text, segment.style)

    def on_broken_pipe(self) -> None:
        """Leave it to `heard`: the exit code is not for the reader of our output to decide."""
        raise BrokenPipeError


def out() -> Console:
    """Standard output."""
    if sys.stdout.isatty():
        return Safe()
    # a pipe has no width: give tables room, unless there is a terminal at its end
    given = os.environ.get("NETDYNO_WIDTH", "")
    return Safe(width=int(given) if given.isascii() and given.isdigit() and int(given) >= 20 else 200)


@contextmanager
def tolerate_closed_stdout() -> Iterator[None]:
    """Print results in here: when the reader has had enough, the rest goes nowhere and all else goes on."""
    try:
        yield
        sys.stdout.flush()
    except OSError as e:
        discard_output(e)


def discard_output(why: OSError | ValueError, stream: IO[str] | None = None) -> None:
    """Nobody reads our output any more, or there is no room for it: no more of it."""
    stream = stream or sys.stdout
    if isinstance(why, OSError) and why.errno not in (None, errno.EPIPE) and stream is sys.stdout:
        code = "ND-92-27" if why.errno in (errno.ENOSPC, errno.EDQUOT) else "ND-92-30"
        what = f"it took no more of what was to be printed: {why.strerror}"
        fix = "Print to a place with room; what was measured is in the run's folder"
        lost.append(Error(code, what, at="standard output", fix=fix))
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
        stream.flush()


def err() -> Console:
    """Standard error."""
    return Safe(stderr=True, soft_wrap=True)


def _say(text: Text, wrapped: bool = False) -> None:
    # whom it does not reach it does not concern: what is done goes on, and the exit code tells
    with contextlib.suppress(OSError):
        to = err()
        to.print(text, soft_wrap=not (wrapped and to.is_terminal))


def error(text: str) -> None:
    """A line of error."""
    _say(Text.assemble(("error ", "bold red"), escape.visible(redaction.hide(text))))


def note(text: str) -> None:
    """A line for people that is no result."""
    _say(Text(escape.lines(redaction.hide(text))))


def live(text: str) -> None:
    """A line of what is under way, in which nothing is secret."""
    _say(Text(escape.visible(text)))


def progress(text: str) -> None:
    """A note that may be long and that nobody copies: a terminal breaks it between words, not in them."""
    _say(Text(escape.lines(redaction.hide(text))), wrapped=True)


def show(e: Error) -> None:
    """An error: its code and what, where, and what to do."""
    findings: Sequence[Mapping[str, Any]] = e.all or [e.as_dict()]
    for one in findings:
        finding(one)


def finding(one: Mapping[str, Any], prefix: str = "") -> None:
    """One finding {code, at, what, fix}."""
    shown = {
        key: escape.visible(redaction.hide(str(one.get(key) or ""))) for key in ("code", "at", "what", "fix")
    }
    at = ": ".join(part for part in (escape.visible(prefix), shown["at"]) if part)
    line = Text.assemble((shown["code"] or "error", "bold red"), ": ", shown["what"].rstrip("."))
    if at:
        line.append(f"\n  at  {at}", style="dim")
    if shown["fix"]:
        line.append(f"\n  do  {shown['fix']}", style="cyan")
    _say(line)


def line(text: str) -> None:
    """A line of a result, which stays one whatever names are in it."""
    out().print(Text(escape.visible(text)), soft_wrap=True)


def document(data: Any) -> None:
    """One JSON document on standard output."""
    sys.stdout.write(escape.json(json.dumps(data, indent=2, ensure_ascii=False)) + "\n")


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
    else:
        if to.width < NARROW and len(heads) > 2:
            _records(to, heads, listed, title)
            return
    to.print(made)


NARROW = 60
"""Columns below which a table that does not fit is printed row by row."""


def _records(to: Console, heads: Sequence[str], rows: Sequence[Sequence[Any]], title: str | None) -> None:
    """Each row as a block: its first cell, then a line for each of the others."""
    if title:
        to.print(Text(title))
    wide = max((len(head) for head in heads[1:]), default=0)
    for first, *rest in rows:
        to.print(first if isinstance(first, Text) else Text(str(first), style="bold"))
        for head, cell in zip(heads[1:], rest, strict=True):
            text = cell if isinstance(cell, Text) else Text(str(cell))
            if text.plain.strip():
                to.print(Text.assemble("  ", (head.ljust(wide), "dim"), "  ", text))


MAIN = ("publish", "response", "round_trip", "one_way", "flow", "step")
"""Delays of messages, before those of setting up; the first that was measured is the one to show."""


def main_delay(counts: Mapping[str, int], order: Iterable[str] = ()) -> str | None:
    """The delay to show of a group, from how often each was measured; `order`: that of its model."""
    return next((name for name in (*MAIN, *order, *counts) if counts.get(name)), None)
