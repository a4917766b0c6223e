"""A SIPp file and its CSV file read and converted."""

from __future__ import annotations

import csv
import io
from collections.abc import Collection
from pathlib import Path
from typing import Any

from netdyno import reading
from netdyno.errors import Error
from netdyno.importer.xml import Kind, read
from netdyno.sip.sipp.controllers import merge
from netdyno.sip.sipp.convert import TABLE, Converted, convert
from netdyno.sip.sipp.message import LOGIN, account_column, login

LARGEST = 1 << 20
"""Bytes of a scenario."""
SCENARIO = Kind("ND-104-73", "scenario", "SIPp scenario", deepest=16)
CSV = 64 << 20
"""Bytes of a file of `-inf`."""


def load(path: Path, direct: bool = False, inf: Path | None = None) -> Converted:
    """The scenario of a file; `direct`: who is called does not register. `inf`: its CSV file."""
    return _load(path, direct, commands=False, accounts=_accounts(_rows(inf)) if inf else ())


def load_pair(first: Path, second: Path, targets: tuple[str, ...]) -> Converted:
    """Both controllers of 3PCC as one scenario; `targets`: Request-URIs of their calls."""
    made = [_load(path, direct=False, commands=True) for path in (first, second)]
    return merge(made[0], made[1], str(first), targets)


def _load(path: Path, direct: bool, commands: bool, accounts: Collection[str] = ()) -> Converted:
    root = read(reading.content(path, LARGEST), str(path), SCENARIO)
    return convert(root, str(path), direct, commands, accounts)


def document(made: Converted, data: Path | None) -> dict[str, Any]:
    """A scenario as `netdyno sip load --scenario` reads it."""
    found: dict[str, Any] = {}
    if made.user and (data or "{" not in made.user):
        found["user"] = made.user
    # a password in the XML itself is that of --password
    if data and (password := made.login.get("password", "")).startswith("{"):
        name = made.login.get("username")
        found |= {"auth_user": name} if name and name != made.user else {}
        found["password"] = password
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


def _rows(path: Path) -> list[list[str]]:
    """The lines of a file of `-inf`, all of one width."""
    text = reading.content(path, CSV).decode("utf-8", "replace")
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    if not lines or lines[0].split(",")[0].strip().upper() not in ("SEQUENTIAL", "RANDOM", "USER"):
        fix = "The first line is SEQUENTIAL, RANDOM or USER"
        raise Error("ND-104-73", "it is no file of SIPp's -inf", at=f"{path}:1", fix=fix)
    rows = [[cell.strip() for cell in line.split(";")] for line in lines[1:]]
    if not rows:
        raise Error("ND-104-73", "it has no values", at=str(path), fix="Add lines like alice;secret")
    width = max(map(len, rows))
    return [[*row, *[""] * (width - len(row))] for row in rows]


def _accounts(rows: list[list[str]]) -> list[str]:
    """The columns whose cells are [authentication username=… password=…]."""
    columns = enumerate(zip(*rows, strict=True))
    return [f"field{at}" for at, cells in columns if all(set(LOGIN) == set(login(cell)) for cell in cells)]


def table(path: Path) -> str:
    """A file of `-inf` as CSV with names of columns: field0, field1, …

    A column of [authentication …] becomes two: its user names and its passwords.
    """
    rows = _rows(path)
    accounts = _accounts(rows)
    columns: dict[str, list[str]] = {}
    for at, cells in enumerate(zip(*rows, strict=True)):
        column = f"field{at}"
        if column in accounts:
            for name in LOGIN:
                columns[account_column(column, name)] = [login(cell)[name] for cell in cells]
        else:
            columns[column] = list(cells)
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(zip(*columns.values(), strict=True))
    return out.getvalue()


__all__ = ["TABLE", "document", "load", "load_pair", "table"]
