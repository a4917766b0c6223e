"""`netdyno sip failover`: how long a domain is without service when one of its servers fails."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Annotated, Any

import typer

from netdyno import units
from netdyno.cli import console, values
from netdyno.cli.execute import execute
from netdyno.cli.options import output_options, outputs
from netdyno.core.result import Result
from netdyno.errors import Error
from netdyno.experiment import choose
from netdyno.experiment.view import NullView
from netdyno.sip import profile, uri
from netdyno.sip.failover import load
from netdyno.sip.failover.report import Report, report
from netdyno.sip.verbs import passwords, targets

_USER = re.compile(r"(?:[A-Za-z0-9_.!~*'()&=+$,-]|\{device\}){1,64}")


class Break(NullView):
    """A shell command that makes a server fail while the load runs."""

    def __init__(self, command: str, after: float) -> None:
        self._command, self._after = command, after
        self._child: subprocess.Popen[bytes] | None = None

    def sample(self, sample: dict[str, Any]) -> None:
        """Time has passed."""
        if self._child is None and sample["t"] >= self._after:
            console.note(f"{sample['t']:.1f} s: {self._command}")
            self._child = subprocess.Popen(self._command, shell=True, stdin=subprocess.DEVNULL)

    def end(self) -> None:
        """Wait for it. Error: it failed."""
        if self._child is not None and (code := self._child.wait()):
            what = f"the command ended with {code}"
            raise Error("ND-104-26", what, at="--command", fix="Try it by hand")


@output_options("json html junit markdown runs store")
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
            help="Request to send: options, register (a registration) or call (INVITE, ACK, BYE).",
            metavar="WHAT",
            parser=values.one_of("--request", *load.REQUESTS),
        ),
    ] = "options",
    transport: Annotated[
        str | None,
        typer.Option(
            help="udp, tcp, tls, ws or wss. Default: as NAPTR records say, else the first of udp, tcp and tls"
            " with SRV records.",
            metavar="NAME",
            parser=values.one_of("--transport", *uri.TRANSPORTS),
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
            help="Its password. Default: none; a challenge is a rejection.",
            metavar=passwords.METAVAR,
        ),
    ] = None,
    hold: Annotated[
        str,
        typer.Option(
            help="How long a call lasts, from ACK to BYE.", metavar="TIME", parser=values.time("--hold")
        ),
    ] = "0s",
    rate: Annotated[str, typer.Option(help="Requests per second.", metavar="RATE")] = "20/s",
    users: Annotated[
        int | None,
        typer.Option(
            help="User agents. Default: as many as are busy while all servers are silent.",
            metavar="N",
            parser=values.whole("--users", 1, 1_000_000),
        ),
    ] = None,
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
            help="How long a user agent tries a server that failed it after all others.",
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
        typer.Option(
            help="Longest that a request may wait for its 2xx. Default: any time.",
            metavar="TIME",
            parser=values.time("--max-outage"),
        ),
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
    **given: Any,
) -> None:
    """Measure the outage when one of several SIP servers of a domain fails.

    User agents send OPTIONS, register or call, one after the other, and fail over as RFC 3263 says: NAPTR
    records choose the transport, servers are tried by priority and weight of their SRV records, and the
    next one is tried where one refuses, closes the connection, answers 503 or is silent for --timeout.
    The outage is the longest time without a 2xx while requests fell due.

    Exit code: 0, 99 where requests failed, or waited longer than --max-outage.

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
    if command and length["--after"] >= length["--duration"]:
        what = f"no request is sent any more {after} after the start"
        raise Error("ND-104-07", what, at="--after", fix=f"Use less than the {duration} of --duration")
    for option, part in (("--user", user), ("--to", to)):
        if part is not None and not _USER.fullmatch(part):
            fix = "Use letters, digits, -_.!~*'()&=+$, and {device}"
            raise Error("ND-104-04", f"{part!r} cannot stand in a SIP URI", at=option, fix=fix)
    server, takes_over = targets.located(
        uri.parse(f"sip:{domain}", transport),
        {"dns": dns, "srv": srv, "server_timeout": timeout, "avoid": avoid, "max_outage": max_outage},
    )
    if takes_over is None or len(takes_over.servers) < 2:
        what = f"{domain} has one server: none can take over"
        fix = "Give SRV records of two servers by --dns, or as --srv '10 0 5060 192.0.2.1'"
        raise Error("ND-104-26", what, at="DOMAIN", fix=fix)
    options = profile.Options(
        server=server,
        rate=per_second,
        users=users or load.users(per_second, length["--hold"], takes_over),
        duration=length["--duration"],
        warmup=0.0,
        arrival="constant",
        user=user,
        callee=(to or user) if request == "call" else None,
        auth_user=auth_user,
        password=profile.password(passwords.noted(password)),
        expires=load.EXPIRES,
        hold=length["--hold"],
        sources=(source,) if source else (),
        ca=str(cacert.absolute()) if cacert else None,
        insecure=insecure,
        failover=takes_over,
    )
    chosen = choose.document(load.document(options, request), domain, Path())
    breaks = Break(command or "", length["--after"])

    def show(result: Result, folder: Path) -> None:
        if not any(leg.repetitions for leg in result.legs):
            return
        done = report(result, request, domain, takes_over.servers, 1 / per_second, takes_over.max_outage)
        if given["json"]:
            console.document(done.model_dump())
        else:
            _show(done, folder)

    code = execute(
        chosen.experiment,
        chosen.folder,
        outputs(given | {"quiet": True}),
        place=chosen.place,
        watch=[breaks] if command else (),
        show=show,
    )
    breaks.end()
    raise typer.Exit(code)


def _show(done: Report, folder: Path) -> None:
    rows = [
        (one.name, f"{one.answers:,}", f"{one.failed:,} × {one.error}" if one.failed else "none")
        for one in done.servers
    ]
    console.table(["server", "answers with 2xx", "requests that it failed"], rows)
    console.line("")
    told = f"{done.served:,} served, {done.rejected:,} rejected, {done.failed:,} failed"
    console.line(f"{done.requests:,} requests: {told}; {done.moved:,} answered by another server")
    if done.dropped:
        console.note(f"{done.dropped:,} calls were up when their server failed: no server took their BYE")
    if done.slowest is not None:
        console.line(f"slowest request: {done.slowest * 1e3:,.0f} ms")
    if done.outage is None:
        console.line("outage: none")
    else:
        one = done.outage
        lasted = "not over at the end" if one.length is None else f"{one.length:,.3f} s"
        console.line(
            f"outage: {lasted}, from {one.begin:,.1f} s on; {one.requests:,} requests fell due in it"
        )
    console.line(f"report: {folder / 'report.html'}")
    for reason in done.invalid:
        console.line(f"INVALID: {reason}")
    for reason in done.reasons:
        console.line(f"FAIL: {reason}")
    if done.verdict == "pass" and not done.invalid:
        console.line("PASS")
