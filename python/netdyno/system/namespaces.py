"""Namespaces that are made to go again, with the journal."""

from __future__ import annotations

from netdyno.system import namespace
from netdyno.system.journal import Journal


def make(notes: Journal, name: str) -> int:
    """Make a namespace, noted first; the entry, which knows it from a later one of the name."""
    entry = notes.write("namespace", name=name)
    try:
        namespace.create(name)
        notes.became({entry: namespace.cookie(name)})
    except FileExistsError:
        # somebody else's, made since it was looked for
        notes.forget(entry)
        raise
    except BaseException:
        notes.undo(entry)
        raise
    return entry
