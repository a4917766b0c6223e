"""Options that say which servers a load goes to, and how it goes on where one fails (RFC 3263)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, Any

import typer

from netdyno import units
from netdyno.cli import values
from netdyno.errors import Error
from netdyno.sip import profile, uri
from netdyno.sip.failover import servers
from netdyno.sip.failover.dns import Srv, resolver

PANEL = "Servers that take over"

Dns = Annotated[
    str | None,
    typer.Option(
        help="DNS server to ask for NAPTR, SRV, A and AAAA of the host: user agents try the next"
        " server where one fails. Default: addresses by the system, without failover.",
        metavar="ADDRESS[:PORT]",
        rich_help_panel=PANEL,
    ),
]
Table = Annotated[
    list[str] | None,
    typer.Option(
        help="In place of DNS: a server of the host; repeatable. Default: none.",
        metavar="'PRIORITY WEIGHT PORT HOST'",
        rich_help_panel=PANEL,
    ),
]
ServerTimeout = Annotated[
    str,
    typer.Option(
        help="Wait for a silent server before the next is tried; RFC 3261: 32s.",
        metavar="TIME",
        parser=values.time("--server-timeout"),
        rich_help_panel=PANEL,
    ),
]
Avoid = Annotated[
    str,
    typer.Option(
        help="How long a user agent tries a server that failed only after all others.",
        metavar="TIME",
        parser=values.time("--avoid"),
        rich_help_panel=PANEL,
    ),
]
MaxOutage = Annotated[
    str | None,
    typer.Option(
        help="Longest that a request may wait for its response, in place of the limits of delay."
        " Default: those.",
        metavar="TIME",
        parser=values.time("--max-outage"),
        rich_help_panel=PANEL,
    ),
]
OPTIONS: Mapping[str, tuple[Any, Any]] = {
    "dns": (Dns, None),
    "srv": (Table, None),
    "server_timeout": (ServerTimeout, "2s"),
    "avoid": (Avoid, "30s"),
    "max_outage": (MaxOutage, None),
}


def located(server: uri.Server, given: Mapping[str, Any]) -> tuple[uri.Server, profile.Failover | None]:
    """The server with the transport that DNS says, and the servers that take over from one another."""
    seconds = {
        name: units.TIME.value(given[name], f"--{name.replace('_', '-')}") / 1e9
        for name in ("server_timeout", "avoid", "max_outage")
        if given[name] is not None
    }
    if not (given["dns"] or given["srv"]):
        if "max_outage" in seconds:
            fix = "Name servers with --dns or --srv, or leave it out"
            raise Error("ND-104-03", "it is for servers that take over", at="--max-outage", fix=fix)
        return server, None
    if given["dns"] and given["srv"]:
        raise Error("ND-104-07", "--dns says it already", at="--srv", fix="Leave one of them out")
    if seconds["server_timeout"] <= 0:
        raise Error("ND-104-05", "it is zero", at="--server-timeout", fix="Use 2s")
    table = [servers.written(text) for text in given["srv"] or ()]
    if server.port is not None:
        if table:
            what = "the URI has a port, and SRV records have theirs"
            raise Error("ND-104-07", what, at="--srv", fix="Leave the port out")
        # RFC 3263 section 4.2: with a port it is the addresses of the host
        table = [Srv(0, 0, server.port, server.host)]
    found = servers.locate(
        server.host.strip("[]"),
        table,
        resolver(given["dns"]) if given["dns"] else None,
        server.transport if server.named else None,
        least=1,
        secure=server.transport in uri.SECURE,
    )
    # a load is over one transport: the most wanted
    first = min(found, key=lambda one: one.rank)
    usable = tuple(one for one in found if one.rank == first.rank)
    failover = profile.Failover(
        usable, seconds["server_timeout"], seconds["avoid"], seconds.get("max_outage")
    )
    return replace(server, transport=first.transport), failover
