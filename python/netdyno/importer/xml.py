"""SIPp XML as elements with their lines; entities and files of others are refused."""

from __future__ import annotations

from dataclasses import dataclass, field
from xml.parsers import expat

from netdyno.errors import Error

DEEPEST = 16
"""Elements in each other."""
MOST = 10_000
"""Elements of a file."""


@dataclass
class Element:
    """An element of a scenario."""

    name: str
    attributes: dict[str, str]
    line: int
    text: str = ""
    children: list[Element] = field(default_factory=list)

    def get(self, *names: str) -> str | None:
        """The first attribute of these names that is there."""
        return next((self.attributes[name] for name in names if name in self.attributes), None)

    def flag(self, name: str) -> bool:
        """Whether an attribute is `true`."""
        return self.attributes.get(name, "").lower() in ("true", "1")


def read(data: bytes, name: str) -> Element:
    """The root element. Raises with the line where the file is no XML."""
    parser = expat.ParserCreate()
    # the document type names a file that SIPp has; nothing is read from it
    parser.SetParamEntityParsing(expat.XML_PARAM_ENTITY_PARSING_NEVER)
    parser.buffer_text = True
    open_: list[Element] = []
    roots: list[Element] = []
    count = 0

    def fault(what: str, fix: str = "") -> Error:
        return Error("ND-104-73", what, at=f"{name}:{parser.CurrentLineNumber}", fix=fix)

    def start(tag: str, attributes: dict[str, str]) -> None:
        nonlocal count
        count += 1
        if len(open_) >= DEEPEST or count > MOST:
            raise fault("elements are too many, or too deep in each other", "SIPp scenarios are flat")
        made = Element(tag, attributes, parser.CurrentLineNumber)
        (open_[-1].children if open_ else roots).append(made)
        open_.append(made)

    def text(words: str) -> None:
        if open_:
            open_[-1].text += words

    def entity(*_: object) -> None:
        raise fault("entities are not read", "Write the text in place of the entity")

    parser.StartElementHandler = start
    parser.EndElementHandler = lambda _: open_.pop()
    parser.CharacterDataHandler = text
    parser.EntityDeclHandler = entity
    try:
        parser.Parse(data, True)
    except expat.ExpatError as e:
        what = f"it is no XML: {expat.errors.messages[e.code]}"
        raise Error("ND-104-73", what, at=f"{name}:{e.lineno}:{e.offset}", fix="See `xmllint`") from e
    except (LookupError, ValueError) as e:
        fix = "Write the file in UTF-8, or name its encoding right"
        raise Error("ND-104-73", f"it is no XML: {e}", at=f"{name}:1", fix=fix) from e
    if roots[0].name != "scenario":
        fix = "A SIPp scenario has <scenario> around its steps"
        raise Error("ND-104-73", f"<{roots[0].name}> is no scenario", at=f"{name}:{roots[0].line}", fix=fix)
    return roots[0]
