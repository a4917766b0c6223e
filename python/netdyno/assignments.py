"""`NAME=VALUE,NAME=VALUE` as people write it, in one place for all who read it.

A comma begins another only where `NAME=` follows it: of `ports=80,443,size=3` the first value is `80,443`.
Quotes around a whole value keep all of it together: `words="a,b=c"`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from netdyno import config
from netdyno.errors import Error

FIX = "Write it like NAME=VALUE; quotes keep a value together that has a comma before NAME= in it"

_NAME = r"[^\s=,'\"]+"
_ONE = re.compile(
    rf"""\s*(?P<name>{_NAME})\s*=\s*(?:"(?P<double>[^"]*)"|'(?P<single>[^']*)'|(?P<plain>.*?))\s*"""
    rf"(?:,(?=\s*{_NAME}\s*=)|\Z)",
    re.DOTALL,
)


def pairs(text: str, at: str, fix: str = FIX) -> Iterator[tuple[str, str]]:
    """Each name with its value; raises ND-104-04."""
    place = 0
    while place < len(text) or not place:
        found = _ONE.match(text, place)
        if not found:
            raise Error("ND-104-04", f"{text[place:]!r} is not NAME=VALUE", at=at, fix=fix)
        double, single, plain = found["double"], found["single"], found["plain"]
        yield found["name"], next(one for one in (double, single, plain) if one is not None)
        place = found.end()


def read(texts: Iterable[str], at: str, fix: str = FIX) -> dict[str, str]:
    """All of an option that may be given several times; a name that comes twice is refused (ND-104-07)."""
    given: dict[str, str] = {}
    for text in texts:
        for name, value in pairs(text, at, fix):
            if name in given:
                raise Error("ND-104-07", f"{name} is given twice", at=at, fix="Leave one out")
            given[name] = value
    return given


def options(texts: Iterable[str], at: str) -> dict[str, Any]:
    """One option a text, whose value is all that follows, as YAML reads it: `seconds=3`, `args=[a, b]`."""
    given: dict[str, Any] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not name or not equals:
            raise Error("ND-104-04", f"{text!r} is not NAME=VALUE", at=at, fix="Write it like seconds=3")
        if name in given:
            raise Error("ND-104-07", f"{name} is given twice", at=at, fix="Leave one out")
        given[name] = config.parse_text(value, at)
    return given


def text(values: Mapping[str, Any]) -> str:
    """The same as it is written, so that `read` finds it again."""
    return ",".join(f"{name}={_quoted(name, str(value))}" for name, value in values.items())


def _quoted(name: str, value: str) -> str:
    if list(pairs(f"{name}={value}", name)) == [(name, value)]:
        return value
    return f"'{value}'" if '"' in value else f'"{value}"'
