"""Files of kernel parameters that other tools read: those of sysctl.d, and profiles of TuneD."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from netdyno import reading
from netdyno.errors import Error

PROFILE = "tuned.conf"
"""The file of a TuneD profile, in the profile's folder."""
_SECTION = re.compile(r"\[([^\]]*)\]\s*")


@dataclass(frozen=True)
class SysctlFile:
    """Values by name with dots, and what cannot be read as one value of one parameter."""

    values: Mapping[str, str]
    optional: frozenset[str] = frozenset()
    """Those with a `-` before: they may be missing."""
    left_out: Mapping[str, str] = field(default_factory=dict)


def is_one(path: Path) -> bool:
    """Whether a file is one of these, by its name."""
    return path.suffix == ".conf" or path.name == "sysctl"


def read(path: Path) -> SysctlFile:
    """The parameters of a file; of a profile, those of its section `[sysctl]`."""
    lines = list(_lines(reading.text(path)))
    sections = [found[1].strip() for _, line in lines if (found := _SECTION.fullmatch(line))]
    if sections and "sysctl" not in sections:
        fix = "Give a profile with kernel parameters, or a file of sysctl.d"
        raise Error("ND-104-22", f"it has no section [sysctl], only {', '.join(sections)}", str(path), fix)
    values: dict[str, str] = {}
    optional: set[str] = set()
    left_out: dict[str, str] = {}
    section = "" if sections else "sysctl"
    for number, line in lines:
        if found := _SECTION.fullmatch(line):
            section = found[1].strip()
            continue
        key, equals, value = (part.strip() for part in line.partition("="))
        if section == "main" and key == "include" and equals:
            left_out[f"the profile {value}"] = "a profile that this one includes is not read"
        if section != "sysctl":
            continue
        plain = key.removeprefix("-").strip()
        if not plain or not (equals or key.startswith("-")):
            fix = "Write NAME = VALUE; a comment begins with # or ;"
            raise Error("ND-104-22", f"{line[:60]!r} is no parameter", f"{path}, line {number}", fix)
        name = dotted(plain)
        if why := _unreadable(name, value, bool(equals)):
            left_out[name] = why
            continue
        # as sysctl reads it, the last one counts
        values[name] = value
        (optional.add if key.startswith("-") else optional.discard)(name)
    return SysctlFile(values, frozenset(optional), left_out)


def dotted(name: str) -> str:
    """A name with dots; where slashes separate, a dot is part of a name, and the other way round."""
    first = re.search(r"[./]", name)
    if first is None or first[0] == ".":
        return name
    return name.translate(str.maketrans("./", "/."))


def _lines(text: str) -> Iterator[tuple[int, str]]:
    """Lines that say something, with their numbers; one that ends with a backslash goes on."""
    begun, first = "", 0
    for number, raw in enumerate(text.splitlines(), 1):
        line = raw.strip()
        if not begun and (not line or line[0] in "#;"):
            continue
        first = first if begun else number
        if line.endswith("\\"):
            begun += f"{line[:-1]} "
            continue
        yield first, begun + line
        begun = ""
    if begun.strip():
        yield first, begun.strip()


def _unreadable(name: str, value: str, equals: bool) -> str:
    if not equals:
        return "it only excludes a name from patterns"
    if any(sign in name for sign in "*?["):
        return "a pattern of names"
    if "${" in value:
        return "its value is a variable of TuneD"
    if value[:1] in ("<", ">"):
        return f"it is set only if the present value is {'higher' if value[0] == '<' else 'lower'}"
    return ""
