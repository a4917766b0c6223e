"""A SIPp file and its CSV file read and converted."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Any

from netdyno import reading
from netdyno.errors import Error
from netdyno.importer.xml import Kind, read
from netdyno.sip.sipp.controllers import merge
from netdyno.sip.sipp.convert import TABLE, Converted, convert

LARGEST = 1 << 20
"""Bytes of a scenario."""
SCENARIO = Kind("ND-104-73", "scenario", "SIPp scenario", deepest=16)
CSV = 64 << 20
"""Bytes of a file of `-inf`."""


def load(path: Path, direct: bool = False) -> Converted:
    """The scenario of a file; `direct`: who is called does not register."""
    return _load(path, direct, commands=False)


def load_pair(first: Path, second: Path, targets: tuple[str, ...]) -> Converted:
    """Both controllers of 3PCC as one scenario; `targets`: Request-URIs of their calls."""
    made = [_load(path, direct=False, commands=True) for path in (first, second)]
    return merge(made[0], made[1], str(first), targets)


def _load(path: Path, direct: bool, commands: bool) -> Converted:
    return convert(read(reading.content(path, LARGEST), str(path), SCENARIO), str(path), direct, commands)


def document(made: Converted, data: Path | None) -> dict[str, Any]:
    """A scenario as `netdyno sip load --scenario` reads it."""
    found: dict[str, Any] = {}
    if made.user and "{" not in made.user:
        found["user"] = made.user
    if made.callee:
        found["callee"] = made.callee
    if made.media:
        found["media"] = made.media
    if not made.answers:
        # SIPp sends every message of a call to one address
        found["outbound_proxy"] = True
    if data is not None:
        found["data"] = str(data)
    return found | {"steps": made.steps}


def table(path: Path) -> str:
    """A file of `-inf` as CSV with names of columns: field0, field1, …"""
    text = reading.content(path, CSV).decode("utf-8", "replace")
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    if not lines or lines[0].split(",")[0].strip().upper() not in ("SEQUENTIAL", "RANDOM", "USER"):
        fix = "The first line is SEQUENTIAL, RANDOM or USER"
        raise Error("ND-104-73", "it is no file of SIPp's -inf", at=f"{path}:1", fix=fix)
    rows = [[cell.strip() for cell in line.split(";")] for line in lines[1:]]
    if not rows:
        raise Error("ND-104-73", "it has no values", at=str(path), fix="Add lines like alice;secret")
    width = max(map(len, rows))
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([f"field{at}" for at in range(width)])
    writer.writerows([*row, *[""] * (width - len(row))] for row in rows)
    return out.getvalue()


__all__ = ["TABLE", "document", "load", "load_pair", "table"]
