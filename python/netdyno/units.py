"""Quantities as people write them: `250ms`, `1000/s`, `1KiB`. The units are those of the core."""

from __future__ import annotations

import itertools
import re
from dataclasses import dataclass

from netdyno.errors import Error

TIMES = {"ns": 1.0, "us": 1e3, "µs": 1e3, "ms": 1e6, "s": 1e9, "min": 60e9, "h": 3600e9}
RATES = {"/s": 1.0, "k/s": 1e3, "M/s": 1e6, "/min": 1 / 60, "/h": 1 / 3600}
SIZES = {
    "B": 1.0, "kB": 1e3, "KiB": 1024.0, "MB": 1e6, "MiB": 1024.0**2, "GB": 1e9, "GiB": 1024.0**3,
}  # fmt: skip
BITS = {"bit/s": 1.0, "kbit/s": 1e3, "Mbit/s": 1e6, "Gbit/s": 1e9}
ALIASES = {
    "m": "min", "sec": "s", "rps": "/s", "req/s": "/s", "krps": "k/s", "cps": "/s", "kcps": "k/s",
    "k": "kbit/s", "K": "kbit/s", "M": "Mbit/s", "G": "Gbit/s",
}  # fmt: skip
"""What other tools call a unit."""
_ALL = TIMES | RATES | SIZES | {"%": 0.01}
_QUANTITY = re.compile(r"\s*([0-9][0-9_]*(?:\.[0-9]+)?)\s*(\S*)\s*")


@dataclass(frozen=True)
class Kind:
    """A kind of quantity, and the unit that a bare number has on the command line."""

    what: str
    units: dict[str, float]
    bare: str
    example: str

    def text(self, written: str, at: str) -> str:
        """What was written, with its unit."""
        found = _QUANTITY.fullmatch(written)
        if found and ALIASES.get(found[2]) in self.units:
            return self.text(found[1] + ALIASES[found[2]], at)
        if self.units is TIMES and (sum_of := _compound(written)):
            return self.text(sum_of, at)
        if not found or (found[2] and found[2] not in self.units):
            units = ", ".join(self.units)
            fix = f"Write it like {self.example}; units are {units}, and a bare number means {self.bare}"
            raise Error("ND-104-04", f"{_short(written)!r} is not {self.what}", at=at, fix=fix)
        unit = found[2] or self.bare
        _countable(found[1], self.units[unit], written, at)
        return found[1] + unit

    def value(self, written: str, at: str) -> float:
        """What was written, in the unit whose factor is 1."""
        found = _QUANTITY.fullmatch(self.text(written, at))
        assert found is not None, "it was just read"
        return float(found[1].replace("_", "")) * self.units[found[2]]


_PART = re.compile(r"([0-9]+(?:\.[0-9]+)?)(h|min|m|sec|s|ms|us|µs|ns)(?=[0-9]|$)")


def _compound(written: str) -> str | None:
    """A time of several units, like `1m30s`, in nanoseconds: the larger unit first, each once."""
    text = written.strip()
    parts = _PART.findall(text)
    if len(parts) < 2 or "".join(number + unit for number, unit in parts) != text:
        return None
    factors = [TIMES[ALIASES.get(unit, unit)] for _, unit in parts]
    if any(a <= b for a, b in itertools.pairwise(factors)):
        return None
    total = sum(float(number) * factor for (number, _), factor in zip(parts, factors, strict=True))
    unit = next(
        unit for unit in ("h", "min", "s", "ms", "us", "ns") if total % TIMES[unit] == 0 or unit == "ns"
    )
    return f"{total / TIMES[unit]:.0f}{unit}"


TIME = Kind("a length of time", TIMES, "s", "250ms")
RATE = Kind("a rate", RATES, "/s", "1000/s")
SIZE = Kind("a number of bytes", SIZES, "B", "64B")
BITRATE = Kind("a rate in bits", BITS, "bit/s", "100Mbit/s")


def bound(value: float | int | str) -> float:
    """A threshold's limit in the metric's unit: a number, `"50ms"` in nanoseconds, `"1k/s"` per second."""
    if isinstance(value, (int, float)):
        return float(value)
    found = _QUANTITY.fullmatch(value)
    if not found or (found[2] and found[2] not in _ALL):
        what = f"{_short(value)!r} is not a limit"
        raise Error("ND-104-04", what, fix='Write it like "50ms", "1000/s" or 0.01')
    return _countable(found[1], _ALL.get(found[2], 1.0), value)


def seconds(text: str | float) -> float:
    """`"250ms"` in seconds."""
    return bound(text) / 1e9 if isinstance(text, str) else float(text)


MOST = float(1 << 63)
"""In the unit whose factor is 1: nothing counts up to more."""


def _countable(digits: str, factor: float, written: str, at: str = "") -> float:
    value = float(digits.replace("_", "")) * factor
    if value >= MOST:
        what = f"{_short(written)!r} is more than can be counted"
        raise Error("ND-104-05", what, at=at, fix="Give less than 9e18 of the smallest unit")
    return value


def _short(text: str) -> str:
    return text if len(text) <= 80 else f"{text[:80]}…"
