"""Passwords of the command line: all verbs of SIP take `env:NAME`, `file:PATH`, or the password itself."""

from __future__ import annotations

from netdyno.cli import console
from netdyno.core import secret

METAVAR = "env:NAME|file:PATH|TEXT"


def noted(text: str | None, option: str = "--password") -> str | None:
    """The same text; of a password that stands among the arguments a note says so."""
    if text is not None and not _names_a_place(text):
        console.note(
            f"{option}: other users of this machine can read the arguments of a command, so this password: "
            "env:NAME or file:PATH hides it"
        )
    return text


def read(text: str, option: str = "--password") -> str:
    """The password."""
    noted(text, option)
    return secret.from_option(text, option)


def _names_a_place(text: str) -> bool:
    kind, colon, _ = text.partition(":")
    return bool(colon) and kind in ("env", "file")
