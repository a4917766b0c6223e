"""`netdyno nat trace`: what becomes of single packets of a subscriber, stage by stage."""

from __future__ import annotations

import time
from typing import Annotated, Any

import typer

from netdyno.cli import console, graph_view, values
from netdyno.cli.options import Json
from netdyno.errors import Error
from netdyno.nat import follow, running
from netdyno.nat.verbs import address
from netdyno.nat.verbs.show import Name
from netdyno.units import seconds

SLICE = 1.0
"""Seconds for which the daemon is asked to wait for packets at once."""


def trace(
    name: Name = None,
    subscriber: Annotated[
        str | None,
        typer.Option(
            help="Packets of this inside address, and what comes back for it; with @VLAN, or @OUTER.INNER,"
            " only with these tags, @0 without.",
            metavar="IP[@VLAN]",
            parser=address.subscriber("--subscriber"),
        ),
    ] = None,
    outside: Annotated[
        str | None,
        typer.Option(
            help="Packets of whoever has this outside address and port.",
            metavar="IP:PORT",
            parser=values.ipv4("--outside", port=True),
        ),
    ] = None,
    wanted: Annotated[
        str | None, typer.Option("--filter", help="Which packets, as in pcap-filter(7).", metavar="FILTER")
    ] = None,
    packets: Annotated[
        int,
        typer.Option(
            "--packets",
            "-n",
            help="Packets to follow, 1 to 64.",
            metavar="N",
            parser=values.whole("--packets", 1, 64),
        ),
    ] = 10,
    length: Annotated[
        str,
        typer.Option("--for", help="Time to wait for packets.", metavar="TIME", parser=values.time("--for")),
    ] = "30s",
    as_json: Json = False,
) -> None:
    """Follow packets of one subscriber, or of one mapping, through the stages of a NAT.

    For each packet: its time at each element, the element's action (passed, or dropped with the reason),
    and the rewritten packet. Other packets are not affected; one trace runs at a time.

        netdyno nat trace --subscriber 10.0.0.7
        netdyno nat trace cgn --outside 203.0.113.17:40123 -n 4
        netdyno nat trace --filter 'udp port 53' --for 5s --json
    """
    chosen = [one for one in (subscriber, outside, wanted) if one is not None]
    if len(chosen) != 1:
        fix = "Give one of --subscriber, --outside and --filter"
        raise Error("ND-104-07", "it is not said which packets to follow", at="--subscriber", fix=fix)
    with running.connected(name) as nat:
        known = True
        if subscriber is not None:
            wanted, known = follow.of_subscriber(nat, subscriber)
        elif outside is not None:
            wanted = follow.of_mapping(nat, outside)
        if not known:
            what = f"{subscriber} has no outside address yet: answers to it are not followed"
            console.note(what)
        found = _follow(nat, wanted or "", packets, seconds(length), as_json)
    if as_json:
        console.document({"nat": nat.name, "filter": wanted, "packets": found})
    if len(found) < packets:
        console.note(f"{len(found)} of {packets} packets came within {seconds(length):g} s")


def _follow(
    nat: running.Running, wanted: str, count: int, length: float, as_json: bool
) -> list[dict[str, Any]]:
    """Packets as they come, until there are enough or the time is over."""
    found: list[dict[str, Any]] = []
    until = time.monotonic() + length
    while len(found) < count and (left := until - time.monotonic()) > 0:
        wait = min(SLICE, left)
        answer = nat.call("graph.trace", packets=count - len(found), filter=wanted, wait=wait)
        found += answer["packets"]
        if not as_json:
            for packet in answer["packets"]:
                console.out().print(graph_view.way(packet))
    return found
