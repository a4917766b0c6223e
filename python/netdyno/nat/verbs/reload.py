"""`netdyno nat reload`: another configuration for a NAT that runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from netdyno.cli import console
from netdyno.cli.options import Json
from netdyno.nat import config, running
from netdyno.nat import reload as reloading


def reload(
    file: Annotated[Path, typer.Argument(help="The NAT's configuration.", metavar="FILE")],
    as_json: Json = False,
) -> None:
    """Reload the configuration of a running NAT.

    These keys may change: `pool`, `forwards`, `exempt`, `filtering`, `mss`, `timeouts` but for
    `port_quarantine`, `ports.blocks_per_subscriber` and `limits.sessions_per_subscriber`. Sessions go on, but
    for those of forwards that are gone. An address that leaves the pool drains: nothing begins on it any
    more, and it goes with its last session. What else has changed needs a restart: it is told with its place
    (exit 104), and nothing is done.

        sudo netdyno nat reload cgn.yaml
    """
    name = config.load(file).name
    with running.connected(name) as nat:
        done = reloading.reload(file, nat)
    if as_json:
        console.document({"nat": name, "changed": list(done.changed), "left_out": list(done.left_out)})
        return
    console.line(reloading.describe(done))
