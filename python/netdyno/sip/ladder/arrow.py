"""A message of a ladder diagram: time, parties, first line, and its text without credentials."""

from __future__ import annotations

import re

from pydantic import BaseModel, ConfigDict, Field

from netdyno.sip.ladder.framing import VERSION, is_response

_SECRETS: tuple[tuple[tuple[bytes, ...], bytes], ...] = (
    ((b"response",), rb'(\bresponse\s*=\s*")[^"]*|(\bresponse\s*=\s*)(?!\")[^\s,;]+'),
    ((b"authorization",), rb"(^(?:Proxy-)?Authorization\s*:\s*(?!Digest\b)\S+)[^\r\n]+"),
    ((b"sip:", b"sips:"), rb"(\bsips?:[^@\s:;>]{1,256}:)[^@\s>]{1,1024}(?=@)"),
    ((b"a=crypto:",), rb"(^a=crypto:\S+\s+\S+\s+inline:)[^\r\n]+"),
    ((b"k=",), rb"(^k=)[^\r\n]+"),
    (
        (b"cookie", b"api-key", b"token", b"secret", b"password"),
        rb"(^(?:Cookie|Set-Cookie|[\w-]{0,64}(?:Api-Key|Token|Secret|Password))[ \t]*:[ \t]*)[^\r\n]+",
    ),
)
"""What stands before a secret, and words one of which a message with it has: most messages have none."""
_PATTERNS = [(words, re.compile(text, re.IGNORECASE | re.MULTILINE)) for words, text in _SECRETS]
_CSEQ = re.compile(rb"^CSeq\s*:\s*\d+\s+(\S+)", re.IGNORECASE | re.MULTILINE)
HIDDEN = b"(hidden)"


class Arrow(BaseModel):
    """A message between two parties."""

    model_config = ConfigDict(populate_by_name=True)

    at_ms: float
    source: str = Field(alias="from")
    to: str
    summary: str
    text: str
    again: bool


def hidden(message: bytes) -> bytes:
    """A message without digest responses, other credentials, passwords in URIs, and SRTP keys."""

    def keep(found: re.Match[bytes]) -> bytes:
        before = next(part for part in found.groups() if part is not None)
        return before + (b" " if before[-1:] not in b'"=: ' else b"") + HIDDEN

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
    safe = hidden(message)
    text = safe.decode("utf-8", "replace")
    plain = {
        "at_ms": at_ms,
        "from": source,
        "to": to,
        "summary": summary(safe),
        "text": text,
        "again": again,
    }
    return Arrow.model_validate(plain)
