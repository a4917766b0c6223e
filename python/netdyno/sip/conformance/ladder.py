"""The ladder of a test as text: callers, the server, then callees."""

from __future__ import annotations

from collections.abc import Sequence

from netdyno.sip.ladder import text
from netdyno.sip.ladder.arrow import Arrow


def parties(ladder: Sequence[Arrow]) -> list[str]:
    """Callers, the server, then callees."""
    names = text.parties(ladder)
    callers = [name for name in names if name.startswith("uac")]
    return [*callers, "server", *(name for name in names if name not in [*callers, "server"])]


def lines(ladder: Sequence[Arrow]) -> list[str]:
    """The diagram."""
    return text.lines(ladder, parties(ladder))
