"""`netdyno nat clear`: end sessions of a NAT that runs."""

from __future__ import annotations

from typing import Annotated

import typer

from netdyno.cli import console
from netdyno.cli.options import Json
from netdyno.errors import Error
from netdyno.nat import running
from netdyno.nat.verbs.show import Name, Outside, Protocol, Remote, SessionsOf


def clear(
    name: Name = None,
    subscriber: SessionsOf = None,
    outside: Outside = None,
    remote: Remote = None,
    protocol: Protocol = None,
    everything: Annotated[bool, typer.Option("--all", help="All sessions of the NAT.")] = False,
    mappings: Annotated[
        bool, typer.Option("--mappings", help="Also mappings that subscribers asked for by PCP.")
    ] = False,
    as_json: Json = False,
) -> None:
    """End sessions of a NAT immediately, as if they had timed out.

    Those that all the options mean; `netdyno nat sessions` lists them. Each ends in the log, its port rests
    before it is given out again, and packets of it begin a new session, TCP only with a SYN. Forwards stay.
    Packets of others pass meanwhile.

        sudo netdyno nat clear --subscriber 10.0.0.7
        sudo netdyno nat clear cgn --remote 198.51.100.9:53 --protocol udp
        sudo netdyno nat clear --all
    """
    said = {"subscriber": subscriber, "outside": outside, "remote": remote, "protocol": protocol}
    wanted = {key: value for key, value in said.items() if value is not None}
    if not wanted and not everything:
        what, fix = "nothing says which sessions are to end", "Say which, as by --subscriber IP, or --all"
        raise Error("ND-104-07", what, at="--all", fix=fix)
    if wanted and everything:
        what = f"--all ends every session, and --{next(iter(wanted))} only some"
        raise Error("ND-104-07", what, at="--all", fix="Leave one of the two out")
    with running.connected(name) as nat:
        ended = nat.clear(all=everything, mappings=mappings, **wanted)
    if as_json:
        console.document({"nat": nat.name, "ended": ended})
        return
    console.line(f"{ended:,} {'session' if ended == 1 else 'sessions'} ended")
