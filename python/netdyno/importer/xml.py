"""XML of other tools as elements with their lines; entities and files of others are refused."""

from __future__ import annotations

from dataclasses import dataclass, field
from xml.parsers import expat

from netdyno.errors import Error


@dataclass(frozen=True)
class Kind:
    """What a file is to be."""

    code: str
    """Of its faults."""
    root: str
    """Name of its root element."""
    what: str
    """What it is called, like `JMeter plan`."""
    deepest: int
    """Elements in each other."""
    most: int = 10_000
    """Elements of a file."""


@dataclass
class Element:
    """An element with its place."""

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


def read(data: bytes, name: str, kind: Kind) -> Element:
    """The root element. Raises with the line where the file is no XML."""
    parser = expat.ParserCreate()
    # the document type may name a file; nothing is read from it
    parser.SetParamEntityParsing(expat.XML_PARAM_ENTITY_PARSING_NEVER)
    parser.buffer_text = True
    open_: list[Element] = []
    roots: list[Element] = []
    count = 0

    def fault(what: str, fix: str = "") -> Error:
        return Error(kind.code, what, at=f"{name}:{parser.CurrentLineNumber}", fix=fix)

    def start(tag: str, attributes: dict[str, str]) -> None:
        nonlocal count
        count += 1
        if len(open_) >= kind.deepest or count > kind.most:
            most = f"{kind.most} elements, {kind.deepest} in each other"
            raise fault("elements are too many, or too deep in each other", f"At most {most}")
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
        raise Error(
            kind.code, what, at=f"{name}:{e.lineno}:{e.offset}", fix="Correct the XML at this line and column"
        ) from e
    except (LookupError, ValueError) as e:
        fix = "Write the file in UTF-8, or name its encoding right"
        raise Error(kind.code, f"it is no XML: {e}", at=f"{name}:1", fix=fix) from e
    if roots[0].name != kind.root:
        fix = f"A {kind.what} has <{kind.root}> around everything"
        raise Error(kind.code, f"<{roots[0].name}> is no {kind.what}", at=f"{name}:{roots[0].line}", fix=fix)
    return roots[0]
