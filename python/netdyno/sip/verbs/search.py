"""`netdyno sip search`: the highest rate of registrations or calls that a server bears."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from netdyno.cli import bench_run, values
from netdyno.cli.options import DryRun, Repeat, Resolution, Resume, Strategy
from netdyno.experiment import choose
from netdyno.sip import profile
from netdyno.sip.verbs import gate, options
from netdyno.sip.verbs.load import Hold, Target
from netdyno.sip.verbs.options import searched

KINDS = {"register": profile.register, "call": profile.call}


@searched
def search(
    kind: Annotated[
        str, typer.Argument(metavar="KIND", help="register or call.", parser=values.one_of("KIND", *KINDS))
    ],
    server: Target,
    hold: Hold = "0s",
    resolution: Resolution = 0.02,
    strategy: Strategy = "binary",
    repeat: Repeat = None,
    dry_run: DryRun = False,
    resume: Resume = None,
    **given: Any,
) -> None:
    """Find the highest rate at which every attempt succeeds within the delay limits.

    Rates up to `--rate` are tried by bisection (RFC 7502: session and registration establishment rate). A
    rate passes when the criteria of `netdyno sip register` or `netdyno sip call` hold.

        netdyno sip search register sip:192.0.2.1 --password secret --rate 20k/s --duration 5s
        netdyno sip search call sip:192.0.2.1 --password secret --rate 5k/s --hold 1s
    """
    read = options.read(server, given, hold=options.seconds(hold, "--hold"))
    gate.conform(read, given, kind)
    document = KINDS[kind](read)
    chosen = choose.document(document, document["name"], Path())
    how = given | {
        "resolution": resolution,
        "strategy": strategy,
        "repeat": repeat,
        "dry_run": dry_run,
        "resume": resume,
        "duration": read.duration,
    }
    raise typer.Exit(bench_run.search("rate", chosen, how, messages=False))
