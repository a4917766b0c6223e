"""SIPp's [keywords] in texts as places of our templates."""

from __future__ import annotations

import re
from collections.abc import Callable

_KEYWORD = re.compile(r"\[([^\]\r\n]+)\]")
_FIELD = re.compile(r"field(\d{1,3})(?:\s+file=\S+)?")
_VARIABLE = re.compile(r"\$([A-Za-z0-9_]{1,32})")


def variable(name: str) -> str:
    """The name of a captured value for a SIPp variable."""
    return f"v{name}" if name[:1].isdigit() else name


def whole_variable(line: str) -> str | None:
    """The name of the value that a line consists of."""
    found = _KEYWORD.fullmatch(line)
    inner = _VARIABLE.fullmatch(found[1]) if found else None
    return variable(inner[1]) if inner else None


def whole_field(line: str) -> str | None:
    """The column of a CSV file that a line consists of."""
    found = _KEYWORD.fullmatch(line)
    inner = _FIELD.fullmatch(found[1]) if found else None
    return f"field{inner[1]}" if inner else None


def is_last(name: str) -> bool:
    """Whether a keyword copies a header field of the last message, as `[last_Via:]`."""
    return name.startswith("last_")


def places(text: str, table: str, unknown: Callable[[str], None]) -> str:
    """A text with its keywords as places; braces of its own stay braces. `unknown` gets other keywords."""

    def one(name: str) -> str:
        found = _VARIABLE.fullmatch(name)
        if found:
            return f"{{response.{variable(found[1])}}}"
        if column := _FIELD.fullmatch(name):
            return f"{{{table}.field{column[1]}}}"
        plain = {"call_number": "{seq}", "timestamp": "{timestamp_ms}", "clock_tick": "{timestamp_ms}"}
        if name in plain:
            return plain[name]
        if name in ("pid", "dynamic_id", "cseq", "msg_index"):
            return "{random:8}" if name == "dynamic_id" else "{device}"
        unknown(name)
        return ""

    made, at = "", 0
    for found in _KEYWORD.finditer(text):
        made += _braces(text[at : found.start()]) + one(found[1])
        at = found.end()
    return made + _braces(text[at:])


def _braces(text: str) -> str:
    return text.replace("{", "{{").replace("}", "}}")


def keywords(text: str) -> list[str]:
    """The keywords of a text."""
    return _KEYWORD.findall(text)
