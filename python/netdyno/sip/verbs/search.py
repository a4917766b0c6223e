"""`netdyno sip search`: the highest rate of registrations or calls that a server bears."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from netdyno.cli import bench_run, console, values
from netdyno.cli.options import DryRun, Repeat, Resolution, Resume, Strategy, outputs
from netdyno.core.result import Result
from netdyno.errors import Error
from netdyno.experiment import choose
from netdyno.search import words
from netdyno.sip import profile
from netdyno.sip.verbs import baseline as own
from netdyno.sip.verbs import gate, options
from netdyno.sip.verbs.load import Hold, Target
from netdyno.sip.verbs.options import searched

SESSIONS = 50_000
"""Of RFC 7502 section 4.10."""
KINDS = {"register": profile.register, "call": profile.call}


@searched
def search(
    kind: Annotated[
        str, typer.Argument(metavar="KIND", help="register or call.", parser=values.one_of("KIND", *KINDS))
    ],
    server: Target,
    hold: Hold = "0s",
    sessions: Annotated[
        int,
        typer.Option(
            help="Sessions of the trial that confirms the rate, none of which may fail; 0: no such trial.",
            metavar="N",
            parser=values.whole("--sessions", 0, 100_000_000),
        ),
    ] = SESSIONS,
    baseline: Annotated[
        bool, typer.Option(help="First measure what the tester carries without a DUT.")
    ] = True,
    resolution: Resolution = 0.02,
    strategy: Strategy = "binary",
    repeat: Repeat = None,
    dry_run: DryRun = False,
    resume: Resume = None,
    **given: Any,
) -> None:
    """Find the highest rate at which every attempt succeeds within the delay limits (RFC 7502).

    First the tester loads a server of its own on this machine: that is its baseline, and a result that
    reaches it says that the tester is the limit. Then rates up to `--rate` are tried by bisection. A rate
    passes when the criteria of `netdyno sip register` or `netdyno sip call` hold. Last, the rate is confirmed
    over `--sessions` sessions without a failure, or lowered until it is.

        netdyno sip search register sip:192.0.2.1 --password env:SIP_PASSWORD --rate 20k/s --duration 5s
        netdyno sip search call sip:192.0.2.1 --password env:SIP_PASSWORD --rate 5k/s --hold 1s
        netdyno sip search call sip:192.0.2.1 --rate 5k/s --sessions 5000 --no-baseline
    """
    called = {} if kind in profile.REGISTERS else {"callee": None}
    read = options.read(server, given, hold=options.seconds(hold, "--hold"), **called)
    if read.callee is not None:
        fix = "Leave the user out of the URI"
        raise Error("ND-104-03", "the calls of a search go to callees of its own", at=server, fix=fix)
    gate.conform(read, given, kind)
    how = {
        "resolution": resolution,
        "strategy": strategy,
        "repeat": repeat,
        "dry_run": dry_run,
        "resume": resume,
    }
    raise typer.Exit(highest_rate(kind, read, given | how, sessions, baseline and not dry_run))


def highest_rate(
    kind: str,
    read: profile.Options,
    given: Mapping[str, Any],
    sessions: int,
    baseline: bool,
    then: Callable[[Result, Path], None] = lambda _, __: None,
) -> int:
    """Search, and return the exit code. `then` is given the result and the folder of the run."""
    carried = None
    if baseline and given["fleet"]:
        console.note("no baseline: it measures the tester on this machine, and the load comes from a fleet")
    elif baseline:
        console.note("baseline: the tester against a server of its own, without a DUT")
        carried = own.measured(read, KINDS[kind], given["password"], replace(outputs(given), quiet=True))
        console.note(f"baseline: {'at least ' * carried.open}{words.load(carried.load, 'flows/s')}")
    document = KINDS[kind](read)
    chosen = choose.document(document, document["name"], Path())
    how = {"confirm": float(sessions), "baseline": carried, "duration": read.duration}
    return bench_run.search("rate", chosen, {**given, **how}, messages=False, then=then)
