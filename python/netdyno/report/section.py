"""Sections of a run's report that a system makes from files of its own in the run's folder."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from markupsafe import Markup

from netdyno.lazy import loaded
from netdyno.report.text import Msg
from netdyno.systems import named


@dataclass(frozen=True)
class Section:
    """A part of the page."""

    anchor: str
    title: Msg
    content: Markup


def sections(folder: Path) -> list[Section]:
    """Those of the files that are there."""
    found = []
    for name, maker in named("sections").items():
        path = folder / name
        if path.is_file() and not path.is_symlink():
            found.append(loaded(maker)(path))
    return found
