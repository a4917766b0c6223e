"""`netdyno tune params`: tunable parameters and their current values."""

from __future__ import annotations

import os
from dataclasses import asdict
from typing import Annotated, Any

import typer
from rich.text import Text

from netdyno.cli import console
from netdyno.errors import Error
from netdyno.tuning import host_state, service
from netdyno.tuning.followers import READ
from netdyno.tuning.host_state import HostState
from netdyno.tuning.model import Scope
from netdyno.tuning.registry import registry
from netdyno.tuning.verbs import completion, place

HOLDS_FOR = {"global": "the whole machine", "process": "running processes of that name or number"}


def params(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="NAME", help="Only parameters whose name contains this.")
    ] = None,
    service_class: Annotated[
        str | None,
        typer.Option(
            "--class",
            help="Only those that matter to a class of service: a name, or a file of your own.",
            metavar="CLASS",
            autocompletion=completion.service_class,
        ),
    ] = None,
    where: Annotated[
        str | None, typer.Option(help=f"Values there: {place.HELP}.", metavar=place.METAVAR)
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="Also parameters that this kernel lacks.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print all that is known as JSON.")] = False,
) -> None:
    """Show kernel parameters of the network: meaning, current value and range.

    Remarks name parameters that are read-only or missing here, global (of the whole machine), or inert
    (without effect in this kernel). Parameters of a network device are shown for each device, those of a
    process for each program that listens for connections.

        netdyno tune params somaxconn

        netdyno tune params --class latency --json
    """
    where = place.namespace_of(where)
    known = registry()
    wanted = host_state.names(known, host_state.devices(where), host_state.servers(where))
    if service_class:
        of_class = service.read(service_class).tunables
        wanted = [n for n in wanted if n in of_class or known.find(n).name in of_class]
    if names:
        wanted = [n for n in wanted if any(part in n for part in names)]
        if not wanted:
            what = f"no kernel parameter has {' or '.join(map(repr, names))} in its name"
            if any(part in one for part in names for one in known.tunables):
                what = f"nothing here has {' or '.join(names)}: no device, or no program that listens"
            raise Error("ND-104-40", what, fix="`netdyno tune params --all` lists them all")
    found = list(host_state.read_states(known, wanted, where).values())
    if as_json:
        console.document([_document(one) for one in found])
        return
    if len(found) == 1 or (names and len(found) <= 3):
        for one in found:
            _describe(one)
        return
    shown = [one for one in found if every or one.state != "missing"]
    rows = [(one.name, _value(one.value), parameter_range(one), ", ".join(remarks(one))) for one in shown]
    heads = ("parameter", "here", "may be", "remarks")
    console.table(heads, rows, right=("here",), spare=("may be",))
    if len(shown) < len(found):
        console.note(f"{len(found) - len(shown)} more are missing here; --all shows them")


def need_root(why: str) -> None:
    """Refuse without the rights."""
    if os.geteuid() != 0:
        raise Error("ND-92-22", f"{why} needs root", fix="Run it with sudo")


def remarks(one: HostState) -> list[str]:
    """What one should know before setting it."""
    found: list[str] = []
    if one.state != "there":
        found.append(one.state)
    if one.scope is Scope.GLOBAL:
        found.append("global")
    if one.tunable.inert:
        found.append("inert")
    return found


def _value(value: Any) -> str:
    return "–" if value is None else str(value)


def parameter_range(one: HostState) -> str:
    """Values that it may have, in words."""
    tunable = one.tunable
    if tunable.choices:
        return " ".join(map(str, tunable.choices))
    if one.low is None:
        return "ports and ranges" if tunable.values == "ports" else "mask of CPUs"
    return f"{one.low} to {one.high} {tunable.unit}".rstrip()


def bounds(one: HostState) -> str:
    """Where the ends of its range come from."""
    if one.low is None or one.tunable.choices:
        return ""
    if one.limits is not None:
        return "what it takes here"
    of = "; the upper one is a share of this machine's memory" if one.tunable.by_memory else ""
    return f"what searches stay within, and not all that the kernel takes{of}"


def _describe(one: HostState) -> None:
    tunable, out = one.tunable, console.out()
    said = f" = {_value(one.value)}" + "".join(f", {r}" for r in remarks(one))
    out.print(Text.assemble((one.name, "bold"), said))
    out.print(f"  {tunable.summary}")
    if tunable.inert:
        out.print(f"  Inert: {tunable.inert}")
    rows = {
        "may be": parameter_range(one) + (", tried on a logarithmic scale" if tunable.scale == "log" else ""),
        "bounds": bounds(one),
        "Linux default": "" if tunable.default is None else str(tunable.default),
        "holds for": HOLDS_FOR.get(one.scope, f"one {one.scope}"),
        "needs": ", ".join(tunable.requires),
        "not with": ", ".join(tunable.conflicts),
        "counts if": ", ".join(tunable.only_if),
        "read": READ.get(tunable.read_at, ""),
        "risk": tunable.risk,
        "kernels": " ".join(filter(None, (f"since {tunable.since}" * bool(tunable.since),
                                          f"until {tunable.until}" * bool(tunable.until)))),
        "binds when": ", ".join(tunable.counters) + " move" if tunable.counters else "no counter known",
        "kernel's doc": tunable.doc,
    }  # fmt: skip
    for head, text in rows.items():
        if text:
            out.print(f"  {head:13} {text}", markup=False)


def _document(one: HostState) -> dict[str, Any]:
    plain = asdict(one.tunable) | {"low": one.low, "high": one.high, "scope": one.scope}
    return {"name": one.name, "value": one.value, "state": one.state} | {
        key: value for key, value in plain.items() if key != "name"
    }
