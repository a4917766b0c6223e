"""A ladder diagram of a test as text: user agents and server side by side, an arrow a message."""

from __future__ import annotations

from collections.abc import Sequence

from netdyno.sip.conformance.suite import Arrow

WIDTH = 38
"""Columns between two parties."""


def parties(ladder: Sequence[Arrow]) -> list[str]:
    """Callers, the server, then callees."""
    names = dict.fromkeys(name for arrow in ladder for name in (arrow.source, arrow.to))
    names.pop("server", None)
    callers = [name for name in names if name.startswith("uac")]
    return [*callers, "server", *(name for name in names if name not in callers)]


def lines(ladder: Sequence[Arrow]) -> list[str]:
    """The diagram."""
    names = parties(ladder)
    columns = {name: at * WIDTH for at, name in enumerate(names)}
    wide = (len(names) - 1) * WIDTH + 1
    head = list(" " * (wide + 16))
    for name, column in columns.items():
        head[column : column + len(name)] = name
    shown = ["          " + "".join(head).rstrip()]
    for arrow in ladder:
        row = list(" " * wide)
        for column in columns.values():
            row[column] = "|"
        left, right = sorted((columns[arrow.source], columns[arrow.to]))
        room = right - left - 5
        label = arrow.summary + (" (repeated)" if arrow.again else "")
        label = label if len(label) <= room else f"{label[: room - 1]}…"
        span = f" {label} ".center(right - left - 3, "-")
        forth = columns[arrow.source] < columns[arrow.to]
        row[left + 1 : right] = f"-{span}>" if forth else f"<{span}-"
        shown.append(f"{arrow.at_ms:7.0f}ms {''.join(row)}")
    return shown
