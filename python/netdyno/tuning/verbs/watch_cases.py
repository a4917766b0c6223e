"""`netdyno tune cases --watch`: whether `tune watch` fixes the known cases, and leaves the controls alone."""

from __future__ import annotations

import platform
from collections.abc import Sequence

import typer
from rich.text import Text

from netdyno.cli import console
from netdyno.errors import THRESHOLD
from netdyno.system.interrupt import Interrupts
from netdyno.tuning import watch_cases as known
from netdyno.tuning.cases import Case
from netdyno.tuning.watch_cases import WatchedCase

COLOURS = {"passed": "green", "failed": "bold red", "skipped": "yellow"}


def watch_cases(chosen: Sequence[Case], allow_global: bool, as_json: bool) -> None:
    """Run cases under watch, and show each."""
    found: list[WatchedCase] = []
    interrupts = Interrupts()
    with interrupts.installed():
        for number, case in enumerate(chosen, 1):
            console.note(f"{number}/{len(chosen)} {case.name}")
            made = known.run(
                case, allow_global=allow_global, shield=interrupts.shielded, progress=console.note
            )
            found.append(made)
            if not as_json:
                _show(made)
    count = {status: sum(one.status == status for one in found) for status in COLOURS}
    if as_json:
        machine = {"kernel": platform.release(), "promised": known.PROMISED}
        console.document({**machine, **count, "cases": [one.as_dict() for one in found]})
    else:
        console.out().print(", ".join(f"{number} {status}" for status, number in count.items() if number))
    if count["failed"]:
        raise typer.Exit(THRESHOLD)


def _show(made: WatchedCase) -> None:
    console.out().print(
        Text.assemble((f"{made.status:8}", COLOURS[made.status]), f"{made.name}: {words(made)}")
    )


def words(made: WatchedCase) -> str:
    """`fixed after 5.1 s (net.ipv4.tcp_tw_reuse = 1)`."""
    if made.status != "passed":
        return made.why
    if made.control:
        return "left alone"
    values = ", ".join(f"{name} = {value}" for name, value in (made.values or {}).items())
    late = "" if made.in_time else f", which is more than {known.PROMISED:.0f} s: the machine may be busy"
    return f"fixed after {made.after:.1f} s ({values}){late}"
