"""One request by hand, from parameters to the ladder: what the command line and the dashboard do alike."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from netdyno.errors import Error
from netdyno.sip.ladder.arrow import Arrow
from netdyno.sip.manual.compose import Draft, request
from netdyno.sip.manual.exchange import Account, Exchange
from netdyno.sip.manual.message import SipMessage
from netdyno.sip.manual.wire import Wire
from netdyno.sip.uri import Server, parse

BODY = 60_000
"""Bytes of a body: what a datagram holds beside the head."""
PREVIEWED = "192.0.2.99:5060"
"""Where a request is sent from in a preview."""


@dataclass(frozen=True)
class SipRequest:
    """A request as somebody says it; what is left out is as RFC 3261 asks for."""

    server: str
    method: str = "OPTIONS"
    uri: str | None = None
    """Request-URI; default: the server's."""
    sender: str | None = None
    to: str | None = None
    headers: tuple[str, ...] = ()
    """`NAME: VALUE`."""
    body: bytes = b""
    content_type: str = "text/plain"
    sdp: bool = False
    expires: int | None = None
    transport: str | None = None
    raw: bytes | None = None
    """In place of all of them but the server: the message as it is."""

    @property
    def where(self) -> Server:
        """The server."""
        return parse(self.server, self.transport)

    @property
    def url(self) -> str:
        """The Request-URI."""
        where = self.where
        name = f"{where.user}@" if where.user and self.method != "REGISTER" else ""
        port = f":{where.port}" if where.port and not where.user else ""
        return self.uri or f"{self._scheme}:{name}{where.host}{port}"

    @property
    def origin(self) -> str:
        """The URI of From."""
        where = self.where
        name = f"{where.user}@" if where.user and self.method == "REGISTER" else "netdyno@"
        return self.sender or f"{self._scheme}:{name}{where.host}"

    @property
    def _scheme(self) -> str:
        return "sips" if self.where.transport == "tls" else "sip"

    def message(self, local: str) -> SipMessage:
        """The message as it leaves from an address and port of ours."""
        return SipMessage.read(self.raw) if self.raw else request(self.draft(), self.where.transport, local)

    def preview(self) -> bytes:
        """The message as it would leave from `PREVIEWED`."""
        return self.raw or self.message(PREVIEWED).data()

    def draft(self) -> Draft:
        """What is composed, checked."""
        if self.body and self.sdp:
            raise Error("ND-104-07", "both are the body", at="--body and --sdp", fix="Keep one of them")
        if len(self.body) > BODY:
            raise Error("ND-104-32", f"the body is longer than {BODY:,} bytes", at="--body")
        url, origin = _uri(self.url, "--request-uri"), _uri(self.origin, "--from")
        to = _uri(self.to or (origin if self.method == "REGISTER" else url), "--to")
        return Draft(
            self.method,
            url,
            origin,
            to,
            tuple(header_fields(self.headers)),
            self.body,
            self.content_type,
            self.sdp,
            self.expires,
        )


@dataclass(frozen=True)
class Times:
    """How long is waited, seconds."""

    t1: float = 0.5
    timeout: float = 32.0
    hold: float = 0.0
    wait: float = 0.0


@dataclass
class Outcome:
    """The final response of an exchange, and all its messages."""

    server: str
    transport: str
    final: SipMessage | None = None
    broken: str = ""
    """Why there is no final response, where the connection broke."""
    arrows: list[Arrow] = field(default_factory=list)

    def document(self) -> dict[str, Any]:
        """As JSON has it."""
        return {
            "server": self.server,
            "transport": self.transport,
            "status": self.final.status if self.final else None,
            "messages": [one.model_dump(by_alias=True) for one in self.arrows],
        }


def send(
    wanted: SipRequest,
    times: Times,
    account: Account | None = None,
    *,
    ca: Path | None = None,
    insecure: bool = False,
    source: str | None = None,
    told: Callable[[Wire], Callable[[Arrow], None]] = lambda _: lambda _: None,
) -> Outcome:
    """Send it, and wait for its answers. `told` gets the connection once, then each message as it comes."""
    wanted.preview()  # what is wrong with it is said before anything is opened
    wire = Wire(wanted.where, times.timeout, ca, insecure, source)
    exchange = Exchange(
        wire,
        account,
        times.t1,
        timeout=times.timeout,
        hold=times.hold,
        wait=times.wait,
        told=told(wire),
    )
    found = Outcome(wire.remote, wanted.where.transport, arrows=exchange.arrows)
    try:
        found.final = exchange.run(wanted.message(wire.local))
    except OSError as e:
        found.broken = str(e)
    finally:
        wire.close()
    return found


def as_written(data: bytes, at: str) -> bytes:
    """A message as a user wrote it: LF become CRLF."""
    data = data.replace(b"\r\n", b"\n").replace(b"\n", b"\r\n")
    if b"\r\n\r\n" not in data:
        data = data.rstrip(b"\r\n") + b"\r\n\r\n"
    if b" SIP/2.0\r\n" not in data[:8192]:
        fix = "Begin with a request line, like OPTIONS sip:example.net SIP/2.0"
        raise Error("ND-104-04", "it is no SIP request", at=at, fix=fix)
    return data


def account_name(user: str | None, sender: str) -> str:
    """The user whom a password is of."""
    name = user or sender.partition(":")[2].partition("@")[0]
    if not name:
        raise Error("ND-104-03", "no user is named for the password", at="--auth-user", fix="Or give --from")
    return name


def header_fields(texts: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Header fields as `NAME: VALUE`."""
    for text in texts:
        name, colon, value = text.partition(":")
        if not colon or not name.strip() or not value.isprintable():
            fix = "Like -H 'X-Trunk: 7'"
            raise Error("ND-104-22", f"{text!r} is not NAME: VALUE", at="--header", fix=fix)
        yield name.strip(), value.strip()


def _uri(text: str, option: str) -> str:
    if re.search(r"[ <>\r\n\t]", text) or ":" not in text:
        raise Error("ND-104-04", f"{text!r} is no URI", at=option, fix="Like sip:alice@example.net")
    return text
