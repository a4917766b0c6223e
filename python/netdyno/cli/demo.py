"""`netdyno demo`: everything once, on real servers, in about a minute; a system's with its word."""

from __future__ import annotations

from pathlib import Path
from textwrap import indent
from typing import Annotated

import typer

from netdyno import config
from netdyno.cli import values
from netdyno.cli.execute import execute
from netdyno.cli.options import Outputs
from netdyno.errors import Error
from netdyno.experiment import presets, spec
from netdyno.lazy import loaded
from netdyno.system.journal import journal
from netdyno.systems import SYSTEMS

DEMOS = {one.demo.word: one.demo for one in SYSTEMS if one.demo}
WITHOUT = "without it, servers under load."


def demo(
    what: Annotated[
        str | None,
        typer.Argument(
            help="; ".join([*(f"`{one.word}`: {one.about}" for one in DEMOS.values()), WITHOUT]),
            metavar="[WHAT]",
            parser=values.one_of("WHAT", *DEMOS),
        ),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print the result as one JSON document.")] = False,
    json_stream: Annotated[bool, typer.Option("--json-stream", help="Print events as NDJSON.")] = False,
    html: Annotated[Path | None, typer.Option(help="Copy the report to FILE.", metavar="FILE")] = None,
    runs: Annotated[
        Path | None,
        typer.Option(help="Folder for run folders. Default: $NETDYNO_RUNS, else runs.", metavar="DIR"),
    ] = None,
) -> None:
    """Load a real broker and web server with thousands of devices, and show the result.

    A Mosquitto broker, an nginx and our reflector start in a separate network namespace. 2,000 MQTT
    devices, HTTP, PING and a UDP stream load them over kernel sockets; then streams and pings run over DPDK
    ports, to our reflector and to a host's kernel, and MQTT and HTTP devices to the same servers. Needs root.
    Everything is removed at the end; the result stays under `runs/`.
    """
    if what is not None:
        if json_stream:
            at, fix = "--json-stream", "Use --json"
            raise Error("ND-104-07", "there is no stream of this demo", at=at, fix=fix)
        try:
            loaded(DEMOS[what].run)(json, html, runs)
        finally:
            # an interrupt can come between a change and what takes it back
            journal().undo_all()
        return
    path = presets.experiment("demo")
    wanted = spec.load(config.read(path), str(path))
    outputs = Outputs(json=json, json_stream=json_stream, html=html, runs=runs)
    raise typer.Exit(execute(wanted, path.parent, outputs))


def _help(own: str) -> str:
    """What this one shows, and those of systems; then how each is begun."""
    paragraphs = [own.rstrip(), *(indent(one.help, " " * 4) for one in DEMOS.values())]
    examples = [f"{' ' * 8}sudo netdyno demo {word}".rstrip() for word in ("", *DEMOS)]
    return "\n\n".join([*paragraphs, "\n".join(examples)])


demo.__doc__ = _help(demo.__doc__ or "")
