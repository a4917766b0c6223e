"""`netdyno chain takeover`: the controllers' master killed while connections pass a chain."""

from __future__ import annotations

from typing import Annotated, cast

import typer

from netdyno import quantities
from netdyno.cli import console, values
from netdyno.cli.execute import put_back
from netdyno.cli.options import Json
from netdyno.errors import Error
from netdyno.lab.topology import need_root
from netdyno.switch.chain import takeover as takeovers
from netdyno.switch.chain.lab import ChainLab
from netdyno.switch.chain.takeover import How, TakeoverReport
from netdyno.switch.controller.embedded import Embedded
from netdyno.switch.controller.kinds import parse
from netdyno.switch.tunnel import REMOTE, SWITCH
from netdyno.switch.verbs.chain import ChainFile, TunnelText, loaded, report
from netdyno.system.interrupt import Interrupts

SIDES = {"client": SWITCH, "server": REMOTE}
"""Host of a switch by the end of the chain that it is at."""


def takeover(
    file: ChainFile,
    controllers: Annotated[
        int,
        typer.Option(
            help="Embedded controllers, of which one is master.",
            metavar="N",
            parser=values.whole("--controllers", 2, Embedded.most),
        ),
    ] = 5,
    controller: Annotated[
        str | None,
        typer.Option(
            "--controller",
            help="Who programs the switch: opendaylight:3, or opendaylight alone, which is started again; or "
            "embedded:N. Default: embedded, of --controllers.",
            metavar="NAME",
        ),
    ] = None,
    kills: Annotated[
        int,
        typer.Option(
            help="Masters to kill or cut off, one after the other.",
            metavar="N",
            parser=values.whole("--kills", 1, Embedded.most - 1),
        ),
    ] = 1,
    connections: Annotated[
        int,
        typer.Option(
            help="TCP connections that stay open meanwhile.",
            metavar="N",
            parser=values.whole("--connections", 1, 1000),
        ),
    ] = takeovers.CONNECTIONS,
    how: Annotated[
        str,
        typer.Option(
            "--how",
            help="kill: SIGKILL; partition: its packets are dropped for a while.",
            metavar="HOW",
            parser=values.one_of("--how", "kill", "partition"),
        ),
    ] = "kill",
    tunnel: TunnelText = None,
    side: Annotated[
        str,
        typer.Option(
            "--switch",
            help="With a tunnel: whose switch's controllers, the client's or the server's.",
            metavar="SIDE",
            parser=values.one_of("--switch", *SIDES),
        ),
    ] = "client",
    as_json: Json = False,
) -> None:
    """Kill the master of a chain's controllers or cut it off, and check that nothing is lost.

    TCP connections exchange messages through the chain meanwhile. Reported are the time until another
    controller is elected and until the switch has confirmed its role and flows, the longest answer of a
    connection, and the switch's flow entries; then the chain is verified again. Exit code 99 if a
    connection is lost, or a flow entry is missing or too many. Needs root, and etcd or OpenDaylight.

        sudo netdyno chain takeover examples/chain.yaml

        sudo netdyno chain takeover examples/chain.yaml --controllers 5 --kills 3

        sudo netdyno chain takeover examples/chain.yaml --how partition

        sudo netdyno chain takeover examples/chain-tunnel.yaml --switch server

        sudo netdyno chain takeover examples/chain.yaml --controller opendaylight:3
    """
    chosen = parse(controller or f"embedded:{controllers}", "--controller")
    takeovers.check(chosen, kills, cast(How, how))
    chain = loaded(file, controller or f"embedded:{controllers}", tunnel)
    if side == "server" and len(chain.switches()) == 1:
        what = "client and server are at one switch"
        raise Error("ND-104-83", what, at="--switch", fix="Give the chain a tunnel, or leave --switch out")
    need_root()
    put_back()
    with Interrupts().installed() as interrupts, ChainLab(chain, shield=interrupts.shielded) as lab:
        found = takeovers.run(lab, str(file), kills, connections, cast(How, how), SIDES[side])
    if as_json:
        console.document(found.document())
    else:
        show(found)
    if found.lost:
        raise Error("ND-99-41", found.lost, at=str(file))


def show(found: TakeoverReport) -> None:
    """A line for each takeover, one for the connections, and the verification."""
    rows = [
        (one.killed, one.master, "–" if one.generation is None else str(one.generation),
         quantities.delay(one.elected * 1e9), quantities.delay(one.confirmed * 1e9),
         str(one.added), str(one.removed), str(one.kept),
         "–" if one.healed is None else quantities.delay(one.healed * 1e9))
        for one in found.takeovers
    ]  # fmt: skip
    heads = ("former master", "new master", "generation id", "elected after", "confirmed after",
             "flows added", "removed", "kept", "follows again after")  # fmt: skip
    console.table(heads, rows, right=heads[2:])
    whole = [one for one in found.connections if not one.lost]
    messages = sum(one.messages for one in found.connections)
    longest = max(one.longest for one in found.connections)
    console.line(
        f"{len(whole)} of {len(found.connections)} TCP connections stayed open, "
        f"{messages:,} messages echoed, longest answer {quantities.delay(longest * 1e9)}"
    )
    console.line(f"flow entries missing: {len(found.missing)}, too many: {len(found.excess)}")
    report(found.verification)
