"""What may stand after an option, and what may stand in for an argument: read, refused and completed here."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator
from ipaddress import IPv4Address
from typing import TypeVar

from netdyno import paths, units
from netdyno.core.address import Address
from netdyno.errors import Error

T = TypeVar("T")
LEAST_INTERVAL = 0.05
"""Seconds between two looks at least."""
MOST_WHOLE = (1 << 63) - 1
"""The largest whole number, where an option names no other limit: the store and the core have none beyond."""
MOST = 1e9
"""The largest number, where an option names no other limit."""
OFFLOADS = ("checksum", "segment", "vlan")
"""Work that a port of devices or of a server may do by itself."""


def whole(option: str, least: int = 1, most: int = MOST_WHOLE) -> Callable[[str], int]:
    """A whole number within limits."""
    wanted = f"a whole number from {least} to {most}"
    if most == MOST_WHOLE:
        wanted = f"a whole number, {least} or more"

    def read(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            raise refused(text, wanted, option) from None
        if value > most == MOST_WHOLE:
            raise refused(text, f"a whole number up to {most:,}", option, "ND-104-05")
        if not least <= value <= most:
            raise refused(text, wanted, option, "ND-104-05")
        return value

    return read


def number(option: str, above: float, most: float = MOST) -> Callable[[str], float]:
    """A number within limits, the lower of them not included."""
    wanted = f"a number above {above:g}, at most {most:g}"

    def read(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            raise refused(text, wanted, option) from None
        if not above < value <= most:
            raise refused(text, wanted, option, "ND-104-05")
        return value

    return read


def share(option: str) -> Callable[[str], float]:
    """A share, above 0 and at most 1: `0.5%` or 0.005."""
    wanted = "a share above 0 and at most 100%, like 0.5% or 0.005"

    def read(text: str) -> float:
        # a default comes as the number that it is
        text = str(text)
        number, percent = (text[:-1].strip(), 0.01) if text.endswith("%") else (text, 1.0)
        try:
            value = float(number) * percent
        except ValueError:
            raise refused(text, wanted, option) from None
        if not 0 < value <= 1:
            raise refused(text, wanted, option, "ND-104-05")
        return value

    return read


def limit(option: str, least: float, most: float) -> Callable[[str], float]:
    """A limit between two numbers, a share of it in percent; `off` is 0."""
    wanted = f"a number from {least:g} to {most:g}, or off"

    def read(text: str) -> float:
        text = str(text).strip()
        if text in ("off", "0", "0.0"):
            return 0.0
        number, percent = (text[:-1].strip(), 0.01) if text.endswith("%") else (text, 1.0)
        try:
            value = float(number) * percent
        except ValueError:
            raise refused(text, wanted, option) from None
        if not least <= value <= most:
            raise refused(text, wanted, option, "ND-104-05")
        return value

    return read


def one_of(option: str, *choices: str) -> Callable[[str], str]:
    """One of several words."""

    def read(text: str) -> str:
        if text not in choices:
            raise refused(text, f"one of {', '.join(choices)}", option)
        return text

    return read


def offloads(option: str) -> Callable[[str], str]:
    """`auto` or `none`, or work of a port with commas between."""

    def read(text: str) -> str:
        wrong = [] if text in ("auto", "none") else [one for one in text.split(",") if one not in OFFLOADS]
        if wrong:
            raise refused(wrong[0], f"auto, none, or some of {', '.join(OFFLOADS)}", option)
        return text

    return read


def daemon(option: str) -> Callable[[str], Address]:
    """Where a daemon listens."""

    def read(text: str) -> Address:
        try:
            return Address.of(text)
        except Error as e:
            raise Error(e.code, e.what, at=e.at or option, fix=e.fix) from e

    return read


def time(option: str) -> Callable[[str], str]:
    """A length of time with its unit."""
    return lambda text: units.TIME.text(text, option)


def interval(option: str) -> Callable[[str], str]:
    """Time between two looks: not so short that looking is all that is done."""

    def read(text: str) -> str:
        given = units.TIME.text(text, option)
        if units.seconds(given) < LEAST_INTERVAL:
            raise refused(text, f"{LEAST_INTERVAL * 1000:g}ms or more", option, "ND-104-05")
        return given

    return read


def quantity(unit: units.Kind, option: str) -> Callable[[str], str]:
    """A quantity with its unit."""
    return lambda text: unit.text(text, option)


def rate(option: str) -> Callable[[str], str]:
    """A rate with its unit."""
    return lambda text: units.RATE.text(text, option)


def size(option: str) -> Callable[[str], str]:
    """A number of bytes with its unit."""
    return lambda text: units.SIZE.text(text, option)


def octets(option: str) -> Callable[[str], int]:
    """A number of bytes, as one."""
    return lambda text: int(units.bound(units.SIZE.text(text, option)))


def bits(option: str) -> Callable[[str], float]:
    """A rate in bits per second."""
    return lambda text: units.BITRATE.value(text, option)


def with_unit(option: str, parser: Callable[[str], T], example: str) -> Callable[[str], T]:
    """A quantity of which nobody knows what a number alone would mean."""

    def read(text: str) -> T:
        if re.fullmatch(r"\s*[0-9.]+\s*", text):
            raise refused(text, f"a number with its unit, like {example}", option)
        return parser(text)

    return read


def ipv4(option: str, port: bool = False) -> Callable[[str], str]:
    """An IPv4 address; with `port` one may follow it."""
    wanted = "an IPv4 address like 10.0.0.7" + (", or one with a port like 10.0.0.7:443" if port else "")

    def read(text: str) -> str:
        address, colon, number = text.partition(":") if port else (text, "", "")
        try:
            IPv4Address(address)
        except ValueError:
            raise refused(text, wanted, option) from None
        if colon and not (number.isascii() and number.isdigit() and int(number[:6]) <= 0xFFFF):
            raise refused(text, wanted, option)
        return text

    return read


def refused(text: str, wanted: str, option: str, code: str = "ND-104-04") -> Error:
    """That a value is not what an option takes."""
    shown = text if len(text) <= 80 else f"{text[:80]}…"
    return Error(code, f"{shown!r} is not {wanted}", at=option, fix=f"Give {wanted}")


# ---- completion; files are the shell's own affair


def any_preset(incomplete: str) -> Iterator[str]:
    """Presets that begin so."""
    from netdyno.experiment import presets

    return (name for name in presets.names() if name.startswith(incomplete))


def profile_preset(incomplete: str) -> Iterator[str]:
    """Preset profiles that begin so."""
    from netdyno.experiment import presets

    return (name for name in presets.profiles() if name.startswith(incomplete))


def stored_run(incomplete: str) -> Iterator[str]:
    """Ids of runs that begin so, the latest first."""
    from netdyno.store import NAME, Store

    known = ["latest"]
    # to look is no reason to make one
    if (paths.state() / NAME).exists():
        with contextlib.suppress(Error), Store() as store:
            known += [row.id for row in store.rows(50)]
    return (name for name in known if name.startswith(incomplete))
