"""Which controllers there are, and how they are named: `static`, `embedded`, `embedded:5`."""

from __future__ import annotations

from netdyno.errors import Error
from netdyno.switch.controller.base import Controller
from netdyno.switch.controller.embedded import MOST, Embedded
from netdyno.switch.controller.faucet import Faucet
from netdyno.switch.controller.static import Static

KINDS: dict[str, type[Controller]] = {one.kind: one for one in (Static, Embedded, Faucet)}


def parse(text: str, at: str = "controller") -> tuple[type[Controller], int]:
    """A controller and how many of it, from its name. Raises Error."""
    name, colon, number = text.partition(":")
    if name not in KINDS:
        fix = f"Use one of: {', '.join(KINDS)}, embedded:N"
        raise Error("ND-104-83", f"there is no controller {text[:80]!r}", at=at, fix=fix)
    if not colon:
        return KINDS[name], 1
    if name != Embedded.kind or not number.isdecimal() or not 1 <= int(number) <= MOST:
        fix = f"Write embedded:N with N from 1 to {MOST}"
        raise Error("ND-104-83", f"{text[:80]!r} is no number of controllers", at=at, fix=fix)
    return KINDS[name], int(number)
