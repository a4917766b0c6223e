"""A ladder diagram as text: a column for each party, a line for each message."""

from __future__ import annotations

from collections.abc import Sequence

from netdyno.sip.ladder.arrow import Arrow

WIDTH = 38
"""Columns between two parties."""


def parties(arrows: Sequence[Arrow]) -> list[str]:
    """Parties in the order in which they appear."""
    return list(dict.fromkeys(name for arrow in arrows for name in (arrow.source, arrow.to)))


def head(names: Sequence[str], width: int = WIDTH) -> str:
    """The line above a diagram."""
    row = list(" " * (len(names) * width + 16))
    for at, name in enumerate(names):
        short = name if len(name) < width else f"{name[: width - 2]}…"
        row[at * width : at * width + len(short)] = short
    return "            " + "".join(row).rstrip()


def line(arrow: Arrow, names: Sequence[str], width: int = WIDTH) -> str:
    """The line of a message."""
    columns = {name: at * width for at, name in enumerate(names)}
    row = ["|" if at % width == 0 else " " for at in range((len(names) - 1) * width + 1)]
    left, right = sorted((columns[arrow.source], columns[arrow.to]))
    label = arrow.summary + (" (repeated)" if arrow.again else "")
    when = f"{arrow.at_ms:8,.1f} ms"
    if left == right:
        # a party that sends to itself
        return f"{when} {''.join(row[: left + 1])}<> {label}"
    room = right - left - 5
    label = label if len(label) <= room else f"{label[: room - 1]}…"
    span = f" {label} ".center(right - left - 3, "-")
    forth = columns[arrow.source] < columns[arrow.to]
    row[left + 1 : right] = f"-{span}>" if forth else f"<{span}-"
    return f"{when} {''.join(row)}"


def lines(arrows: Sequence[Arrow], names: Sequence[str] | None = None) -> list[str]:
    """The whole diagram."""
    names = list(names or parties(arrows))
    return [head(names), *(line(arrow, names) for arrow in arrows)]
