"""A part of a reproduction: a table or figure of a paper, and the command that measures it here."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FOLDER = "{folder}"
"""In a command: stands for the folder that its plots are written to."""


@dataclass(frozen=True)
class Summary:
    """What a command found, as a sentence, a table and plots."""

    finding: str
    """Stands next to what the paper found."""
    heads: Sequence[str]
    """Column headings."""
    rows: Sequence[Sequence[str]]
    """Cells as shown, with units."""
    plots: Sequence[str] = ()
    """SVG documents."""
    notes: Sequence[str] = ()
    """Limits of this machine that the command met."""
    run: str = ""
    """Id of its run in the store."""
    valid: bool = True
    """Whether the figures can be trusted, as far as the document tells; the exit code tells too."""


@dataclass(frozen=True)
class Part:
    """A table or figure of a paper."""

    name: str
    """Unique within its system: `figure-7`."""
    title: str
    """What is measured."""
    paper: str
    """What the paper found."""
    command: Sequence[str] = ()
    """Arguments of `netdyno`; prints one JSON document. None where `missing` is set."""
    summary: Callable[[Any, Path], Summary] | None = None
    """Reads that document; gets the folder of plots too. Raises KeyError, ValueError or TypeError where the
    document is not as expected."""
    seconds: float = 0.0
    """Expected duration on two cores, s."""
    differences: Sequence[str] = ()
    """How this set-up differs from the paper's."""
    missing: str = ""
    """What this machine lacks to measure it; it is then not measured."""
