"""Secrets in texts, in every spelling in which others repeat them. As the core does it (`redaction.rs`)."""

from __future__ import annotations

import base64
import binascii
import html
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from urllib.parse import unquote_to_bytes

HIDDEN = "***"
SHORTEST = 4
"""A shorter one stands in too many words to be looked for in texts."""

_DECODED_MAX = 64 << 10
_DEPTH = 2
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9-]*) (.*)", re.DOTALL)
_PERCENT = re.compile(rb"%[0-9A-Fa-f]{2}")
_BACKSLASH = re.compile(
    rb"\\(?:u[dD][89abAB][0-9A-Fa-f]{2}\\u[dD][c-fC-F][0-9A-Fa-f]{2}|u[0-9A-Fa-f]{4}|x[0-9A-Fa-f]{2}"
    rb"|[bfnrt]|[!-/:-@\[-`{-~])"
)
_ENTITY = re.compile(rb"&(?:amp|lt|gt|quot|apos|nbsp|#[0-9]{1,7}|#[xX][0-9A-Fa-f]{1,6});")
_LETTERS = {"b": b"\b", "f": b"\f", "n": b"\n", "r": b"\r", "t": b"\t"}
_WORD = re.compile(rb"[A-Za-z0-9+/_-]{6,}")
_STANDARD = bytes.maketrans(b"-_", b"+/")

Spans = list[tuple[int, int]]


@dataclass(frozen=True)
class View:
    """A text as it reads once it is decoded, each byte with its place in the text."""

    data: bytes
    spans: Spans

    def folded(self) -> View:
        """In small letters; spaces, of which `+` is one in forms, as one."""
        made, spans = bytearray(), Spans()
        for byte, span in zip(self.data, self.spans, strict=True):
            space = byte in b"+ \t\n\f\r"
            if space and made.endswith(b" "):
                spans[-1] = (spans[-1][0], span[1])
                continue
            made.append(0x20 if space else byte)
            spans.append(span)
        return View(bytes(made).lower(), spans)

    def decoded(self, pattern: re.Pattern[bytes], reading: Callable[[bytes], bytes]) -> View | None:
        """It with what the pattern finds decoded, if it finds any."""
        made, spans, done = bytearray(), Spans(), 0
        for found in pattern.finditer(self.data):
            read = reading(found[0])
            start, end = found.span()
            made += self.data[done:start] + read
            spans += self.spans[done:start]
            spans += [(self.spans[start][0], self.spans[end - 1][1])] * len(read)
            done = end
        return View(bytes(made) + self.data[done:], spans + self.spans[done:]) if done else None

    def based(self) -> Iterator[View]:
        """What it has in base64 (RFC 4648 sections 4, 5), read from each of the first letters of a word."""
        for skip in range(4):
            made, spans = bytearray(), Spans()
            for found in _WORD.finditer(self.data):
                start = found.start() + skip
                word = self.data[start : found.end()].translate(_STANDARD)
                word = word[: len(word) - (len(word) % 4 == 1)]
                read = base64.b64decode(word + b"A" * (-len(word) % 4))[: len(word) * 6 // 8]
                # no secret goes from one word to the next
                made += b"\0" + read
                spans.append(self.spans[start])
                for at in range(len(read)):
                    first, last = at * 8 // 6, -(-(at + 1) * 8 // 6) - 1
                    spans.append((self.spans[start + first][0], self.spans[start + last][1]))
            if made:
                yield View(bytes(made), spans)


def fold(secret: str) -> bytes:
    """A secret as `hide` looks for it."""
    return _raw(_bytes(secret)).folded().data


def hide(text: str, folded: Iterable[bytes]) -> str:
    """A text without these secrets, which were folded."""
    data = _bytes(text)
    wanted = [one for one in folded if len(one) >= SHORTEST]
    found = Spans()
    for view in _views(data) if wanted else ():
        there = view.folded()
        for one in wanted:
            at = there.data.find(one)
            while at >= 0:
                found.append((there.spans[at][0], there.spans[at + len(one) - 1][1]))
                at = there.data.find(one, at + 1)
    shown, done = bytearray(), 0
    for start, end in _merged(found):
        shown += data[done:start] + HIDDEN.encode()
        done = end
    return (shown + data[done:]).decode(errors="surrogatepass")


def parts(secret: str) -> set[str]:
    """A secret, and each part of it that others may repeat alone.

    What follows a scheme, Basic credentials and their password, parameters of a scheme, cookies and their
    values; each with its percent-encoding undone as well.
    """
    made = {secret, *_inner(secret)}
    scheme, _, rest = secret.strip().partition(" ")
    if scheme.lower() == "basic":
        rest = rest.strip().rstrip("=")
        try:
            pair = base64.b64decode(rest + "=" * (-len(rest) % 4), validate=True).decode(errors="replace")
        except (binascii.Error, ValueError):
            pair = ""
        made |= {pair, pair.partition(":")[2]}
    for one in list(made):
        try:
            made.add(unquote_to_bytes(one).decode())
        except ValueError:
            continue
    # a page is shown without its tags
    for one in list(made):
        if "<" in one:
            made |= {piece.strip() for piece in re.split("[<>]", one)}
    return made - {""}


def _inner(secret: str) -> Iterator[str]:
    rest = secret.strip()
    # RFC 9110 section 11.4: a scheme, then a token or parameters
    if (found := _SCHEME.fullmatch(rest)) and (" " not in found[2] or "=" in found[2]):
        rest = found[2].strip()
        yield rest
    # RFC 6265 section 4.2.1, RFC 9110 section 11.2
    for pair in re.split("[;,]", rest):
        name, equals, value = pair.strip().partition("=")
        if equals and "{" not in name and value.strip("="):
            yield pair.strip()
            yield value.strip().strip('"')


def _views(data: bytes) -> Iterator[View]:
    views = [_raw(data)]
    if len(data) <= _DECODED_MAX:
        fresh = views
        for _ in range(_DEPTH):
            made = [one.decoded(*how) for one in fresh for how in _READINGS]
            fresh = [one for one in made if one is not None]
            views = views + fresh
        views = [*views, *(based for one in views for based in one.based())]
    yield from views


def _raw(data: bytes) -> View:
    return View(data, [(at, at + 1) for at in range(len(data))])


def _escape(found: bytes) -> bytes:
    text = found[1:].decode()
    if text[0] == "u":
        units = "".join(text.replace("\\", "").split("u"))
        return bytes.fromhex(units).decode("utf-16-be", errors="replace").encode()
    return bytes.fromhex(text[1:]) if text[0] == "x" else _LETTERS.get(text, text.encode())


def _entity(found: bytes) -> bytes:
    return html.unescape(found.decode()).replace("\xa0", " ").encode(errors="replace")


_READINGS = (
    (_PERCENT, lambda found: bytes.fromhex(found[1:].decode())),
    (_BACKSLASH, _escape),
    (_ENTITY, _entity),
)


def _bytes(text: str) -> bytes:
    return text.encode(errors="surrogatepass")


def _merged(found: Spans) -> Iterator[tuple[int, int]]:
    """Places in order; those that overlap as one."""
    last: tuple[int, int] | None = None
    for start, end in sorted(found):
        if last and start < last[1]:
            last = (last[0], max(last[1], end))
            continue
        if last:
            yield last
        last = (start, end)
    if last:
        yield last
