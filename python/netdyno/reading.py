"""Read what others may have written: a regular file, no more of it than its kind can need, never waiting.

Every file that a user names, or that came from elsewhere, is read here. What it holds is bounded again before
it is expanded: a text of a few lines can stand for a thousand million values.
"""

from __future__ import annotations

import json
import math
import os
import re
import stat
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from netdyno.errors import Error
from netdyno.units import SIZE, bound

DOCUMENT = 2 << 20
"""Bytes of a profile, an experiment or what else people write."""
RECORD = 64 << 20
"""Bytes of what netdyno wrote: a result, a series, trials, an experience. NETDYNO_READ_LIMIT sets another."""
OWN = 1 << 50
"""Bytes of what this command itself has just written: as many as there are."""
NODES = 50_000
"""Values in what people write, with aliases followed."""
DEPTH = 64
"""Lists and maps in each other."""

_KINDS = (
    (stat.S_ISDIR, "a folder"),
    (stat.S_ISFIFO, "a pipe"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)


def content(path: Path, most: int = RECORD) -> bytes:
    """The bytes of a file; raises where it is none, cannot be read, or has more than `most` of them."""
    try:
        # told before it is opened: some devices take that for an order
        _regular(path, path.stat())
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
        with os.fdopen(handle, "rb") as file:
            about = os.fstat(handle)
            _regular(path, about)
            # the size of files of the kernel is not told; and room is made for as many bytes as are asked for
            most = min(_limit(most), max(about.st_size, RECORD))
            read = b"" if about.st_size > most else file.read(most + 1)
    except OSError as e:
        raise Error(
            "ND-104-20", e.strerror or str(e), at=str(path), fix="Check the path and its rights"
        ) from e
    except ValueError as e:
        raise Error("ND-104-20", str(e), at=repr(str(path)), fix="Check the path") from e
    if about.st_size > most or len(read) > most:
        raise large(f"it has more than {most:,} bytes", str(path), SMALLER if most < RECORD else MORE)
    return read


def text(path: Path, most: int = RECORD) -> str:
    """The text of a file in UTF-8."""
    try:
        return content(path, most).decode()
    except UnicodeDecodeError as e:
        raise Error("ND-104-21", "it is not text in UTF-8", at=str(path)) from e


def record(path: Path, *, finite: bool = False) -> Any:
    """The document in a file that netdyno wrote. Raises ValueError where it is no JSON."""
    return parsed(content(path), str(path), finite=finite)


def parsed(document: bytes, at: str, *, finite: bool = False) -> Any:
    """A document that netdyno wrote, unless it would take more memory than any of its own of that size.

    `finite`: one with a number that nothing counts up to, or that is none, is no document of netdyno's.
    """
    # each of these is an object of 64 bytes or more: a document of netdyno's has a tenth as many as bytes
    objects, values = (sum(map(document.count, marks)) for marks in ((b"{", b"["), (b",",)))
    if objects > _limit(RECORD) // 64 or values > _limit(RECORD) // 12:
        raise large(f"it has {objects:,} lists and maps and {values:,} values", at, MORE)
    try:
        if finite and _ODD.search(document):
            return json.loads(document, parse_int=_whole, parse_float=_real, parse_constant=_real)
        return json.loads(document)
    except RecursionError as e:
        raise ValueError("its lists are too deep in each other") from e


_ODD = re.compile(rb"NaN|Infinity|[0-9]{19}|[eE][+]?[0-9]{3}")
"""What such a number has in it; so may a text have."""


def _whole(text: str) -> int:
    if len(text) > 20 or abs(value := int(text)) >= 1 << 64:
        raise ValueError(f"{text[:20]}… is beyond all that is counted")
    return value


def _real(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text[:20]} is no number")
    return value


def bounded(data: Any, at: str) -> Any:
    """Plain data that is no larger and no deeper than what people write."""
    if values(data) > NODES:
        raise large(f"it has more than {NODES:,} values", at)
    if sum(1 for _ in _levels(data)) > DEPTH:
        raise large(f"its lists and maps are more than {DEPTH} deep in each other", at)
    return data


def values(data: Any) -> int:
    """How many values plain data has."""
    return sum(map(len, _levels(data)))


TEXT_OF_A_VALUE = 100
"""Characters of text that are counted as one value more."""


def size(data: Any) -> int:
    """How much plain data is: its values, and its text by length."""
    return sum(
        1 + (len(one) // TEXT_OF_A_VALUE if isinstance(one, str) else 0)
        for level in _levels(data)
        for one in level
    )


def _levels(data: Any) -> Iterator[list[Any]]:
    """The values at each depth."""
    level = [data]
    while level:
        yield level
        inner: list[Any] = []
        for one in level:
            if isinstance(one, (dict, list)):
                inner.extend(one.values() if isinstance(one, dict) else one)
        level = inner


SMALLER, MORE = "Make it smaller", "If it is your own, set NETDYNO_READ_LIMIT, like 1GiB, to read more"


def large(what: str, at: str, fix: str = SMALLER) -> Error:
    """That something is more than is read."""
    return Error("ND-104-32", what, at=at, fix=fix)


def twice(names: list[str]) -> str | None:
    """A name that is there more than once."""
    return next((name for name, count in Counter(names).items() if count > 1), None)


def _regular(path: Path, about: os.stat_result) -> None:
    if not stat.S_ISREG(about.st_mode):
        kind = next((word for test, word in _KINDS if test(about.st_mode)), "none")
        fix = "Name a file; save what a pipe gives as one"
        raise Error("ND-104-20", f"it is {kind}, not a file", at=str(path), fix=fix)


def _limit(most: int) -> int:
    """The limit of this kind of file; what netdyno wrote may be given another."""
    chosen = os.environ.get("NETDYNO_READ_LIMIT")
    if most != RECORD or not chosen:
        return most
    return int(min(bound(SIZE.text(chosen, "NETDYNO_READ_LIMIT")), OWN))
