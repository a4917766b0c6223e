"""`netdyno sip dns`: a DNS server for SIP, with faults by choice."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from typing import Annotated

import typer

from netdyno import units
from netdyno.cli import console, values
from netdyno.cli.options import Json
from netdyno.errors import PASS, Error
from netdyno.sip.dns import answers, server


def dns(
    zone: Annotated[str, typer.Argument(metavar="ZONE", help="The domain, like example.net.")],
    listen: Annotated[
        str, typer.Option(help="Address and port, by UDP and TCP.", metavar="ADDRESS:PORT")
    ] = "127.0.0.1:5353",
    record: Annotated[
        list[str] | None,
        typer.Option(
            help="A line of a zone file: A, AAAA, SRV, NAPTR, CNAME or TXT; repeatable. Default: none.",
            metavar="'NAME TYPE DATA'",
        ),
    ] = None,
    ttl: Annotated[
        int,
        typer.Option(
            help="Seconds that resolvers may keep answers.",
            metavar="SECONDS",
            parser=values.whole("--ttl", 0, 86400),
        ),
    ] = 300,
    fault: Annotated[
        list[str] | None,
        typer.Option(
            help=f"What becomes of queries, for a share of them: {', '.join(answers.KINDS)}; repeatable. "
            "Default: they are answered.",
            metavar="NAME[/TYPE]=KIND[:VALUE]",
        ),
    ] = None,
    seed: Annotated[
        int, typer.Option(help="Repeats the draws of shares.", metavar="N", parser=values.whole("--seed", 0))
    ] = 0,
    duration: Annotated[
        str | None,
        typer.Option(
            help="End after this time. Default: on Ctrl-C.", metavar="TIME", parser=values.time("--duration")
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Answer DNS queries of SIP servers and user agents: A, AAAA, SRV, NAPTR.

    A factor of a test: how a proxy copes with a DNS server that is slow, silent or wrong. A fault's name is
    whole, or * for all: `*/SRV=delay:50ms`, `home.example.net=silent:10%`, `*/NAPTR=nxdomain`, `*/A=wrong`.
    At the end it prints what it counted.

        netdyno sip dns example.net --record 'home A 192.0.2.2' --record '_sip._udp SRV 10 0 5060 home'
        netdyno sip dns example.net --record 'home A 192.0.2.2' --fault '*=delay:200ms' --listen 127.0.0.1:53
    """
    faults = [answers.fault(one) for one in fault or ()]
    served = answers.Zone(zone, record or (), faults, ttl, seed)
    address, colon, port = listen.rpartition(":")
    if not colon or not port.isdigit() or int(port) > 65535:
        raise Error("ND-104-22", f"{listen!r} is no ADDRESS:PORT", at="--listen", fix="Like 127.0.0.1:5353")
    seconds = units.TIME.value(duration, "--duration") / 1e9 if duration else None
    asyncio.run(_serve(served, address.strip("[]"), int(port), seconds))
    counters = dict(sorted(served.counters.items()))
    if as_json:
        console.document({"zone": zone, "counters": counters})
    else:
        console.table(
            ["counter", "value"], [(name, f"{n:,}") for name, n in counters.items()], right=["value"]
        )
    raise typer.Exit(PASS)


async def _serve(zone: answers.Zone, address: str, port: int, seconds: float | None) -> None:
    end, loop = asyncio.Event(), asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        with contextlib.suppress(NotImplementedError):
            loop.add_signal_handler(number, end.set)
    if seconds is not None:
        loop.call_later(seconds, end.set)

    def ready(chosen: int) -> None:
        console.note(f"DNS on {address}:{chosen}, UDP and TCP; zone {str(zone.name).rstrip('.')}")

    await server.serve(zone, address, port, ready, end)
