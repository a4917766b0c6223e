"""Results of parts in a folder: one file each, so that an interrupted reproduction resumes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from pydantic import Field

from netdyno import files, reading
from netdyno.core.model import Model
from netdyno.errors import INVALID, PASS, THRESHOLD, Error

MEASURED = (PASS, INVALID, THRESHOLD)
"""Exit codes of commands that have figures; others are tried again."""


class PartResult(Model):
    """A part that was measured, or why it was not."""

    format: Literal["netdyno-reproduction-part/1"] = "netdyno-reproduction-part/1"
    """Which format this is."""
    system: str
    """`iot`, `nat`, …"""
    name: str
    """Its name there."""
    title: str
    """What is measured."""
    paper: str
    """What the paper found."""
    differences: list[str] = Field(default_factory=list)
    """How the set-up differs from the paper's."""
    state: Literal["measured", "missing", "failed", "no time"]
    """`missing`: this machine cannot measure it; `failed`: its command failed; `no time`: left out as it
    would have ended too late."""
    why: str = ""
    """Why it was not measured."""
    command: list[str] = Field(default_factory=list)
    """Arguments of `netdyno`."""
    quick: bool = False
    """Whether in the quick form."""
    version: str = ""
    """Of netdyno."""
    commit: str = ""
    """Of netdyno's source, where it runs from that."""
    started: str = ""
    """ISO 8601."""
    seconds: float = 0.0
    """How long it took."""
    exit: int | None = None
    """Exit code of the command."""
    finding: str = ""
    """In a sentence."""
    heads: list[str] = Field(default_factory=list)
    """Column headings of its table."""
    rows: list[list[str]] = Field(default_factory=list)
    """Its table."""
    notes: list[str] = Field(default_factory=list)
    """Limits of this machine that it met."""
    run: str = ""
    """Id of its run in the store."""
    plots: list[str] = Field(default_factory=list)
    """SVG documents."""

    trusted: bool = True
    """Whether the document says that its figures can be trusted."""

    @property
    def valid(self) -> bool:
        """Whether its figures can be trusted."""
        return self.state == "measured" and self.exit != INVALID and self.trusted

    def same(self, command: Sequence[str], version: str, commit: str) -> bool:
        """Whether it is a measurement by this command and build."""
        made = (self.command, self.version, self.commit)
        return self.state == "measured" and made == ([*command], version, commit)


def path(folder: Path, system: str, name: str) -> Path:
    """Where a part is kept."""
    return folder / system / f"{name}.json"


def write(folder: Path, part: PartResult) -> None:
    """Keep a part. Raises Error."""
    to = path(folder, part.system, part.name)
    files.make_folder(to.parent)
    files.write(
        to, json.dumps(part.model_dump(mode="json"), indent=1, ensure_ascii=False) + "\n", shared=True
    )


def read(folder: Path, system: str, name: str) -> PartResult | None:
    """The kept part; None where there is none, or none of this format."""
    file = path(folder, system, name)
    if not file.is_file():
        return None
    try:
        return PartResult.model_validate(reading.record(file))
    except (Error, ValueError):
        return None
