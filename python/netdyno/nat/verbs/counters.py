"""`netdyno nat counters|pools`: what passed and what was dropped, and how full each outside address is."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping
from contextlib import nullcontext
from time import sleep
from typing import Annotated, Any

import typer
from rich.console import Group
from rich.live import Live
from rich.table import Table

from netdyno import escape
from netdyno.cli import console, values
from netdyno.cli.options import Json
from netdyno.errors import INTERRUPTED, Error
from netdyno.nat import counters as counted
from netdyno.nat import running
from netdyno.nat.counters import Counters
from netdyno.nat.verbs.show import Limit, Name, note_rest
from netdyno.report.units import scaled
from netdyno.units import seconds

GONE = ("ND-91-21", "ND-91-22")
"""The NAT has ended."""


def counters(
    name: Name = None,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Repeat until Ctrl-C.")] = False,
    interval: Annotated[
        str,
        typer.Option(
            help="With --watch: update interval, like 1s.",
            metavar="TIME",
            parser=values.interval("--interval"),
        ),
    ] = "1s",
    as_json: Json = False,
) -> None:
    """Show packets and drops by reason of each stage of a NAT.

    All workers together, since the start. Each reason to drop has a line that says what it means. `box` is
    the NAT as a host: its own answers, and the way to the host's kernel. With --watch and --json: a document
    a line.

        netdyno nat counters
        netdyno nat counters cgn --watch
        netdyno nat counters --json
    """
    with running.connected(name) as nat:
        if not watch:
            now = counted.ask(nat)
            if as_json:
                console.document({"nat": nat.name, **now.as_dict()})
            else:
                for table in tables(now):
                    console.out().print(table)
            return
        try:
            _watch(nat, seconds(interval), as_json)
        except Error as e:
            if e.exit_code == INTERRUPTED:
                return
            if e.code not in GONE:
                raise
            console.note(f"the NAT {nat.name} has ended")


def _watch(nat: running.Running, interval: float, as_json: bool) -> None:
    with Live(console=console.out(), auto_refresh=False) if _live(as_json) else nullcontext() as live:
        while True:
            now = counted.ask(nat)
            if as_json:
                sys.stdout.write(escape.json(json.dumps({"nat": nat.name, **now.as_dict()})) + "\n")
                sys.stdout.flush()
            elif live:
                live.update(Group(*tables(now)), refresh=True)
            else:
                for table in tables(now):
                    console.out().print(table)
            sleep(interval)


def _live(as_json: bool) -> bool:
    return not as_json and sys.stdout.isatty()


STAGES = ("stage", "element", "in", "out", "dropped", "bytes")
DROPS = ("dropped by", "because of", "packets", "which means")


def tables(now: Counters) -> list[Table]:
    """The stages; and the drops, if there are any."""
    rows = [
        [
            one.stage, one.element, f"{one.packets_in:,}", f"{one.packets_out:,}",
            f"{sum(one.drops.values()):,}", "" if one.bytes is None else scaled(one.bytes, "B"),
        ]
        for one in now.stages
    ]  # fmt: skip
    title = f"{now.elapsed:,.1f} s: {now.forwarded_up:,} packets up, {now.forwarded_down:,} down"
    made = [_table(STAGES, rows, title, right=STAGES[2:])]
    if now.dropped:
        lost = [[one.element, one.reason, f"{one.packets:,}", one.meaning] for one in now.dropped]
        made.append(_table(DROPS, lost, None, right=("packets",)))
    for why in now.lost:
        made.append(_table((why,), [], None))
    return made


def _table(
    heads: Iterable[str], rows: Iterable[list[str]], title: str | None, right: Iterable[str] = ()
) -> Table:
    made = Table(title=title, title_justify="left", box=None, pad_edge=False, header_style="bold")
    for head in heads:
        made.add_column(head, justify="right" if head in right else "left", overflow="fold")
    for row in rows:
        made.add_row(*row)
    return made


def pools(name: Name = None, limit: Limit = 100, as_json: Json = False) -> None:
    """Show how much of each outside address is used.

    For each address: subscribers that have ports of it, port blocks, ports in use of each protocol, and ports
    in quarantine, which were given back and rest before they are given out again. An address that a reload
    took out of the pool is `draining`: nothing begins on it, and it goes with its last session.

        netdyno nat pools
        netdyno nat pools cgn --limit 1000 --json
    """
    with running.connected(name) as nat:
        # all parts: those of one address come with several workers
        found, _ = nat.pages("nat.pools", "pools", PARTS)
    whole = together(found)
    listed, more = whole[:limit], len(whole) > limit
    if as_json:
        console.document({"nat": nat.name, "pools": listed, "more": more})
        return
    rows = [
        [
            str(one["address"]),
            "draining" if one["draining"] else "active",
            f"{one['subscribers']:,}",
            f"{one['blocks'] - one['blocks_free']:,} of {one['blocks']:,}",
            *(f"{one['used'][protocol]:,}" for protocol in PROTOCOLS),
            f"{sum(one['resting'].values()):,}",
        ]
        for one in listed
    ]
    console.table(POOLS, rows, right=POOLS[2:])
    note_rest(more, limit)


PARTS = 1 << 21
"""Of the largest pool, with as many workers as there can be."""
PROTOCOLS = ("tcp", "udp", "icmp")
POOLS = (
    "address", "state", "subscribers", "port blocks", "TCP ports", "UDP ports", "ICMP ids", "in quarantine",
)  # fmt: skip


def together(parts: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Addresses of which several workers have a part as one."""
    found: dict[str, dict[str, Any]] = {}
    for part in parts:
        one = {key: value for key, value in part.items() if key not in ("element", "ports")}
        known = found.setdefault(str(part["address"]), one)
        if known is one:
            continue
        for key in ("blocks", "blocks_free", "subscribers"):
            known[key] += one[key]
        known["draining"] |= one["draining"]
        for key in ("used", "resting"):
            known[key] = {protocol: known[key][protocol] + one[key][protocol] for protocol in PROTOCOLS}
    return list(found.values())
