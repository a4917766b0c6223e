"""Texts with `${NAME}` as templates: a constant, a column of a table, a value of a response."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from netdyno.errors import Error
from netdyno.importer.plan import CODE

LONGEST = 1 << 20
"""Characters of a text with all constants put in."""
PLACE = re.compile(r"\$\{([^{}]*)\}")
RANDOM = re.compile(r"__Random\((\d+),(\d+)(?:,[^)]*)?\)")
PROPERTY = re.compile(r"__(?:P|property)\(([^,)]+)(?:,,?([^)]*))?\)")


def escaped(text: str) -> str:
    """A text as it is, in a template."""
    return text.replace("{", "{{").replace("}", "}}")


def constants(text: str, values: Mapping[str, str], properties: Mapping[str, str]) -> str:
    """With constants and properties put in; other places stay."""

    def put(found: re.Match[str]) -> str:
        inside = found[1].strip()
        if inside in values:
            return values[inside]
        one = PROPERTY.fullmatch(inside)
        if one and (one[1] in properties or one[2] is not None):
            return properties.get(one[1], one[2] or "")
        return found[0]

    for _ in range(8):  # a value may name others
        done = PLACE.sub(put, text)
        if len(done) > LONGEST:
            raise Error(CODE, "constants name each other again and again", fix="Write their values out")
        if done == text:
            break
        text = done
    return text


def template(text: str, known: Mapping[str, str], unknown: Callable[[str], None]) -> str:
    """`known` has the place of each variable, like `{users.name}`; of others `unknown` is told."""
    out, at = [], 0
    for found in PLACE.finditer(text):
        out.append(escaped(text[at : found.start()]))
        at = found.end()
        inside = found[1].strip()
        random = RANDOM.fullmatch(inside.replace(" ", ""))
        if inside in known:
            out.append(known[inside])
        elif random:
            out.append(f"{{random:{random[1]}-{random[2]}}}")
        else:
            unknown(inside)
    return "".join(out) + escaped(text[at:])
