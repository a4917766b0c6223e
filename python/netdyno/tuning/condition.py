"""Conditions between tunables: `net.ipv4.tcp_rmem.default <= net.ipv4.tcp_rmem.max`."""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass

from netdyno.errors import Error
from netdyno.stats.observation import Value

_COMPARE: dict[str, Callable[[int, int], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
PARAMETERS = ("net.", "fs.", "dev.", "process.")
"""How the names of parameters begin."""


@dataclass(frozen=True)
class Condition:
    """A tunable compared with another, or with a value."""

    name: str
    compared: str
    other: str

    @classmethod
    def parse(cls, text: str) -> Condition:
        """A condition as it is written."""
        parts = text.split()
        if len(parts) != 3 or parts[1] not in (*_COMPARE, "==", "!=", "in"):
            fix = "Write NAME, then one of < <= > >= == != in, then a value or a NAME, with spaces between"
            raise Error("ND-104-41", f"{text!r} is not a condition", fix=fix)
        return cls(*parts)

    @property
    def names_other(self) -> bool:
        """Whether the right side is a parameter too; else it is a value."""
        return self.other.startswith(PARAMETERS)

    def holds(self, now: Callable[[str], Value | None]) -> bool | None:
        """Whether it holds with these values; None when one of them is not to be had here."""
        left = now(self.name)
        right: Value | None = now(self.other) if self.names_other else self.other
        if left is None or right is None:
            return None
        if self.compared == "in":
            return str(left) in str(right).split()
        if self.compared in ("==", "!="):
            return (str(left) == str(right)) == (self.compared == "==")
        try:
            return _COMPARE[self.compared](int(left), int(right))
        except ValueError:
            return None

    def __str__(self) -> str:
        return f"{self.name} {self.compared} {self.other}"
