"""`netdyno nat metrics`: a NAT's metrics in Prometheus' text format, once."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from netdyno import files
from netdyno.errors import Error
from netdyno.nat import running
from netdyno.nat.verbs.show import Name

PATIENCE = 5.0
"""Seconds in which a NAT answers, or is down: who scrapes waits for ten."""
DOWN = (running.NONE, "ND-91-21", "ND-91-22")
"""It is not there, has ended, or hangs."""


def metrics(
    name: Name = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="File to write. Default: standard output.", metavar="FILE"),
    ] = None,
) -> None:
    """Print or write the metrics of a NAT as Prometheus reads them.

    For node_exporter's textfile collector: the file is replaced as a whole. `netdyno nat run --prometheus`
    serves the same.

        netdyno nat metrics
        netdyno nat metrics cgn -o /var/lib/node_exporter/netdyno.prom
    """
    # loaded here, for other verbs to start sooner
    from netdyno.nat import metrics as nat

    gone: Error | None = None
    try:
        with running.connected(name, PATIENCE) as found:
            chosen = found.name
    except Error as e:
        if name is None or e.code not in DOWN:
            raise
        # the file says so, as the address does: what it said before is not true any more
        chosen, gone = name, e

    @contextmanager
    def connected(name: str) -> Iterator[running.Running]:
        if gone:
            raise gone
        with running.connected(name, PATIENCE) as found:
            yield found

    text = nat.text(nat.registry(chosen, connected))
    if output is None or str(output) == "-":
        print(text, end="")
    else:
        files.write(output, text, shared=True)
    if gone:
        raise gone


def serve(name: str, address: str) -> None:
    """Answer with the metrics of a NAT until the process ends."""
    from netdyno.export import prometheus
    from netdyno.nat import metrics as nat

    if not prometheus.is_address(address):
        fix = "Like 127.0.0.1:9464; for a file there is `netdyno nat metrics -o FILE`"
        raise Error("ND-104-22", f"{address!r} is not ADDRESS:PORT", at="--prometheus", fix=fix)
    prometheus.serve(address, nat.registry(name, lambda name: running.connected(name, PATIENCE)))
