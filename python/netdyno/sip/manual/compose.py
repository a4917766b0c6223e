"""A request from parameters: what every request must have is added, what the user gives takes its place."""

from __future__ import annotations

import re
import secrets
from collections.abc import Sequence
from dataclasses import dataclass

from netdyno.errors import Error
from netdyno.sip.manual.message import SipMessage, same

_TOKEN = re.compile(r"[A-Za-z0-9.!%*_+`'~-]{1,64}")
_CONTACT = ("INVITE", "REGISTER", "SUBSCRIBE", "REFER", "UPDATE", "PUBLISH", "NOTIFY", "OPTIONS")


@dataclass(frozen=True)
class Draft:
    """What a user says of a request."""

    method: str
    uri: str
    """Request-URI."""
    sender: str
    """URI of From."""
    to: str
    """URI of To."""
    headers: Sequence[tuple[str, str]] = ()
    """Header fields; one that a request has anyway is replaced, an empty value removes it."""
    body: bytes = b""
    content_type: str = "text/plain"
    sdp: bool = False
    expires: int | None = None


def branch() -> str:
    """A branch (RFC 3261 section 8.1.1.7)."""
    return f"z9hG4bK{secrets.token_hex(12)}"


def via(transport: str, local: str, value: str) -> str:
    """Our Via."""
    return f"SIP/2.0/{transport.upper()} {local};branch={value};rport"


def contact(sender: str, transport: str, local: str) -> str:
    """Our Contact."""
    user = sender.partition(":")[2].partition("@")[0] or "netdyno"
    # of WebSocket over TLS too (RFC 7118 section 5.2.2)
    name = "ws" if transport == "wss" else transport
    return f"<sip:{user}@{local}{'' if transport == 'udp' else f';transport={name}'}>"


def request(draft: Draft, transport: str, local: str) -> SipMessage:
    """The request as it leaves."""
    if not _TOKEN.fullmatch(draft.method):
        raise Error(
            "ND-104-04", f"{draft.method!r} is no method", at="--method", fix="Like OPTIONS or INVITE"
        )
    fields = [
        ("Via", via(transport, local, branch())),
        ("Max-Forwards", "70"),
        ("From", f"<{draft.sender}>;tag={secrets.token_hex(6)}"),
        ("To", f"<{draft.to}>"),
        ("Call-ID", secrets.token_hex(12)),
        ("CSeq", f"1 {draft.method}"),
    ]
    if draft.method in _CONTACT:
        fields.append(("Contact", contact(draft.sender, transport, local)))
    if draft.expires is not None:
        fields.append(("Expires", str(draft.expires)))
    fields.append(("User-Agent", "netdyno"))
    body, kind = draft.body, draft.content_type
    if draft.sdp:
        body, kind = session(local), "application/sdp"
    if body:
        fields.append(("Content-Type", kind))
    fields.append(("Content-Length", str(len(body))))
    made = SipMessage(f"{draft.method} {draft.uri} SIP/2.0", fields, body)
    _add_user_headers(made, draft.headers)
    return made


def _add_user_headers(made: SipMessage, headers: Sequence[tuple[str, str]]) -> None:
    """Header fields of the user: the first of a name replaces ours, further ones are added."""
    ours = [name for name, _ in made.fields]
    replaced: list[str] = []
    for name, value in headers:
        if not _TOKEN.fullmatch(name):
            raise Error("ND-104-04", f"{name!r} is no name of a header field", at="--header")
        if not value:
            made.drop(name)
        elif any(same(name, one) for one in ours) and not any(same(name, one) for one in replaced):
            made.put(name, value)
            replaced.append(name)
        else:
            made.fields.insert(len(made.fields) - 1, (name, value))


def session(local: str) -> bytes:
    """A session description: audio that is neither sent nor wanted (RFC 4566)."""
    host = "0.0.0.0" if local.endswith(".invalid") else local.rpartition(":")[0].strip("[]")
    kind = "IP6" if ":" in host else "IP4"
    lines = [
        "v=0", f"o=- 1 1 IN {kind} {host}", "s=-", f"c=IN {kind} {host}", "t=0 0", "m=audio 9 RTP/AVP 0 8",
        "a=rtpmap:0 PCMU/8000", "a=rtpmap:8 PCMA/8000", "a=inactive",
    ]  # fmt: skip
    return "".join(f"{line}\r\n" for line in lines).encode()
