"""`netdyno doctor`: what is there, what is missing, and the exact commands that fix it."""

from __future__ import annotations

from collections.abc import Sequence

import typer
from rich.text import Text

from netdyno.cli import console
from netdyno.cli.options import Json
from netdyno.core import library
from netdyno.doctor import checks, dpdk
from netdyno.doctor.checks import Check
from netdyno.errors import ENVIRONMENT
from netdyno.lazy import loaded
from netdyno.systems import SYSTEMS

_STYLES = {"ok": "green", "missing": "bold red", "optional": "yellow", "unknown": "dim"}


def doctor(
    as_json: Json = False,
) -> None:
    """Check this machine: programs, rights, limits, and what DPDK ports need.

    For DPDK: drivers, NICs and their drivers, huge pages, IOMMU, cores and their isolation; one port of
    each kind is opened in a temporary namespace to read its queues and offloads. Each missing item comes
    with the command that fixes it. Exits 0 if everything required is present, else 92; optional items do
    not count.

        netdyno doctor
    """
    machine = library.machine()
    of_systems = [loaded(one.checks) for one in SYSTEMS if one.checks]
    found: list[Check] = [one for check in (*checks.CHECKS, *of_systems) for one in check()]
    found += [one for check in (*dpdk.CHECKS, dpdk.kinds) for one in check(machine)]
    show(found, as_json)


def show(found: Sequence[Check], as_json: bool) -> None:
    """Findings, and the commands that fix what is missing; exit 92 where it is needed."""
    if as_json:
        console.document([one.as_dict() for one in found])
    else:
        console.table(
            ("", "check", "found"), [(Text(c.state, style=_STYLES[c.state]), c.name, c.found) for c in found]
        )
        fixes = [(c.name, c.fix) for c in found if c.fix and c.state != "ok"]
        if fixes:
            console.out().print()
            console.table(("to fix", "do"), fixes)
    if any(one.state == "missing" for one in found):
        raise typer.Exit(ENVIRONMENT)
