"""`netdyno chain reprogram`: rules changed while packets pass a chain."""

from __future__ import annotations

from typing import Annotated

import typer

from netdyno import quantities
from netdyno.cli import console, values
from netdyno.cli.execute import put_back
from netdyno.cli.options import Json
from netdyno.errors import Error
from netdyno.lab.topology import need_root
from netdyno.switch.chain import reprogram as reprogramming
from netdyno.switch.chain.lab import ChainLab
from netdyno.switch.chain.reprogram import Change, ReprogramReport
from netdyno.switch.verbs.chain import ChainFile, ControllerName, TunnelText, loaded, report
from netdyno.system.interrupt import Interrupts


def reprogram(
    file: ChainFile,
    times: Annotated[
        int,
        typer.Option(help="Changes.", metavar="N", parser=values.whole("--times", 1, 10_000)),
    ] = 8,
    controller: ControllerName = None,
    tunnel: TunnelText = None,
    as_json: Json = False,
) -> None:
    """Change the length of a chain while packets pass it, and count what is lost.

    The number of functions goes down to none and up again. A change writes the new rules first and keeps
    the old ones of functions that may still have packets; these go when they match nothing any more.
    Numbered datagrams pass the chain meanwhile, and afterwards it is verified. Exit code 99 if a datagram
    is lost. Needs root.

        sudo netdyno chain reprogram examples/chain-bridges.yaml --times 20

        sudo netdyno chain reprogram examples/chain-bridges.yaml --controller embedded
    """
    chain = loaded(file, controller, tunnel)
    need_root()
    put_back()
    with Interrupts().installed() as interrupts, ChainLab(chain, shield=interrupts.shielded) as lab:
        found = reprogramming.run(lab, str(file), times, show_change)
    if as_json:
        console.document(found.document())
    else:
        show(found)
    if found.lost:
        raise Error("ND-99-42", found.lost, at=str(file))


def show_change(one: Change) -> None:
    """After a change."""
    console.note(f"{one.functions} functions after {quantities.delay(one.seconds * 1e9)}")


def show(found: ReprogramReport) -> None:
    """Changes, datagrams and the verification."""
    longest = max(one.seconds for one in found.changes)
    waited = sum(not one.drained for one in found.changes)
    seen = found.datagrams
    console.line(f"{len(found.changes)} changes, the longest took {quantities.delay(longest * 1e9)}")
    if waited:
        console.line(f"old rules still matched packets when they were removed: {waited} times")
    console.line(
        f"{seen.lost:,} of {seen.sent:,} datagrams lost, longest echo {quantities.delay(seen.longest * 1e9)}"
    )
    report(found.verification)
