"""A message of a ladder diagram: time, parties, first line, and its text without credentials."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from netdyno.core import redaction
from netdyno.sip.ladder.framing import VERSION, is_response

_DIGEST = rb"\b(?:response|rspauth|auts|ik|ck)\s*=\s*"
_FIELD = rb"(?:Cookie|Set-Cookie|[\w-]{0,64}(?:Api-Key|Token|Secret|Password))"
_VALUE = rb"(?:[^\r\n]|\r?\n[ \t])+"
"""Of a header field: to the end of its line, or of the last line that continues it."""
_SECRETS: tuple[tuple[tuple[bytes, ...], bytes], ...] = (
    (
        (b"response", b"rspauth", b"auts", b"ik", b"ck"),
        rb"(" + _DIGEST + rb'")(?:[^"\\]|\\.)*|(' + _DIGEST + rb")(?!\")[^\s,;]+",
    ),
    ((b"authorization",), rb"(^(?:Proxy-)?Authorization\s*:\s*(?!Digest\b)\S+)" + _VALUE),
    # header fields of a URI (RFC 3261 section 19.1.1)
    ((b"?", b"&"), rb"([?&](?:(?:Proxy-)?Authorization|" + _FIELD + rb")=)[^&>\s\"]+"),
    ((b"sip:", b"sips:"), rb"(\bsips?:[^@\s:;>]{1,256}:)[^@\s>]{1,1024}(?=@)"),
    ((b"passw", b"pwd"), rb"(;\s*(?:password|passwd|pwd)\s*=\s*)[^;@>\s,?]+"),
    # keys of SRTP (RFC 4568, 5939) and MIKEY (RFC 4567), passwords of ICE (RFC 8839)
    ((b"inline:", b"ice-pwd:"), rb"(\b(?:inline|ice-pwd):)[^\r\n]+"),
    ((b"key-mgmt:",), rb"(\bkey-mgmt:\S+[ \t]+)[^\r\n]+"),
    ((b"k=",), rb"(^k=)[^\r\n]+"),
    ((b"</",), rb"(<(?:[\w-]{1,64}:)?(?:password|passwd|pwd|secret|token)>)[^<]+"),
    (
        (b"cookie", b"api-key", b"token", b"secret", b"password"),
        rb"(^" + _FIELD + rb"[ \t]*:[ \t]*)" + _VALUE,
    ),
)
"""What stands before a secret, and words one of which a message with it has: most messages have none."""
_PATTERNS = [(words, re.compile(text, re.IGNORECASE | re.MULTILINE)) for words, text in _SECRETS]
_CSEQ = re.compile(rb"^CSeq\s*:\s*\d+\s+(\S+)", re.IGNORECASE | re.MULTILINE)
HIDDEN = b"(hidden)"


def _shown(text: str) -> str:
    return hidden(text.encode("utf-8", "replace")).decode()


Shown = Annotated[str, AfterValidator(_shown)]
"""Words of a message, without its secrets."""


class Arrow(BaseModel):
    """A message between two parties, as it may be shown."""

    model_config = ConfigDict(populate_by_name=True)

    at_ms: float
    source: str = Field(alias="from")
    to: str
    summary: Shown
    text: Shown
    again: bool


def hidden(message: bytes) -> bytes:
    """A message without secrets that the program was told, and without what is one by its place.

    By their place: digest responses, other credentials, passwords in URIs, keys of SRTP and IMS.
    """

    def keep(found: re.Match[bytes]) -> bytes:
        before = next(part for part in found.groups() if part is not None)
        return before + (b" " if before[-1:] not in b'"=: >' else b"") + HIDDEN

    known = redaction.hide_known(message.decode("utf-8", "surrogateescape"))
    message = known.encode("utf-8", "surrogateescape")
    folded = message.lower()
    for words, pattern in _PATTERNS:
        if any(word in folded for word in words):
            message = pattern.sub(keep, message)
    return message


def summary(message: bytes) -> str:
    """Start line without the SIP version; behind a status the method of CSeq."""
    line = message.split(b"\r\n", 1)[0].split(b"\n", 1)[0]
    if not is_response(line):
        version = line[-len(VERSION) :].lower() == VERSION.lower()
        return (line[: -len(VERSION)] if version else line).decode("utf-8", "replace")
    status = line[len(VERSION) :].decode("utf-8", "replace").strip()
    head = message.split(b"\r\n\r\n", 1)[0]
    method = _CSEQ.search(head)
    return f"{status} ({method[1].decode('utf-8', 'replace')})" if method else status


def arrow(at_ms: float, source: str, to: str, message: bytes, again: bool) -> Arrow:
    """The arrow of a message as it was on the wire."""
    plain = {
        "at_ms": at_ms,
        "from": source,
        "to": to,
        "summary": summary(message),
        "text": message.decode("utf-8", "replace"),
        "again": again,
    }
    return Arrow.model_validate(plain)
