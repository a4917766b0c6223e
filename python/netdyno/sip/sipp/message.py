"""Messages of SIPp's <send>: what our user agents set themselves is left to them, the rest is kept."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Any

from netdyno.sip.manual.message import COMPACT
from netdyno.sip.sipp.keywords import is_last, keywords, places, whole_field, whole_variable

OWN = {
    "via", "from", "to", "call-id", "cseq", "max-forwards", "route", "record-route", "contact",
    "content-length", "content-type", "authorization", "proxy-authorization", "expires", "user-agent",
}  # fmt: skip
"""Header fields that our user agents set themselves."""
_REMOTE = re.compile(r"sips?:(?:(?P<user>[^@;]*)@)?\[remote_ip\](?::\[remote_port\])?(?:;[^?]*)?")
_ADDRESS = re.compile(r"sips?:(?:(?P<user>[^@;>]*)@)?(?P<host>\[[^\]]*\]|[^:;>\s]*)")
_AUTHENTICATION = re.compile(r"\[authentication((?:\[[^\]]*\]|[^\[\]])*)\]")
_PARAMETER = re.compile(r"(\w+)=((?:\[[^\]]*\]|[^\s\[\]])*)")
LOGIN = ("username", "password")
"""Parameters of [authentication]."""
_LOCAL = ("[local_ip]", "[remote_ip]", "[remote_host]")
"""Hosts in From that stand for whatever a user agent writes there."""


@dataclass
class Sent:
    """A message to send."""

    method: str = ""
    """Of a request."""
    status: int = 0
    """Of a response."""
    reason: str = ""
    uri: str | None = None
    """Request-URI that is not simply a user at the server."""
    callee: str | None = None
    """User of the Request-URI."""
    caller: str | None = None
    """User of From."""
    headers: dict[str, str] = field(default_factory=dict)
    body: str | None = None
    content_type: str | None = None
    sdp: bool = False
    codecs: tuple[str, ...] = ()
    """Of its session description: payload types, the preferred one first."""
    expires: int | None = None
    authenticates: bool = False
    login: dict[str, str] = field(default_factory=dict)
    """`username` and `password` of [authentication]."""
    notes: list[str] = field(default_factory=list)
    """Contents that are not sent."""


def read(
    text: str,
    table: str,
    unknown: Callable[[str], None],
    bodies: Collection[str] = frozenset(),
    accounts: Collection[str] = frozenset(),
) -> Sent:
    """The message of a <send>.

    `bodies` are names of values that are a body with its type, `accounts` columns of [authentication …].
    """
    lines = [line.strip() for line in text.strip().splitlines()]
    head, body = lines, list[str]()
    if "" in lines:
        at = lines.index("")
        head, body = lines[:at], lines[at + 1 :]
    made = Sent()
    _start(made, head[0] if head else "", table, unknown)
    for line in head[1:]:
        if (name := whole_variable(line)) in bodies:
            made.body, made.content_type = f"{{response.{name}}}", "application/sdp"
            continue
        if (column := whole_field(line)) and column in accounts:
            made.authenticates = True
            made.login = {name: f"{{{table}.{account_column(column, name)}}}" for name in LOGIN}
            continue
        _field(made, line, table, unknown)
    if any(body):
        _body(made, body, table, unknown)
    return made


def _start(made: Sent, line: str, table: str, unknown: Callable[[str], None]) -> None:
    words = line.split()
    if words[:1] == ["SIP/2.0"] and len(words) > 1 and words[1].isdigit():
        made.status, made.reason = int(words[1]), " ".join(words[2:])
        return
    if len(words) != 3 or words[2] != "SIP/2.0":
        unknown(line)
        return
    made.method, uri = words[0], words[1]
    if uri == "[next_url]":
        return
    if found := _REMOTE.fullmatch(uri):
        made.callee = _user(found["user"], table, unknown) if found["user"] else None
    elif made.method in ("ACK", "BYE", "CANCEL"):
        # requests of the call go to where its answers came from
        pass
    else:
        made.uri = places(uri, table, unknown)


def _user(text: str, table: str, unknown: Callable[[str], None]) -> str:
    return "service" if text == "[service]" else places(text, table, unknown)


def _field(made: Sent, line: str, table: str, unknown: Callable[[str], None]) -> None:
    names = keywords(line)
    if line.startswith("[authentication"):
        made.authenticates = True
        made.login = {name: places(value, table, unknown) for name, value in login(line).items()}
        return
    if names and line.startswith("[") and (is_last(names[0]) or names[0] == "routes"):
        # what a response repeats, and the route set, are the user agent's
        return
    name, colon, value = line.partition(":")
    if not colon:
        unknown(line)
        return
    name, value = COMPACT.get(name.strip().lower(), name.strip()), value.strip()
    match name.lower():
        case "from":
            found = _ADDRESS.search(value)
            if found and found["user"]:
                made.caller = _user(found["user"], table, lambda _: None)
            if found and found["host"] not in _LOCAL:
                made.notes.append(f"of From the user alone is sent, not {found['host']}: see --domain")
        case "expires" if value.isdigit():
            made.expires = int(value)
        case "content-type":
            made.content_type = value
        case lower if lower not in OWN:
            made.headers[name] = places(value, table, unknown)


def login(text: str) -> dict[str, str]:
    """User name and password of an [authentication …] that a text begins with."""
    found = _AUTHENTICATION.match(text)
    return {name: value for name, value in _PARAMETER.findall(found[1]) if name in LOGIN} if found else {}


def account_column(column: str, name: str) -> str:
    """The column of our table with the user name or password of SIPp's."""
    return f"{column}_{name}"


def _body(made: Sent, lines: list[str], table: str, unknown: Callable[[str], None]) -> None:
    while lines and not lines[-1]:
        lines.pop()
    if (made.content_type or "").lower().startswith("application/sdp") or lines[0] == "v=0":
        made.sdp, made.content_type = True, None
        audio = next((line.split() for line in lines if line.startswith("m=audio ")), [])
        made.codecs = tuple(audio[3:])
        made.notes.append("its SDP is not sent: user agents make their own, inactive without `media`")
        return
    made.body = places("\r\n".join(lines), table, unknown)


def step(sent: Sent) -> dict[str, Any]:
    """The step that sends it."""
    if sent.status:
        answer: dict[str, Any] = {"status": sent.status}
        if sent.reason:
            answer["reason"] = sent.reason
        if sent.headers:
            answer["headers"] = sent.headers
        if sent.sdp:
            answer["sdp"] = True
        elif sent.body:
            answer["body"] = sent.body
            if sent.content_type:
                answer["content_type"] = sent.content_type
        return {"answer": answer}
    send: dict[str, Any] = {"method": sent.method}
    if sent.uri:
        send["uri"] = sent.uri
    if sent.headers:
        send["headers"] = sent.headers
    if sent.sdp:
        send["sdp"] = True
    elif sent.body:
        send["body"] = sent.body
        if sent.content_type:
            send["content_type"] = sent.content_type
    if sent.expires is not None and sent.method in ("REGISTER", "SUBSCRIBE", "PUBLISH"):
        send["expires"] = f"{sent.expires}s"
    return {"send": send}
