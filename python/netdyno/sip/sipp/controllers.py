"""Third-party call control (3PCC): SIPp's two controllers as one scenario with two dialogs.

SIPp's controllers exchange session descriptions by commands over TCP. Here one user agent has both calls: a
command is a value that one dialog takes from a body and the other sends.
"""

from __future__ import annotations

import re
from typing import Any

from netdyno.errors import Error
from netdyno.sip.sipp.convert import Converted, Step

FIRST, SECOND = "a", "b"
"""Names of the dialogs."""
_PLACE = re.compile(r"\{response\.([A-Za-z0-9_]+)\}")


def merge(first: Converted, second: Converted, name: str, targets: tuple[str, ...]) -> Converted:
    """Steps of both, in the order of their commands; `targets`: Request-URIs of both calls."""
    made = Converted(user=first.user, callee=first.callee, notes=[*first.notes, *second.notes])
    sides = [_Side(FIRST, first, targets[:1]), _Side(SECOND, second, targets[1:2])]
    at = 0
    while any(side.steps for side in sides):
        here, there = sides[at], sides[1 - at]
        if not here.steps:
            at = 1 - at
            continue
        command = here.steps[0].get("command")
        if command is None:
            made.steps.append(here.step())
        elif "send" in command:
            here.steps.pop(0)
            waited = there.waits
            there.commands.append([here.named(one) for one in command["send"]])
            at = 1 - at if waited else at
        elif here.commands:
            here.steps.pop(0)
            here.take(command["receive"], here.commands.pop(0))
        elif not there.steps or there.waits:
            what = "both controllers wait for a command of the other, or one never comes"
            raise Error("ND-104-73", what, at=name, fix="Name the one that calls first as FILE.xml")
        else:
            at = 1 - at
    return made


class _Side:
    def __init__(self, dialog: str, made: Converted, target: tuple[str, ...]) -> None:
        self.dialog, self.target = dialog, target
        self.steps = list(made.steps)
        self.commands: list[list[str]] = []
        self.aliases: dict[str, str] = {}
        if made.answers or any("goto" in one or "label" in one or "expect_any" in one for one in self.steps):
            what = "a controller of 3PCC that is called, or branches, cannot be played"
            raise Error(
                "ND-104-73", what, at=f"dialog {dialog}", fix="Use SIPp's 3pcc-C-A and 3pcc-C-B as examples"
            )

    @property
    def waits(self) -> bool:
        """Whether it waits for a command that has not come."""
        return bool(self.steps) and "receive" in self.steps[0].get("command", {}) and not self.commands

    def named(self, value: str) -> str:
        """The name of a value among those of both."""
        return self.aliases.get(value, f"{self.dialog}_{value}")

    def take(self, names: list[str], values: list[str]) -> None:
        """A command came: its values are known here by other names."""
        self.aliases |= dict(zip(names, values, strict=False))

    def step(self) -> Step:
        """The next step, in its dialog."""
        [(kind, content)] = self.steps.pop(0).items()
        if kind not in ("send", "expect", "answer"):
            return {kind: content}
        content = {key: self._places(value) for key, value in content.items()}
        if captures := content.get("capture"):
            content["capture"] = {self.named(name): capture for name, capture in captures.items()}
        if kind == "send" and content["method"] == "INVITE" and self.target:
            content["uri"] = self.target[0]
        return {kind: content | {"dialog": self.dialog}}

    def _places(self, value: Any) -> Any:
        if isinstance(value, str):
            return _PLACE.sub(lambda found: f"{{response.{self.named(found[1])}}}", value)
        if isinstance(value, dict):
            return {key: self._places(one) for key, one in value.items()}
        return value
