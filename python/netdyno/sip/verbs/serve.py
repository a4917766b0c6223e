"""`netdyno sip serve`: a SIP server to test against, with counters."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from prometheus_client import CollectorRegistry

from netdyno import files, units
from netdyno.cli import console, values
from netdyno.cli.options import Json
from netdyno.errors import PASS, Error
from netdyno.export import prometheus
from netdyno.sip.metrics import ServerMetrics
from netdyno.sip.server import SipServer
from netdyno.sip.verbs import passwords

TLS, WEBSOCKET = "TLS", "WebSocket"
NAMES = {"tls": "TLS", "ws": "WebSocket", "wss": "WebSocket over TLS", "rtp": "echo of RTP"}
FAULTS = "A purpose of `netdyno sip conformance`, like P04, whose rule it breaks."


def serve(
    role: Annotated[
        str,
        typer.Argument(
            help="proxy, redirect or uas; each is a registrar too.",
            metavar="ROLE",
            parser=values.one_of("ROLE", "proxy", "redirect", "uas"),
        ),
    ] = "proxy",
    listen: Annotated[
        str, typer.Option(help="Address and port, over UDP and TCP.", metavar="ADDRESS:PORT")
    ] = "127.0.0.1:5060",
    tls_cert: Annotated[
        Path | None,
        typer.Option(
            help="Serve TLS with this certificate (PEM). Default: no TLS.",
            metavar="FILE",
            rich_help_panel=TLS,
        ),
    ] = None,
    tls_key: Annotated[
        Path | None,
        typer.Option(
            help="Its key (PEM). Default: in the file of the certificate.",
            metavar="FILE",
            rich_help_panel=TLS,
        ),
    ] = None,
    tls_self_signed: Annotated[
        Path | None,
        typer.Option(
            help="Serve TLS with a certificate made for the address, kept in this file. Default: no TLS.",
            metavar="FILE",
            rich_help_panel=TLS,
        ),
    ] = None,
    tls_listen: Annotated[
        str | None,
        typer.Option(
            help="Address and port of TLS. Default: the port above that of --listen.",
            metavar="ADDRESS:PORT",
            rich_help_panel=TLS,
        ),
    ] = None,
    tls_client_ca: Annotated[
        Path | None,
        typer.Option(
            help="Clients must show a certificate of these authorities (PEM). Default: none is asked for.",
            metavar="FILE",
            rich_help_panel=TLS,
        ),
    ] = None,
    ws_listen: Annotated[
        str | None,
        typer.Option(
            help="Serve WebSocket at this address and port. Default: none.",
            metavar="ADDRESS:PORT",
            rich_help_panel=WEBSOCKET,
        ),
    ] = None,
    wss_listen: Annotated[
        str | None,
        typer.Option(
            help="Serve WebSocket over TLS, with the certificate of --tls-cert. Default: none.",
            metavar="ADDRESS:PORT",
            rich_help_panel=WEBSOCKET,
        ),
    ] = None,
    domain: Annotated[
        str | None, typer.Option(help="Domain of the users; default: the address.", metavar="NAME")
    ] = None,
    user: Annotated[
        list[str] | None,
        typer.Option(help="A user and its password; repeatable.", metavar=f"NAME={passwords.METAVAR}"),
    ] = None,
    password: Annotated[
        str | None, typer.Option(help="Password of all other users.", metavar=passwords.METAVAR)
    ] = None,
    call_auth: Annotated[bool, typer.Option(help="Challenge calls too, with 407.")] = False,
    delay: Annotated[
        str,
        typer.Option(help="Time to each response.", metavar="TIME", parser=values.time("--delay")),
    ] = "0s",
    ring: Annotated[
        str, typer.Option(help="uas: time from 180 to 200.", metavar="TIME", parser=values.time("--ring"))
    ] = "0s",
    echo: Annotated[
        bool,
        typer.Option("--echo", help="uas: calls have audio, and each RTP packet goes back as it came."),
    ] = False,
    echo_port: Annotated[
        int | None,
        typer.Option(
            help="UDP port of the echo; RTCP is at the next. Default: any that is free.",
            metavar="N",
            parser=values.whole("--echo-port", 1, 65534),
        ),
    ] = None,
    errors: Annotated[
        float | None,
        typer.Option(
            help="Share of requests to reject. Default: none.",
            metavar="SHARE",
            parser=values.share("--errors"),
        ),
    ] = None,
    error_status: Annotated[
        int,
        typer.Option(
            help="Status of rejected requests.", metavar="N", parser=values.whole("--error-status", 300, 699)
        ),
    ] = 503,
    drop: Annotated[
        float | None,
        typer.Option(
            help="Share of received messages to drop. Default: none.",
            metavar="SHARE",
            parser=values.share("--drop"),
        ),
    ] = None,
    seed: Annotated[
        int, typer.Option(help="Seed of both shares.", metavar="N", parser=values.whole("--seed", 0))
    ] = 0,
    fault: Annotated[str | None, typer.Option(help=FAULTS, metavar="ID")] = None,
    min_expires: Annotated[
        int,
        typer.Option(
            help="Shortest lifetime of a binding, s.",
            metavar="S",
            parser=values.whole("--min-expires", 0, 3600),
        ),
    ] = 60,
    nonce_lifetime: Annotated[
        str,
        typer.Option(help="Lifetime of nonces.", metavar="TIME", parser=values.time("--nonce-lifetime")),
    ] = "300s",
    accept_aliases: Annotated[
        bool,
        typer.Option(
            "--accept-aliases",
            help="Over TCP, too, reuse connections by `alias` in Via (RFC 5923). Default: over TLS alone.",
        ),
    ] = False,
    t1: Annotated[
        str, typer.Option(help="T1 of RFC 3261.", metavar="TIME", parser=values.time("--t1"))
    ] = "500ms",
    duration: Annotated[
        str | None,
        typer.Option(
            help="End after this time. Default: at Ctrl-C.", metavar="TIME", parser=values.time("--duration")
        ),
    ] = None,
    metrics: Annotated[
        str | None,
        typer.Option("--prometheus", help="Serve counters to Prometheus.", metavar="ADDRESS:PORT"),
    ] = None,
    as_json: Json = False,
) -> None:
    """Serve SIP to test against: a registrar with a proxy, a redirect server or a user agent that answers.

    It counts what it receives and sends, as a witness of a load, and prints that at its end. It can answer
    late, reject or drop a share, or break one rule of RFC 3261. It listens until Ctrl-C or --duration.

        netdyno sip serve proxy --domain example.net --password env:SIP_PASSWORD
        netdyno sip serve uas --listen 192.0.2.1:5060 --ring 1s --errors 1%
        netdyno sip serve uas --listen 192.0.2.1:5060 --echo --echo-port 40000
        netdyno sip serve redirect --fault D01 --duration 60s --json
        netdyno sip serve proxy --tls-cert server.pem --tls-key server.key
    """
    if (echo or echo_port) and role != "uas":
        what = f"a {role} sends calls on and has no audio of its own"
        raise Error("ND-104-07", what, at="--echo" if echo else "--echo-port", fix="Serve a uas")
    if echo_port and not echo:
        raise Error("ND-104-03", "there is no echo", at="--echo-port", fix="Add --echo")
    settings: dict[str, Any] = {
        "listen": listen,
        "tls": _tls(listen, tls_cert, tls_key, tls_self_signed, tls_listen, tls_client_ca),
        "ws": ws_listen,
        "wss": wss_listen,
        "role": role,
        "domain": domain or listen.rpartition(":")[0].strip("[]"),
        "users": [_user(one) for one in user or ()],
        "password": passwords.read(password) if password else None,
        "call_auth": call_auth,
        "delay_ms": round(units.seconds(delay) * 1000),
        "ring_ms": round(units.seconds(ring) * 1000),
        "echo": (echo_port or 0) if echo else None,
        "error_share": errors or 0.0,
        "error_status": error_status,
        "drop_share": drop or 0.0,
        "seed": seed,
        "fault": fault,
        "min_expires": min_expires,
        "nonce_lifetime_ms": round(units.seconds(nonce_lifetime) * 1000),
        "accept_aliases": accept_aliases,
        "t1_ms": round(units.seconds(t1) * 1000),
    }
    if tls_self_signed:
        files.check_place(tls_self_signed)
    exported = ServerMetrics()
    if metrics:
        registry = CollectorRegistry()
        registry.register(exported)
        prometheus.serve(metrics, registry)
    server = SipServer(settings, exported.update)
    with server:
        if tls_self_signed:
            files.write(tls_self_signed, server.certificate, shared=True)
        further = [(where, name) for name, where in server.addresses.items() if name != "address"]
        also = "".join(f"; {where}, {NAMES[name]}" for where, name in further)
        words = f"{role} on {server.address}, UDP and TCP{also}; domain {settings['domain']}"
        server.serve(units.seconds(duration) if duration else None, lambda: console.note(words))
    counters = dict(server.counters)
    if as_json:
        console.document({"role": role, "counters": counters})
    else:
        console.table(["counter", "value"], list(_rows(counters)), right=["value"])
    raise typer.Exit(PASS)


def _tls(
    listen: str,
    cert: Path | None,
    key: Path | None,
    self_signed: Path | None,
    at: str | None,
    client_ca: Path | None,
) -> dict[str, Any] | None:
    """TLS as the server has it; none without a certificate."""
    if cert is None and self_signed is None:
        for option, value in (("--tls-key", key), ("--tls-listen", at), ("--tls-client-ca", client_ca)):
            if value is not None:
                fix = "Add --tls-cert FILE, or --tls-self-signed FILE"
                raise Error("ND-104-07", "there is no certificate", at=option, fix=fix)
        return None
    host, _, port = listen.rpartition(":")
    above = int(port) + 1 if port.isdigit() and int(port) else 0
    if above > 65535 and at is None:
        raise Error("ND-104-07", f"no port is above {port}", at="--listen", fix="Add --tls-listen")
    named = {"cert": cert, "key": key, "client_ca": client_ca}
    given: dict[str, Any] = {name: str(path.absolute()) for name, path in named.items() if path}
    identity = {"self_signed": self_signed is not None, **given}
    return {"listen": at or f"{host}:{above}", "identity": identity}


def _user(text: str) -> dict[str, str]:
    name, equals, where = text.partition("=")
    if not equals or not name:
        raise Error("ND-104-04", f"{text!r} is not NAME=env:NAME", at="--user", fix="Like alice=env:WORD")
    return {"name": name, "password": passwords.read(where, "--user")}


def _rows(counters: dict[str, Any]) -> Any:
    for name, value in counters.items():
        if isinstance(value, dict):
            yield from ((f"{name} {key}", f"{count:,}") for key, count in value.items())
        elif value or name in ("bindings", "registrations"):
            yield name, f"{value:,}"
