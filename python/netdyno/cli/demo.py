"""`netdyno demo`: everything once, on real servers, in about a minute; `netdyno demo nat`: a NAT at work."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from netdyno import config
from netdyno.cli import values
from netdyno.cli.execute import Outputs, execute
from netdyno.errors import Error
from netdyno.experiment import presets, spec


def demo(
    what: Annotated[
        str | None,
        typer.Argument(
            help="`nat`: a NAT at work; without it, servers under load.",
            metavar="[WHAT]",
            parser=values.one_of("WHAT", "nat"),
        ),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print the result as one JSON document.")] = False,
    json_stream: Annotated[bool, typer.Option("--json-stream", help="Print events as NDJSON.")] = False,
    html: Annotated[Path | None, typer.Option(help="Copy the report to FILE.", metavar="FILE")] = None,
    runs: Annotated[Path | None, typer.Option(help="Folder for run folders.", metavar="DIR")] = None,
) -> None:
    """Load a real broker and web server with thousands of devices, and show what came of it.

    A Mosquitto broker, an nginx and our reflector start in a network namespace of their own. 2,000 MQTT
    devices, HTTP, PING and a UDP stream load them over kernel sockets; then streams and pings run over DPDK
    ports, to our reflector and to a host's kernel.
    Needs root. Everything is taken away at the end; the result stays under `runs/`.

    With `nat`: two subscribers boot by DHCP from Kea, our NAT gets a public address for each by DHCP from
    another Kea, and they surf an nginx through it, and through the kernel's NAT beside it. The report shows
    addresses, mappings, the throughput of both, cycles per packet of each element and drops by reason. It
    takes less than a minute.

        sudo netdyno demo
        sudo netdyno demo nat
    """
    if what == "nat":
        if json_stream:
            at, fix = "--json-stream", "Use --json"
            raise Error("ND-104-07", "there is no stream of this demo", at=at, fix=fix)
        # loaded here, for the other demo to start sooner
        from netdyno.cli import demo_nat

        demo_nat.run(json, html, runs)
        return
    path = presets.experiment("demo")
    wanted = spec.load(config.read(path), str(path))
    outputs = Outputs(json=json, json_stream=json_stream, html=html, runs=runs)
    raise typer.Exit(execute(wanted, path.parent, outputs))
