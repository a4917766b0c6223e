"""SIP messages of a stream: where each ends, by its Content-Length (RFC 3261 section 18.3)."""

from __future__ import annotations

import re
from collections.abc import Iterator

HEAD = 64 * 1024
"""Bytes of a message's head; a stream without an end of one by then is no SIP."""
BODY = 4 << 20
"""Bytes of a message's body."""

START = re.compile(
    rb"[A-Za-z0-9.!%*_+`'~-]{1,64} [^\r\n]{1,8192} SIP/2\.0\r?\n|SIP/2\.0 [1-6]\d\d[ \r\n]", re.IGNORECASE
)
"""The first line of a message."""
VERSION = b" SIP/2.0"
"""Behind a request; in front of a status without its space. In any case (RFC 3261 section 7.1)."""
LWS = rb"(?:[ \t]|\r?\n[ \t])*"
"""What may stand between the colon and the value of a header field: a fold too (RFC 3261 section 7.3.1)."""
_LENGTH = re.compile(
    rb"^(?:Content-Length|l)[ \t]*:" + LWS + rb"(\d{1,9})[ \t]*\r?$", re.IGNORECASE | re.MULTILINE
)


def is_response(message: bytes) -> bool:
    """Whether a message begins with a status."""
    return message[:8].upper() == b"SIP/2.0 "


class Framer:
    """Finds messages in bytes that come in parts."""

    def __init__(self) -> None:
        self.buffer = bytearray()
        self.dead = False
        """The stream is no SIP, or cannot be split."""

    def messages(self, data: bytes = b"") -> Iterator[bytes]:
        """The messages that are whole by now."""
        self.buffer += data
        while not self.dead:
            blank = len(self.buffer) - len(self.buffer.lstrip(b"\r\n"))
            del self.buffer[:blank]
            end = self.buffer.find(b"\r\n\r\n")
            if end < 0:
                self.dead = len(self.buffer) > HEAD
                break
            head = bytes(self.buffer[: end + 2])
            length = _LENGTH.search(head)
            size = int(length[1]) if length else 0
            if not START.match(head) or size > BODY:
                self.dead = True
                break
            whole = end + 4 + size
            if len(self.buffer) < whole:
                break
            message = bytes(self.buffer[:whole])
            del self.buffer[:whole]
            yield message
        if self.dead:
            self.buffer.clear()
