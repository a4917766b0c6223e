"""Pages of what a NAT has: as many as were asked for, and whether there are more."""

from __future__ import annotations

from typing import Any, cast

import pytest

from netdyno.core.client import Client
from netdyno.nat import running
from netdyno.nat.running import Running


class Paged:
    """A daemon that gives entries up to a cursor; where a page ends with the last one it cannot know that, and gives a cursor too."""

    def __init__(self, count: int) -> None:
        self.count = count

    def call(self, method: str, *, cursor: str | None, limit: int, **_: Any) -> dict[str, Any]:
        first = int(cursor or 0)
        last = min(first + limit, self.count)
        return {"found": list(range(first, last)), "next": None if first + limit > self.count else str(last)}


@pytest.mark.parametrize("count", [0, 1, 4, 5, 6, 50])
@pytest.mark.parametrize("most", [1, 5, 6])
def test_there_are_more_where_there_is_one_more(
    count: int, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(running, "PAGE", 3)
    nat = Running("cgn", cast("Client", Paged(count)), "1")
    assert nat.pages("nat.sessions", "found", most) == (list(range(min(count, most))), count > most)
