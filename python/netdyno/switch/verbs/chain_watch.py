"""`netdyno chain watch`: packets of a running chain, hop by hop."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import nullcontext
from typing import Annotated

import typer
from rich.live import Live
from rich.table import Table
from rich.text import Text

from netdyno import quantities
from netdyno.cli import console, values
from netdyno.errors import Error
from netdyno.lab.topology import need_root
from netdyno.switch.chain import running
from netdyno.switch.chain.running import Passed, RunningChain
from netdyno.units import seconds


def watch(
    interval: Annotated[
        str,
        typer.Option(help="Update interval, like 1s.", metavar="TIME", parser=values.interval("--interval")),
    ] = "1s",
) -> None:
    """Watch a chain that runs on this machine: packets of each hop as they grow, until it ends.

    It shows the chain that `netdyno chain up`, `run`, `verify` or another of its commands has set up.
    Watching does not change it. Needs root.

        sudo netdyno chain watch
    """
    need_root()
    there = running.running()
    if not there:
        fix = "Start one in another terminal: `sudo netdyno chain up FILE`"
        raise Error("ND-104-11", "no chain runs on this machine", fix=fix)
    # the one that was set up last
    chain, pause = there[-1], seconds(interval)
    view = Live(console=console.out(), auto_refresh=False) if console.out().is_terminal else nullcontext()
    before, then = dict[str, Passed](), 0.0
    with view as live:
        while found := next((one for one in running.running() if one.id == chain.id), None):
            chain = found
            try:
                now, at = chain.look(), time.monotonic()
            except OSError:
                break  # its namespaces go
            shown = picture(chain, now, before, at - then)
            if live:
                live.update(shown, refresh=True)
            else:
                console.out().print(shown)
            before, then = now, at
            time.sleep(pause)
    console.note("the chain has ended")


def picture(chain: RunningChain, now: Mapping[str, Passed], before: Mapping[str, Passed], dt: float) -> Table:
    """The hops with their packets, and the rates since the last look."""
    made = Table(title=f"{chain.switch}: {arrows(chain)}", title_justify="left", box=None, pad_edge=False)
    for head in ("hop", "kind", "received", "sent", "received/s", "sent/s", "dropped"):
        made.add_column(head, justify="left" if head in ("hop", "kind") else "right")
    for hop, one in now.items():
        old = before.get(hop)
        rates = [
            quantities.number((new - was) / dt, "/s") if old and dt > 0 else "–"
            for new, was in ((one.received, old.received if old else 0), (one.sent, old.sent if old else 0))
        ]
        cells = (hop, chain.kinds.get(hop, "end"), f"{one.received:,}", f"{one.sent:,}", *rates)
        made.add_row(*cells, Text(f"{one.dropped:,}", style="red" if one.dropped else ""))
    return made


def arrows(chain: RunningChain) -> str:
    """Its ways in a line: `client → firewall → nat → server`, and those of other classes. Where there are
    several paths between switches, the way of each class with the path that it takes now."""
    if chain.by:
        return "; ".join(
            f"{name} by {chain.by[name]}: {' → '.join(['client', *path, 'server'])}"
            for name, path in chain.paths.items()
        )
    ways = dict.fromkeys(" → ".join(["client", *path, "server"]) for path in chain.paths.values())
    return "; ".join(ways)
