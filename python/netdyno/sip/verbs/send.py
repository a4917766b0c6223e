"""`netdyno sip send`: one request by hand, and what comes back."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from netdyno import reading, units
from netdyno.cli import console, values
from netdyno.cli.options import Json
from netdyno.errors import PASS, THRESHOLD, Error
from netdyno.sip.ladder import text
from netdyno.sip.ladder.arrow import hidden
from netdyno.sip.manual import sending
from netdyno.sip.manual.exchange import Account
from netdyno.sip.manual.sending import BODY, PREVIEWED, SipRequest, Times, account_name, as_written
from netdyno.sip.manual.wire import Wire
from netdyno.sip.uri import TRANSPORTS
from netdyno.sip.verbs import passwords

ANSWER = "like 200, 2xx or 404"


def send(
    server: Annotated[
        str,
        typer.Argument(
            metavar="URI", help="sip:[USER@]HOST[:PORT][;transport=tcp], sips:, or ws://HOST/PATH."
        ),
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
    password: Annotated[str | None, typer.Option(help="Its password.", metavar=passwords.METAVAR)] = None,
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
            help="udp, tcp, tls, ws, wss or sctp. Default: as the URI says, else udp.",
            metavar="NAME",
            parser=values.one_of("--transport", *TRANSPORTS),
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
    passes = _expected_statuses(expect)
    wanted = SipRequest(
        server,
        method,
        uri,
        sender,
        to,
        tuple(header or ()),
        _body(body),
        content_type,
        sdp,
        expires,
        transport,
        as_written(reading.content(raw, BODY), str(raw)) if raw else None,
    )
    credentials = None
    if password is not None:
        credentials = account(password, account_name(auth_user, wanted.origin))
    if dry_run:
        shown = wanted.preview()
        console.note(f"Sent from {PREVIEWED} in this preview; nothing was sent")
        _print(shown)
        return
    times = Times(
        units.seconds(t1),
        units.seconds(timeout) if timeout else 64 * units.seconds(t1),
        units.seconds(hold),
        units.seconds(wait),
    )
    found = sending.send(
        wanted,
        times,
        credentials,
        ca=cacert,
        insecure=insecure,
        source=source,
        told=lambda wire: (lambda _: None) if as_json else _Live(wire).show,
    )
    final = found.final
    passed = final is not None and final.status in passes
    if as_json:
        console.document(found.document() | {"passed": passed})
    if final is None:
        console.note(f"No final response: {found.broken or 'none came in time'}")
    elif not passed:
        console.note(f"The final response is {final.start.removeprefix('SIP/2.0 ')}, not {expect}")
    raise typer.Exit(PASS if passed else THRESHOLD)


class _Live:
    """The ladder, a line as each message comes."""

    def __init__(self, wire: Wire) -> None:
        self.names = [wire.local, wire.remote]
        console.line(text.head(self.names))

    def show(self, arrow: Any) -> None:
        more = [name for name in (arrow.source, arrow.to) if name not in self.names]
        if more:
            self.names += more
            console.line(text.head(self.names))
        console.line(text.line(arrow, self.names))


def _body(given: str | None) -> bytes:
    if given is None:
        return b""
    return reading.content(Path(given[1:]), BODY) if given.startswith("@") else given.encode()


def account(password: str | None, name: str) -> Account | None:
    """Name and password."""
    return Account(name, passwords.read(password)) if password is not None else None


def _expected_statuses(text: str) -> range:
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
