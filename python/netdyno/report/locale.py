"""The report's languages: gettext catalogues, read without a compiler."""

from __future__ import annotations

import ast
from functools import cache
from importlib.resources import files

from netdyno.systems import SYSTEMS

#: Languages in the order of the switch, each by its own name.
LANGUAGES = {"en": "English", "ko": "한국어"}


def parse_po(text: str) -> dict[str, str]:
    """Message → translation of a `.po` file; the header and untranslated messages are left out."""
    messages: dict[str, str] = {}
    entry = {"msgid": "", "msgstr": ""}
    field = ""
    fuzzy = False

    def flush() -> None:
        if entry["msgid"] and entry["msgstr"] and not fuzzy:
            messages[entry["msgid"]] = entry["msgstr"]

    for raw in text.splitlines():
        line = raw.strip()
        if line.startswith("#,"):
            if field == "msgstr":
                flush()
                entry, field = {"msgid": "", "msgstr": ""}, ""
            fuzzy = "fuzzy" in line
        elif line.startswith(("msgid ", "msgstr ")):
            keyword, _, quoted = line.partition(" ")
            if keyword == "msgid":
                if field == "msgstr":
                    flush()
                    fuzzy = False
                entry = {"msgid": "", "msgstr": ""}
            field = keyword
            entry[field] = str(ast.literal_eval(quoted))
        elif line.startswith('"') and field:
            entry[field] += str(ast.literal_eval(line))
    flush()
    return messages


@cache
def catalogue(language: str) -> dict[str, str]:
    """Message → translation for one of `LANGUAGES`: the platform's, and those of systems."""
    messages: dict[str, str] = {}
    for package in (__package__, *(f"netdyno.{one.name}" for one in SYSTEMS)):
        messages |= parse_po((files(package) / "locale" / f"{language}.po").read_text(encoding="utf-8"))
    return messages


def catalogues() -> dict[str, dict[str, str]]:
    """All of them."""
    return {language: catalogue(language) for language in LANGUAGES}


def N_(message: str) -> str:  # noqa: N802 - gettext's own name for "translate this later"
    """Mark a message that is translated where it is shown."""
    return message
