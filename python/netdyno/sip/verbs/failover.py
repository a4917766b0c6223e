"""`netdyno sip failover`: how long a domain is without service when one of its servers fails."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Annotated, Any

import typer

from netdyno import units
from netdyno.cli import console, values
from netdyno.cli.options import Json
from netdyno.errors import Error
from netdyno.sip.failover import servers
from netdyno.sip.failover.client import REQUESTS, Client, Setting
from netdyno.sip.failover.dns import resolver
from netdyno.sip.failover.report import Report, report
from netdyno.sip.manual.wire import tls_context
from netdyno.sip.verbs.send import account

_USER = re.compile(r"[A-Za-z0-9_.!~*'()&=+$,-]{1,64}")


def failover(
    domain: Annotated[str, typer.Argument(metavar="DOMAIN", help="Domain of the servers, like example.net.")],
    dns: Annotated[
        str | None,
        typer.Option(help="DNS server to ask for NAPTR, SRV, A and AAAA.", metavar="ADDRESS[:PORT]"),
    ] = None,
    srv: Annotated[
        list[str] | None,
        typer.Option(help="In place of DNS: a server of the domain.", metavar="'PRIORITY WEIGHT PORT HOST'"),
    ] = None,
    request: Annotated[
        str,
        typer.Option(
            help="What is asked for: options, register (a registration) or call (INVITE, ACK, BYE).",
            metavar="WHAT",
            parser=values.one_of("--request", *REQUESTS),
        ),
    ] = "options",
    transport: Annotated[
        str | None,
        typer.Option(
            help="udp, tcp or tls. Default: as NAPTR records say, else the first of them with SRV records.",
            metavar="NAME",
            parser=values.one_of("--transport", *servers.TRANSPORTS),
        ),
    ] = None,
    user: Annotated[str, typer.Option(help="User who asks, and is registered.", metavar="NAME")] = "netdyno",
    to: Annotated[
        str | None, typer.Option(help="User who is called. Default: as --user.", metavar="NAME")
    ] = None,
    auth_user: Annotated[
        str | None,
        typer.Option(help="User name that challenges are answered with. Default: as --user.", metavar="NAME"),
    ] = None,
    password: Annotated[
        str | None,
        typer.Option(
            help="Password: env:NAME or file:PATH. Default: none, so that a challenge is a rejection.",
            metavar="PLACE",
        ),
    ] = None,
    hold: Annotated[
        str,
        typer.Option(
            help="How long a call lasts, from ACK to BYE.", metavar="TIME", parser=values.time("--hold")
        ),
    ] = "0s",
    rate: Annotated[str, typer.Option(help="Requests per second.", metavar="RATE")] = "20/s",
    duration: Annotated[
        str,
        typer.Option(help="How long requests are sent.", metavar="TIME", parser=values.time("--duration")),
    ] = "10s",
    timeout: Annotated[
        str,
        typer.Option(
            help="Wait for a silent server before the next is tried; RFC 3261: 32s.",
            metavar="TIME",
            parser=values.time("--timeout"),
        ),
    ] = "2s",
    avoid: Annotated[
        str,
        typer.Option(
            help="A server that failed is tried last for so long.",
            metavar="TIME",
            parser=values.time("--avoid"),
        ),
    ] = "30s",
    after: Annotated[
        str, typer.Option(help="When --command runs.", metavar="TIME", parser=values.time("--after"))
    ] = "3s",
    command: Annotated[
        str | None,
        typer.Option(
            help="Shell command that makes a server fail; default: somebody else does.", metavar="TEXT"
        ),
    ] = None,
    max_outage: Annotated[
        str | None,
        typer.Option(help="Longest outage allowed.", metavar="TIME", parser=values.time("--max-outage")),
    ] = None,
    cacert: Annotated[
        Path | None,
        typer.Option(
            "--cacert", help="Trust this certificate authority. Default: the system's.", metavar="FILE"
        ),
    ] = None,
    insecure: Annotated[
        bool, typer.Option("--insecure", "-k", help="Do not verify the servers' certificates.")
    ] = False,
    source: Annotated[str | None, typer.Option(help="Address to send from.", metavar="ADDRESS")] = None,
    seed: Annotated[
        int, typer.Option(metavar="N", help="Repeats the draws among servers of one priority.")
    ] = 0,
    as_json: Json = False,
) -> None:
    """Measure the outage when one of several SIP servers of a domain fails.

    A client sends OPTIONS, registers or calls, over UDP, TCP or TLS, and fails over as RFC 3263 says: NAPTR
    records choose the transport, servers are tried by priority and weight of their SRV records, and the
    next one is tried where one refuses, closes the connection, answers 503 or is silent for --timeout.
    The outage is the longest time without a 2xx, from the last answer before to the first after.

    Exit code: 0, 99 where requests failed, or the outage was longer than --max-outage.

        netdyno sip failover example.net --dns 192.0.2.53 --duration 60s
        netdyno sip failover example.net --srv '10 0 5060 192.0.2.1' --srv '20 0 5060 192.0.2.2'
        netdyno sip failover example.net --dns 192.0.2.53 --request register --password env:SIP_PASSWORD
        netdyno sip failover example.net --dns 192.0.2.53 --command 'ssh 192.0.2.1 systemctl stop kamailio'
    """
    per_second = units.RATE.value(rate, "--rate")
    if not 0 < per_second <= 1000:
        raise Error(
            "ND-104-05", f"{rate} cannot be measured", at="--rate", fix="Use more than 0/s, at most 1000/s"
        )
    times = {"--duration": duration, "--timeout": timeout, "--avoid": avoid, "--after": after, "--hold": hold}
    length = {name: units.TIME.value(text, name) / 1e9 for name, text in times.items()}
    for name in ("--duration", "--timeout"):
        if length[name] <= 0:
            raise Error("ND-104-05", "it is zero", at=name, fix="Use 2s")
    limit = None if max_outage is None else units.TIME.value(max_outage, "--max-outage") / 1e9
    table = [servers.written(text) for text in srv or ()]
    found = servers.locate(domain, table, resolver(dns) if dns else None, transport)
    for option, part in (("--user", user), ("--to", to)):
        if part is not None and not _USER.fullmatch(part):
            fix = "Use letters, digits and -_.!~*'()&=+$,"
            raise Error("ND-104-04", f"{part!r} cannot stand in a SIP URI", at=option, fix=fix)
    setting = Setting(
        domain,
        per_second,
        length["--duration"],
        length["--timeout"],
        length["--avoid"],
        request=request,
        user=user,
        to=to,
        account=account(password, auth_user or user),
        hold=length["--hold"],
    )
    client = Client(setting, found, seed, source, tls_context(cacert, insecure))
    children: list[subprocess.Popen[bytes]] = []

    def fail() -> None:
        children.append(subprocess.Popen(command or "", shell=True, stdin=subprocess.DEVNULL))

    try:
        attempts = client.run([(length["--after"], fail)] if command else [])
    finally:
        client.close()
        for child in children:
            child.wait()
    if children and children[0].returncode:
        what = f"the command ended with {children[0].returncode}"
        raise Error("ND-104-26", what, at="--command", fix="Try it by hand")
    done = report(domain, list(map(str, found)), attempts, 1 / per_second, limit, client.stalls)
    if as_json:
        console.document(done.model_dump())
    else:
        _show(done)
    raise typer.Exit(done.exit_code)


def _show(done: Report) -> None:
    rows: list[tuple[str, Any]] = [(server, f"{done.by_server.get(server, 0):,}") for server in done.servers]
    console.table(["server", "answers with 2xx"], rows)
    console.line("")
    told = f"{done.served:,} served ({done.moved:,} by another server than the first)"
    console.line(f"{done.requests:,} requests: {told}, {done.rejected:,} rejected, {done.failed:,} failed")
    if done.dropped:
        console.note(f"{done.dropped:,} calls were up when their server failed: no server took their BYE")
    if done.slowest is not None:
        console.line(f"slowest request: {done.slowest * 1e3:,.0f} ms")
    if done.outage is None:
        console.line("outage: none")
    else:
        one = done.outage
        lasted = "not over at the end" if one.length is None else f"{one.length:,.3f} s"
        moved = f", {one.server_before or 'none'} → {one.server_after}" if one.server_after else ""
        console.line(
            f"outage: {lasted}, from {one.begin:,.3f} s on{moved}; {one.requests:,} requests fell due in it"
        )
    if done.held_up > 0:
        told = f"this client was held up for up to {done.held_up * 1e3:,.0f} ms, which is no outage"
        console.note(f"{told}: free CPU cores for exact figures")
    for reason in done.reasons:
        console.line(f"FAIL: {reason}")
    if not done.reasons:
        console.line("PASS")
