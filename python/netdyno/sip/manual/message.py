"""A SIP message as start line, header fields and body, as one composes it by hand."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

COMPACT = {
    "v": "Via", "f": "From", "t": "To", "i": "Call-ID", "m": "Contact", "l": "Content-Length",
    "c": "Content-Type", "k": "Supported", "s": "Subject", "e": "Content-Encoding", "o": "Event",
    "r": "Refer-To", "u": "Allow-Events", "b": "Referred-By", "x": "Session-Expires",
}  # fmt: skip
"""Long names of compact forms (RFC 3261 section 7.3.3)."""
_LISTED = re.compile(r'(?:[^,<"]|<[^>]*>|"(?:[^"\\]|\\.)*")+')


def same(a: str, b: str) -> bool:
    """Whether two names are of one header field."""
    return COMPACT.get(a.lower(), a).lower() == COMPACT.get(b.lower(), b).lower()


@dataclass
class SipMessage:
    """Start line, header fields in order, body."""

    start: str
    fields: list[tuple[str, str]] = field(default_factory=list)
    body: bytes = b""

    @classmethod
    def read(cls, data: bytes) -> SipMessage:
        """A message as it came; folded lines are joined."""
        head, _, body = data.partition(b"\r\n\r\n")
        text = re.sub(r"\r\n[ \t]+", " ", head.decode("utf-8", "replace"))
        start, *lines = text.split("\r\n")
        fields = []
        for line in lines:
            name, _, value = line.partition(":")
            fields.append((COMPACT.get(name.strip().lower(), name.strip()), value.strip()))
        return cls(start, fields, body)

    def data(self) -> bytes:
        """As it goes over the network."""
        lines = [self.start, *(f"{name}: {value}" for name, value in self.fields)]
        return "\r\n".join([*lines, "", ""]).encode() + self.body

    def all(self, name: str) -> list[str]:
        """The values of every field of this name, those in one line apart."""
        values = [value for known, value in self.fields if same(known, name)]
        if not any(same(name, one) for one in ("Via", "Contact", "Route", "Record-Route")):
            return values
        return [one.strip() for value in values for one in _LISTED.findall(value) if one.strip()]

    def get(self, name: str) -> str:
        """The first value; empty where there is none."""
        return next(iter(self.all(name)), "")

    def put(self, name: str, value: str) -> None:
        """Set a field in its place, or at the end."""
        for at, (known, _) in enumerate(self.fields):
            if same(known, name):
                self.fields[at] = (known, value)
                return
        self.fields.append((name, value))

    def drop(self, name: str) -> None:
        """Remove a field."""
        self.fields = [one for one in self.fields if not same(one[0], name)]

    @property
    def status(self) -> int:
        """Status of a response; 0 of a request."""
        found = re.match(r"SIP/2\.0 (\d{3})\b", self.start, re.IGNORECASE)
        return int(found[1]) if found else 0

    @property
    def method(self) -> str:
        """Method of a request, or of the request that a response is to."""
        return self.get("CSeq").split(" ")[-1] if self.status else self.start.split(" ")[0]

    @property
    def uri(self) -> str:
        """Request-URI."""
        return self.start.split(" ")[1] if self.start.count(" ") >= 2 else ""

    @property
    def number(self) -> int:
        """Sequence number."""
        digits = self.get("CSeq").split(" ")[0]
        return int(digits) if digits.isdecimal() else 0

    @property
    def branch(self) -> str:
        """Branch of the topmost Via."""
        found = re.search(r";\s*branch\s*=\s*([^;,\s]+)", self.get("Via"), re.IGNORECASE)
        return found[1] if found else ""


def uri_of(value: str) -> str:
    """The URI of From, To, Contact or Route (RFC 3261 section 20.10)."""
    plain = _unquoted(value)
    found = re.search(r"<([^>]*)>", plain)
    return found[1] if found else plain.split(";")[0].strip()


def tag_of(value: str) -> str:
    """The tag of From or To."""
    found = re.search(r";\s*tag\s*=\s*([^;,\s]+)", _unquoted(value).rsplit(">", 1)[-1], re.IGNORECASE)
    return found[1] if found else ""


def _unquoted(value: str) -> str:
    """An address without quoted strings: a display name or an instance (`<urn:uuid:…>`) may have brackets."""
    return re.sub(r'"(?:\\.|[^"\\])*"', '""', value)
