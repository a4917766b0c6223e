"""Which controllers there are, and how they are named: `static`, `embedded:5`, `onos,url=http://…`."""

from __future__ import annotations

from dataclasses import dataclass

from pydantic import ValidationError

from netdyno.config import Config
from netdyno.errors import Error
from netdyno.switch.controller.base import Controller
from netdyno.switch.controller.embedded import Embedded
from netdyno.switch.controller.faucet import Faucet
from netdyno.switch.controller.onos import Onos
from netdyno.switch.controller.opendaylight import OpenDaylight
from netdyno.switch.controller.static import Static

KINDS: dict[str, type[Controller]] = {one.kind: one for one in (Static, Embedded, Faucet, OpenDaylight, Onos)}


@dataclass(frozen=True)
class ControllerChoice:
    """A controller that was named."""

    kind: type[Controller]
    count: int
    """Controllers that stand by each other."""
    options: Config


def parse(text: str, at: str = "controller") -> ControllerChoice:
    """A controller from its name, with the number of controllers or its options. Raises Error."""
    head, *parts = (part.strip() for part in text.split(","))
    name, colon, number = head.partition(":")
    if name not in KINDS:
        several = ", ".join(f"{one}:N" for one, of in KINDS.items() if of.most > 1)
        fix = f"Use one of: {', '.join(KINDS)}, {several}"
        raise Error("ND-104-83", f"there is no controller {head[:80]!r}", at=at, fix=fix)
    kind, count = KINDS[name], 1
    if colon:
        if kind.most == 1 or not number.isdecimal() or not 1 <= int(number) <= kind.most:
            counted = (f"{one}:N with N from 1 to {of.most}" for one, of in KINDS.items() if of.most > 1)
            fix = f"Write {' or '.join(counted)}"
            raise Error("ND-104-83", f"{head[:80]!r} is no number of controllers", at=at, fix=fix)
        count = int(number)
    options = _options(name, kind, parts, at)
    if count > 1 and getattr(options, "url", None):
        fix = "Leave the number out, or url="
        raise Error("ND-104-83", f"{head[:80]!r} with url= is elsewhere already", at=at, fix=fix)
    return ControllerChoice(kind, count, options)


def _options(name: str, kind: type[Controller], parts: list[str], at: str) -> Config:
    """Those that stand behind a name. What is wrong is not repeated: it may be a password."""
    fix = f"Options of {name}: {', '.join(f'{one}=…' for one in kind.Options.model_fields) or 'none'}"
    given: dict[str, str] = {}
    for part in parts:
        key, equals, value = part.partition("=")
        why = ""
        if not equals or not value:
            why = "an option is written KEY=VALUE"
        elif key not in kind.Options.model_fields:
            why = f"there is no option {key[:40]!r}"
        elif key in given:
            why = f"the option {key} is there twice"
        if why:
            raise Error("ND-104-83", f"{name}: {why}", at=at, fix=fix)
        given[key] = value
    try:
        return kind.Options.model_validate(given)
    except ValidationError as e:
        first = e.errors(include_url=False, include_input=False)[0]
        why = "is missing" if first["type"] == "missing" else first["msg"].removeprefix("Value error, ")
        where = ".".join(map(str, first["loc"]))
        raise Error("ND-104-83", f"{name}: {where}: {why}", at=at, fix=fix) from None
