"""What others wrote - names, servers' words, files - made harmless where it leaves us.

A terminal obeys control characters, a reader believes text whose direction was turned round, a spreadsheet
runs what begins with `=`. All of these are shown as what they are: `\\x1b`, `\\u202e`.
"""

from __future__ import annotations

import re
from typing import Any

_CONTROLS = re.compile(
    "[\x00-\x1f\x7f-\x9f"  # C0, DEL, C1
    "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"  # marks, embeddings, overrides and isolates of direction
    "\u2028\u2029\ufeff\ufff9-\ufffb"  # line ends that are none, marks that are not seen
    "\ud800-\udfff\ufffe\uffff"  # no characters: bytes of a file name, what XML cannot hold
    "\U000e0000-\U000e007f]"  # tags, which are not seen
)
_FORMULA = ("=", "+", "-", "@", "＝", "＋", "－", "＠")


def _name(found: re.Match[str]) -> str:
    c = found[0]
    short = {"\n": r"\n", "\r": r"\r", "\t": r"\t"}.get(c)
    return short or (f"\\x{ord(c):02x}" if ord(c) < 0x100 else f"\\u{ord(c):04x}")


def visible(text: str) -> str:
    """A text of one line, with all that steers or deceives shown as what it is."""
    return _CONTROLS.sub(_name, text)


def lines(text: str, but: str = "") -> str:
    """The same for a text that may have line ends and tabs of its own, and the characters `but`."""
    return _CONTROLS.sub(lambda found: found[0] if found[0] in "\n\t" + but else _name(found), text)


def lines_in(value: Any, but: str = "") -> Any:
    """Plain data with `lines` done to its texts, names included."""
    if isinstance(value, str):
        return lines(value, but)
    if isinstance(value, dict):
        return {
            lines(key, but) if isinstance(key, str) else key: lines_in(v, but) for key, v in value.items()
        }
    return [lines_in(one, but) for one in value] if isinstance(value, list | tuple) else value


def json(text: str) -> str:
    """A JSON document, as text, whose strings hold none of them raw; it says the same."""

    def name(found: re.Match[str]) -> str:
        c = ord(found[0])
        if c > 0xFFFF:
            c -= 0x10000
            return f"\\u{0xD800 + (c >> 10):04x}\\u{0xDC00 + (c & 0x3FF):04x}"
        # between its strings JSON has line ends of its own; within them they are escaped already
        return found[0] if c == 0x0A else f"\\u{c:04x}"

    return _CONTROLS.sub(name, text)


def cell(value: Any) -> Any:
    """A cell of CSV; a text that a spreadsheet would take for a formula is marked as text."""
    if not isinstance(value, str):
        return value
    text = visible(value)
    return f"'{text}" if text.lstrip().startswith(_FORMULA) else text
