"""Sizes of the objects that transactions ask for (RFC 9411), and what connections are used for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from netdyno import units
from netdyno.errors import Error

PLACE = "{object}"
"""In the path of a request: the size of the object, in bytes; so is a number at its end."""
MIXED = tuple(round(size * 1024) for size in (0.2, 6, 8, 9, 10, 25, 26, 35, 59, 347))
"""Bytes of the objects of a mix, each as often (RFC 9411 §7.3)."""
NAMED: Mapping[str, tuple[str, ...]] = {
    "rfc9411": ("1KiB", "16KiB", "64KiB", "256KiB", "mixed"),
    "rfc9411-connections": ("1KiB", "2KiB", "4KiB", "16KiB", "64KiB"),
}
"""Sizes of §7.3 and 7.7 (throughput), and of §7.2 and 7.6 (connections per second)."""
MOST_OBJECT = 64 << 20


@dataclass(frozen=True)
class ObjectSize:
    """What a transaction asks for."""

    name: str
    sizes: tuple[int, ...] = ()
    """Bytes, one after the other; none: as the profile has it."""

    @property
    def mean(self) -> float | None:
        """Bytes."""
        return sum(self.sizes) / len(self.sizes) if self.sizes else None


@dataclass(frozen=True)
class Workload:
    """What connections are used for."""

    objects: ObjectSize = ObjectSize("")
    per_connection: int = 1
    """Transactions of each connection."""


def read(text: str | None) -> list[ObjectSize]:
    """Sizes as they stand behind --objects: `1KiB,16KiB,mixed`, `rfc9411`."""
    if text is None:
        return [ObjectSize("")]
    found: dict[str, ObjectSize] = {}
    for word in (part.strip() for part in str(text).split(",")):
        for name in NAMED.get(word, (word,)):
            found[name] = ObjectSize(name, MIXED if name == "mixed" else (_bytes(name),))
    return list(found.values())


def _bytes(word: str) -> int:
    fix = f"Use sizes like 1KiB or 500B, mixed, {' or '.join(NAMED)}, with commas"
    try:
        size = units.SIZE.value(word, "--objects")
    except Error as e:
        raise Error("ND-104-04", f"{word!r} is no size of an object", at="--objects", fix=fix) from e
    if not 1 <= size <= MOST_OBJECT:
        raise Error("ND-104-05", f"{word} is no size of an object", at="--objects", fix="1B to 64MiB")
    return round(size)


def workloads(objects: Sequence[ObjectSize], per_connection: Sequence[int]) -> list[tuple[str, Workload]]:
    """What is searched, with a name for each: `16KiB`, `16KiB,x10`, `x10`."""
    several = len(per_connection) > 1
    return [
        (",".join(filter(None, (one.name, f"x{count}" if several else ""))), Workload(one, count))
        for one in objects
        for count in per_connection
    ]
