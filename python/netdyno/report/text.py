"""Text that can change its language in the page, and data that never does."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from markupsafe import Markup, escape

from netdyno.escape import lines

#: First strong isolate and its end: what a name holds, right-to-left letters say, stays within the name.
ISOLATE, END = "\u2068", "\u2069"


@dataclass(frozen=True)
class Data:
    """Something out of the result - a name, an address - shown as it is."""

    text: str

    def __post_init__(self) -> None:
        # no control of its own, and no end of the isolation
        object.__setattr__(self, "text", lines(self.text))

    def __str__(self) -> str:
        return f"{ISOLATE}{self.text}{END}"


@dataclass(frozen=True)
class Msg:
    """A message of the catalogue, with what its `{places}` hold."""

    id: str
    args: Mapping[str, str | Data | Msg] = field(default_factory=dict)

    def plain(self, catalogue: Mapping[str, str] | None = None) -> str:
        """The text in a catalogue's language; in English without one."""
        text = (catalogue or {}).get(self.id, self.id)

        def fill(match: re.Match[str]) -> str:
            value = self.args.get(match[1])
            if value is None:
                return match[0]
            return value.plain(catalogue) if isinstance(value, Msg) else str(value)

        return re.sub(r"\{(\w+)\}", fill, text)

    def text(self) -> str:
        """English for terminals and files: without marks of direction, with plain spaces."""
        return re.sub(f"[{ISOLATE}{END}]", "", self.plain()).replace("\u202f", " ")

    def json(self) -> dict[str, Any]:
        """As the page's scripts read it."""
        return {"t": self.id, "a": self._args()} if self.args else {"t": self.id}

    def _args(self) -> dict[str, Any]:
        return {k: v.json() if isinstance(v, Msg) else str(v) for k, v in self.args.items()}

    def attributes(self, name: str = "") -> Markup:
        """`data-t…` attributes that make the script put this text into an element or its attribute."""
        suffix = f"-{name}" if name else ""
        parts = [Markup('data-t{}="{}"').format(suffix, self.id)]
        if self.args:
            parts.append(Markup('data-a{}="{}"').format(suffix, json.dumps(self._args(), ensure_ascii=False)))
        if name:
            parts.append(Markup('{}="{}"').format(name, self.plain()))
        return Markup(" ").join(parts)


def M(id: str, **args: str | Data | Msg) -> Msg:  # noqa: N802, A002 - short, as gettext's `_` is
    """A message; catalogue tools look for this name."""
    return Msg(id, {k: lines(v, ISOLATE + END) if isinstance(v, str) else v for k, v in args.items()})


def label(text: Msg | Data) -> dict[str, Any]:
    """A message or a name, as the page's scripts read it."""
    return text.json() if isinstance(text, Msg) else {"d": text.text}


def html(text: Msg | Data | str | None) -> Markup:
    """A message or a name as an element."""
    if isinstance(text, Msg):
        return Markup("<span {}>{}</span>").format(text.attributes(), text.plain())
    if text is None:
        return Markup("")
    shown = text.text if isinstance(text, Data) else text
    return Markup('<bdi translate="no">{}</bdi>').format(escape(shown))
