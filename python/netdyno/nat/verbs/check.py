"""`netdyno nat check` and `netdyno nat expand`: what a configuration comes to, without running it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
import yaml

from netdyno.cli import console
from netdyno.cli.options import Json
from netdyno.errors import Error
from netdyno.nat import graph
from netdyno.nat.check import good, planned
from netdyno.nat.config import Nat
from netdyno.nat.devices import absent
from netdyno.nat.sizing import Sizing, sizing
from netdyno.system.machine import Machine

Configuration = Annotated[Path, typer.Argument(help="The configuration of a NAT.", metavar="FILE")]


def check(
    file: Configuration,
    devices: Annotated[
        bool, typer.Option("--devices/--no-devices", help="Check that the ports' devices are present.")
    ] = True,
    as_json: Json = False,
) -> None:
    """Check a configuration, and print its capacity.

    Every fault has a place and a fix (exit 104); a missing device is listed with those present (exit 92).
    Faults that only open ports show are reported by `netdyno nat run`.

        netdyno nat check cgn.yaml
        netdyno nat check cgn.yaml --no-devices
    """
    nat, where = good(file)
    if devices and (
        missing := [one.as_dict() | {"at": f"{file}: {one.at}"} for one in absent(nat, Machine())]
    ):
        raise Error.of(missing[0] | ({"all": missing} if len(missing) > 1 else {}))
    size = sizing(nat)
    workers = [{"core": work.core, "elements": list(work.elements)} for work in where.workers]
    if as_json:
        found = {"name": nat.name, "workers": workers, "notes": list(where.notes), **vars(size)}
        found["routes"] = [dict(route) for route in nat.routes]
        console.document(found)
        return
    console.line(f"{file}: good")
    for text in describe(nat, size):
        console.line(f"  {text}")
    for work in where.workers:
        console.line(f"  core {work.core}: {', '.join(work.elements)}")
    for note in where.notes:
        console.note(note)


def describe(nat: Nat, size: Sizing) -> list[str]:
    """What it is told to do, and what there is room for, in words."""
    mib = size.session_bytes / (1 << 20)
    tables = f"at most {mib / 1024:,.1f} GiB" if mib >= 1024 else f"at most {mib:,.4g} MiB"
    routes = [f"route to {route['to']} via {route['via']}" for route in nat.routes]
    mtus = [f"{port} MTU {mtu:,}" for port, mtu in nat.mtus.items()]
    return [
        *routes,
        *mtus,
        f"{_count(size.addresses, 'outside address', 'es')}, {size.blocks_per_address} port blocks each",
        f"{size.ports_per_subscriber:,} ports of each protocol for a subscriber",
        f"{_count(size.guaranteed, 'subscriber')} with all their port blocks, {size.at_most:,} with one",
        f"{_count(size.sessions, 'session')}, {tables}, beside {nat.memory or '256MiB'} for packets",
    ]


def _count(number: int, what: str, several: str = "s") -> str:
    return f"{number:,} {what}{'' if number == 1 else several}"


def expand(
    file: Configuration,
    as_json: Json = False,
) -> None:
    """Print a configuration as a graph of elements, placed on this machine's cores.

    `netdyno graph run` runs it unchanged, and you may edit it: add a `capture` before a port or a firewall
    behind the NAT, or change the placement.

        netdyno nat expand cgn.yaml > graph.yaml
        sudo netdyno graph run graph.yaml
    """
    nat, where = planned(file)
    for note in where.notes:
        console.note(note)
    made = graph.document(nat, where)
    if as_json:
        console.document(made)
        return
    text = yaml.safe_dump(made, sort_keys=False, allow_unicode=True, width=110)
    console.out().print(text, markup=False, highlight=False, soft_wrap=True, end="")
