"""`netdyno nat run`: a NAT between two ports, until somebody says so."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from netdyno.cli import console, graph_run, values
from netdyno.cli.execute import put_back
from netdyno.errors import Error
from netdyno.nat import graph, host, pair, reload, running
from netdyno.nat.check import planned
from netdyno.nat.verbs import metrics as nat_metrics
from netdyno.system.journal import journal
from netdyno.units import seconds


def run(
    file: Annotated[Path, typer.Argument(help="The NAT's configuration.", metavar="FILE")],
    length: Annotated[
        str | None,
        typer.Option(
            "--for", help="Duration. Default: until Ctrl-C.", metavar="TIME", parser=values.time("--for")
        ),
    ] = None,
    interval: Annotated[
        str,
        typer.Option(help="Update interval, like 1s.", metavar="TIME", parser=values.interval("--interval")),
    ] = "1s",
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Show no counters.")] = False,
    prometheus: Annotated[
        str | None, typer.Option(help="Serve metrics there, like :9464.", metavar="[ADDR]:PORT")
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the counters at the end as one JSON document.")
    ] = False,
) -> None:
    """Run a NAT on ports.

    The NAT runs until Ctrl-C or SIGTERM, for --for, or until a port is lost, and shows the counters of its
    elements: packets, drops by reason, cycles per packet. Other commands show its sessions and subscribers.
    Names are unique among running NATs. If the command dies, the ports close within 3 s.

    With the key `state`, sessions survive a restart. Without a terminal, as in a service, SIGHUP reloads
    FILE, as `netdyno nat reload` does.

        sudo netdyno nat run cgn.yaml
        sudo netdyno nat run examples/nat/cgn.yaml --for 60s --json
        sudo netdyno nat run cgn.yaml -q --prometheus 127.0.0.1:9464
    """
    nat, where = planned(file)
    put_back()
    with running.claimed(nat.name):
        on = ", ".join(str(work.core) for work in where.workers)
        begun = f"the NAT {nat.name} runs on {'core' if len(where.workers) == 1 else 'cores'} {on}"
        for port, (kernel, _) in nat.kernels.items():
            host.free(port, kernel)

        notes, made = journal(), list[int]()

        def ready(shape: dict[str, Any]) -> None:
            host.settle(shape, nat.kernels)
            if nat.outside.kernel is not None:
                entries, told = host.route("outside", nat.outside.kernel, nat.gateway, notes)
                made.extend(entries)
                console.note(told)
            with running.connected(nat.name) as own:
                status = own.call("nat.status")
            role = pair.describe(status["pair"]) if status.get("pair") else ()
            for line in (*host.describe(nat.kernels), begun, *role, *reload.restored(status["workers"])):
                console.note(line)

        def reload_file() -> None:
            # it goes on as it was if the file is wrong
            try:
                with running.connected(nat.name) as own:
                    console.note(reload.describe(reload.reload(file, own)))
            except Error as e:
                console.show(e)

        if prometheus is not None:
            nat_metrics.serve(nat.name, prometheus)

        timing = (seconds(length) if length else None, seconds(interval))
        watching = graph_run.GraphRunOptions(*timing, as_json, quiet, reload_file)
        for note in where.notes:
            console.note(note)
        try:
            graph_run.run_graph(graph.document(nat, where), running.stem(nat.name), watching, ready)
        except Error as e:
            raise graph.explained(e, str(file)) from e
        finally:
            # most are gone with the interface, which the daemon took away
            notes.undo(*made)
