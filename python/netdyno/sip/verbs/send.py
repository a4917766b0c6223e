"""`netdyno sip send`: one request by hand, and what comes back."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from netdyno import reading, units
from netdyno.cli import console, values
from netdyno.cli.options import Json
from netdyno.core import secret
from netdyno.errors import PASS, THRESHOLD, Error
from netdyno.sip.ladder import text
from netdyno.sip.ladder.arrow import hidden
from netdyno.sip.manual.compose import Draft, request
from netdyno.sip.manual.exchange import Account, Exchange
from netdyno.sip.manual.message import SipMessage
from netdyno.sip.manual.wire import Wire
from netdyno.sip.uri import parse
from netdyno.sip.verbs.options import header_fields

BODY = 60_000
"""Bytes of a body: what a datagram holds beside the head."""
ANSWER = "like 200, 2xx or 404"


def send(
    server: Annotated[
        str, typer.Argument(metavar="URI", help="sip:[USER@]HOST[:PORT][;transport=tcp], or sips:.")
    ],
    method: Annotated[str, typer.Option(help="Method, like OPTIONS or INVITE.", metavar="NAME")] = "OPTIONS",
    uri: Annotated[
        str | None, typer.Option("--request-uri", help="Request-URI; default: URI.", metavar="URI")
    ] = None,
    sender: Annotated[
        str | None, typer.Option("--from", help="URI of From; default: sip:netdyno@HOST.", metavar="URI")
    ] = None,
    to: Annotated[
        str | None, typer.Option(help="URI of To; default: the Request-URI.", metavar="URI")
    ] = None,
    header: Annotated[
        list[str] | None,
        typer.Option(
            "--header",
            "-H",
            help="Add a header field, or replace it; an empty value removes it.",
            metavar="'NAME: VALUE'",
        ),
    ] = None,
    body: Annotated[str | None, typer.Option(help="Body; @FILE reads one.", metavar="TEXT|@FILE")] = None,
    content_type: Annotated[str, typer.Option(help="Type of the body.", metavar="TYPE")] = "text/plain",
    sdp: Annotated[bool, typer.Option(help="Offer audio, as the body.")] = False,
    expires: Annotated[
        int | None,
        typer.Option(help="Expires, in seconds.", metavar="S", parser=values.whole("--expires", 0)),
    ] = None,
    raw: Annotated[
        Path | None,
        typer.Option(help="Send this message as it is; LF become CRLF.", metavar="FILE"),
    ] = None,
    auth_user: Annotated[
        str | None, typer.Option(help="User for digest; default: that of From.", metavar="NAME")
    ] = None,
    password: Annotated[
        str | None, typer.Option(help="Its password, by reference.", metavar="env:NAME|file:PATH")
    ] = None,
    hold: Annotated[
        str, typer.Option(help="Time from ACK to BYE.", metavar="TIME", parser=values.time("--hold"))
    ] = "0s",
    wait: Annotated[
        str,
        typer.Option(
            help="Answer the other side's requests for this long after the final response.",
            metavar="TIME",
            parser=values.time("--wait"),
        ),
    ] = "0s",
    expect: Annotated[str, typer.Option(help="Final response that passes.", metavar="STATUS")] = "2xx",
    t1: Annotated[
        str, typer.Option(help="First retransmission (T1).", metavar="TIME", parser=values.time("--t1"))
    ] = "500ms",
    timeout: Annotated[
        str | None,
        typer.Option(
            help="Longest wait for the final response; default: 64 T1.",
            metavar="TIME",
            parser=values.time("--timeout"),
        ),
    ] = None,
    transport: Annotated[
        str | None,
        typer.Option(
            help="udp, tcp or tls. Default: as the URI says, else udp.",
            metavar="NAME",
            parser=values.one_of("--transport", "udp", "tcp", "tls"),
        ),
    ] = None,
    source: Annotated[str | None, typer.Option(help="Address to send from.", metavar="ADDRESS")] = None,
    cacert: Annotated[
        Path | None, typer.Option(help="CA of the server's certificate.", metavar="FILE")
    ] = None,
    insecure: Annotated[bool, typer.Option(help="Do not verify the server's certificate.")] = False,
    dry_run: Annotated[bool, typer.Option(help="Print the message, and send nothing.")] = False,
    as_json: Json = False,
) -> None:
    """Compose one SIP request, send it, and show all messages as a ladder while they come.

    The request has what RFC 3261 asks for, and what options add or replace. Over UDP it is sent again
    until a response comes. A challenge is answered with --password; a 200 to INVITE gets its ACK, and BYE
    after --hold.

    Exit code: 0 where the final response is as --expect says, else 99.

        netdyno sip send sip:192.0.2.1
        netdyno sip send sip:alice@example.net --method MESSAGE --body hello
        netdyno sip send sip:example.net --method REGISTER --from sip:alice@example.net --password env:WORD
        netdyno sip send 'sip:bob@192.0.2.1;transport=tcp' --method INVITE --sdp --hold 2s -H 'Subject: test'
    """
    where = parse(server, transport)
    wanted = _wanted(expect)
    name, domain = f"{where.user}@" if where.user else "", where.host
    scheme = "sips" if where.transport == "tls" else "sip"
    registers = method == "REGISTER"
    port = f":{where.port}" if where.port and not where.user else ""
    target = uri or f"{scheme}:{'' if registers else name}{domain}{port}"
    sender = sender or f"{scheme}:{name if registers and name else 'netdyno@'}{domain}"
    account = _account(password, auth_user, sender)
    draft = Draft(
        method,
        _uri(target, "--request-uri"),
        _uri(sender, "--from"),
        _uri(to or (sender if registers else target), "--to"),
        tuple(header_fields(header or [])),
        _body(body, sdp),
        content_type,
        sdp,
        expires,
    )
    if dry_run:
        local = "192.0.2.99:5060"
        console.note(f"Sent from {local} in this preview; nothing was sent")
        _print(_written(raw) if raw else request(draft, where.transport, local).data())
        return
    patience = units.seconds(timeout) if timeout else 64 * units.seconds(t1)
    wire = Wire(where, patience, cacert, insecure, source)
    live = _Live(wire) if not as_json else None
    exchange = Exchange(
        wire,
        account,
        units.seconds(t1),
        timeout=patience,
        hold=units.seconds(hold),
        wait=units.seconds(wait),
        told=live.show if live else lambda _: None,
    )
    broken = ""
    try:
        message = SipMessage.read(_written(raw)) if raw else None
        final = exchange.run(message or request(draft, where.transport, wire.local))
    except OSError as e:
        final, broken = None, str(e)
    finally:
        wire.close()
    passed = final is not None and final.status in wanted
    if as_json:
        console.document(
            {
                "server": wire.remote,
                "transport": where.transport,
                "status": final.status if final else None,
                "passed": passed,
                "messages": [one.model_dump(by_alias=True) for one in exchange.arrows],
            }
        )
    if final is None:
        console.note(f"No final response: {broken or 'none came in time'}")
    elif not passed:
        console.note(f"The final response is {final.start.removeprefix('SIP/2.0 ')}, not {expect}")
    raise typer.Exit(PASS if passed else THRESHOLD)


class _Live:
    """The ladder, a line as each message comes."""

    def __init__(self, wire: Wire) -> None:
        self.names = [wire.local, wire.remote]
        console.line(text.head(self.names))

    def show(self, arrow: Any) -> None:
        console.line(text.line(arrow, self.names))


def _uri(text: str, option: str) -> str:
    if any(c in text for c in " <>\r\n\t") or ":" not in text:
        raise Error("ND-104-04", f"{text!r} is no URI", at=option, fix="Like sip:alice@example.net")
    return text


def _body(text: str | None, sdp: bool) -> bytes:
    if text is None:
        return b""
    if sdp:
        raise Error("ND-104-07", "both are the body", at="--body and --sdp", fix="Keep one of them")
    data = reading.content(Path(text[1:]), BODY) if text.startswith("@") else text.encode()
    if len(data) > BODY:
        raise Error("ND-104-32", f"the body is longer than {BODY:,} bytes", at="--body")
    return data


def _written(path: Path) -> bytes:
    """A message as a user wrote it."""
    data = reading.content(path, BODY)
    data = data.replace(b"\r\n", b"\n").replace(b"\n", b"\r\n")
    if b"\r\n\r\n" not in data:
        data = data.rstrip(b"\r\n") + b"\r\n\r\n"
    if b" SIP/2.0\r\n" not in data[:8192]:
        fix = "Begin with a request line, like OPTIONS sip:example.net SIP/2.0"
        raise Error("ND-104-04", "it is no SIP request", at=str(path), fix=fix)
    return data


def _account(password: str | None, user: str | None, sender: str) -> Account | None:
    if password is None:
        return None
    if password.partition(":")[0] not in ("env", "file"):
        fix = "Name it as env:NAME or file:PATH: others can read the arguments of a command"
        raise Error("ND-104-60", "a password is not written on the command line", at="--password", fix=fix)
    name = user or sender.partition(":")[2].partition("@")[0]
    if not name:
        raise Error("ND-104-03", "no user is named for the password", at="--auth-user", fix="Or give --from")
    return Account(name, secret.given(password, "--password"))


def _wanted(text: str) -> range:
    digits = text.lower()
    if len(digits) == 3 and digits[0] in "23456":
        if digits[1:] == "xx":
            return range(int(digits[0]) * 100, int(digits[0]) * 100 + 100)
        if digits.isdecimal():
            return range(int(digits), int(digits) + 1)
    raise Error("ND-104-04", f"{text!r} is no final status", at="--expect", fix=f"Write it {ANSWER}")


def _print(data: bytes) -> None:
    for line in hidden(data).decode("utf-8", "replace").replace("\r", "").split("\n"):
        console.line(line)
