"""SIP on the dashboard: a request, its preview and its ladder; the ladders of a load from the form."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from netdyno import units
from netdyno.core.result import Result
from netdyno.errors import Error
from netdyno.sip.ladder import drawing, text
from netdyno.sip.ladder.arrow import hidden
from netdyno.sip.manual.exchange import Account
from netdyno.sip.manual.sending import SipRequest, Times, account_name, as_written, send
from netdyno.sip.verbs import traced

LONGEST = 60.0
"""Seconds that each of the times of a request may be."""
AT_ONCE = 4
"""Requests under way."""
TRACED = 3
"""Calls, registrations and failures whose ladders the report has, over UDP and TCP."""
_PLACES = threading.BoundedSemaphore(AT_ONCE)
_TEXTS = ("server", "method", "uri", "from", "to", "body", "content_type", "expires", "transport", "raw")
_TIMES = ("t1", "timeout", "hold", "wait")
_REST = ("headers", "sdp", "insecure", "auth_user", "password")


def preview(body: Mapping[str, Any]) -> dict[str, Any]:
    """The message as it would leave; nothing is sent."""
    wanted = _request(body)
    return {"message": hidden(wanted.preview()).decode("utf-8", "replace").replace("\r", "")}


def exchange(body: Mapping[str, Any]) -> dict[str, Any]:
    """Send it, and wait for its final response: all messages, in words and as a drawing."""
    wanted = _request(body)
    password = body.get("password")
    account = None
    if password:
        account = Account(account_name(_text(body, "auth_user"), wanted.origin), str(password))
    times = Times(**{name: _seconds(body, name) for name in _TIMES if body.get(name)})
    if not _PLACES.acquire(blocking=False):
        what = f"{AT_ONCE} requests of this dashboard wait for their answers"
        raise Error("ND-104-11", what, fix="Wait for one of them")
    try:
        found = send(wanted, times, account, insecure=bool(body.get("insecure")))
    finally:
        _PLACES.release()
    parties = text.parties(found.arrows)
    drawn = drawing.svg(found.arrows, parties, "message", fluid=False) if found.arrows else ""
    return found.document() | {"broken": found.broken, "drawing": drawn}


def capture(made: Mapping[str, Any]) -> dict[str, str] | None:
    """What is captured for ladders; None: packets of this transport cannot be read."""
    if not str(made["targets"]["server"]).startswith(("sip://", "sip+tcp://")):
        return None
    return traced.capture(made, {"capture": False, "fleet": None})


def keep(result: Result, folder: Path) -> None:
    """Put the ladders of a few calls into the report, and drop the rest of the capture."""
    traced.keep(result, folder, TRACED, listens=False)


def _request(body: Mapping[str, Any]) -> SipRequest:
    known = {*_TEXTS, *_TIMES, *_REST}
    if unknown := sorted(body.keys() - known):
        fix = f"There are {', '.join(sorted(known))}"
        raise Error("ND-104-10", f"there is no parameter {unknown[0]!r}", fix=fix)
    headers = body.get("headers") or []
    if not isinstance(headers, list) or not all(isinstance(one, str) for one in headers):
        raise Error("ND-104-10", "headers is no list of texts", at="--header", fix='Give ["NAME: VALUE"]')
    raw, written = _text(body, "raw"), _text(body, "body")
    expires = _text(body, "expires")
    if expires is not None and not expires.isdecimal():
        raise Error("ND-104-04", "it is not a whole number", at="--expires", fix="Give seconds, like 3600")
    return SipRequest(
        _text(body, "server") or "",
        _text(body, "method") or "OPTIONS",
        _text(body, "uri"),
        _text(body, "from"),
        _text(body, "to"),
        tuple(headers),
        (written or "").encode(),
        _text(body, "content_type") or "text/plain",
        bool(body.get("sdp")),
        int(expires) if expires else None,
        _text(body, "transport"),
        as_written(raw.encode(), "--raw") if raw else None,
    )


def _text(body: Mapping[str, Any], key: str) -> str | None:
    value = body.get(key)
    if value is None or value == "":
        return None
    if not isinstance(value, str | int) or isinstance(value, bool) or len(str(value)) > 65_536:
        raise Error("ND-104-10", f"{key} is no text", at=f"--{key.replace('_', '-')}")
    return str(value)


def _seconds(body: Mapping[str, Any], key: str) -> float:
    found = units.seconds(_text(body, key) or "0s")
    if not 0 <= found <= LONGEST:
        raise Error("ND-104-05", "it is too long", at=f"--{key}", fix=f"Use at most {LONGEST:g}s")
    return found
