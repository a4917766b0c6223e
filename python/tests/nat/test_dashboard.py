"""What the dashboard asks of NATs: parameters that cannot be are refused before one is asked."""

from __future__ import annotations

from typing import Any

import pytest

from netdyno.errors import Error
from netdyno.nat import dashboard


@pytest.mark.parametrize(
    ("ask", "given", "code", "at"),
    [
        ("running", {"name": "x"}, "ND-104-10", ""),
        ("counters", {"subscriber": "10.0.0.1"}, "ND-104-10", ""),
        ("sessions", {"subscriber": "10.0.0"}, "ND-104-04", "subscriber"),
        ("sessions", {"subscriber": "10.0.0.1@70000"}, "ND-104-04", "subscriber"),
        ("sessions", {"outside": "203.0.113.1:70000"}, "ND-104-04", "outside"),
        ("sessions", {"protocol": "sctp"}, "ND-104-04", "protocol"),
        ("sessions", {"limit": "9"}, "ND-104-10", ""),
        ("subscribers", {"subscriber": "nobody"}, "ND-104-04", "subscriber"),
        ("pools", {"cursor": "-1"}, "ND-104-04", "cursor"),
        ("pools", {"cursor": "9" * 30}, "ND-104-04", "cursor"),
        ("trace", {}, "ND-104-07", "subscriber"),
        ("trace", {"subscriber": "10.0.0.1", "filter": "udp"}, "ND-104-07", "subscriber"),
        ("clear", {}, "ND-104-07", "all"),
        ("clear", {"all": "yes"}, "ND-104-07", "all"),
        ("clear", {"all": True, "protocol": "udp"}, "ND-104-07", "all"),
        ("counters", {"name": "../../etc"}, "ND-104-35", None),
        ("hand_over", {"name": "no-such"}, "ND-104-35", None),
    ],
)
def test_what_cannot_be_asked_is_refused(ask: str, given: dict[str, Any], code: str, at: str | None) -> None:
    with pytest.raises(Error) as caught:
        getattr(dashboard, ask)(given)
    assert caught.value.code == code
    assert at is None or caught.value.at == at


class Slow:
    """A NAT whose pages are short, as of one that has to look through very many sessions."""

    def __init__(self, pages: list[int]) -> None:
        self._pages = pages
        self.limits: list[int] = []

    def call(self, method: str, cursor: str | None, limit: int, **_: Any) -> dict[str, Any]:
        assert method == "nat.sessions"
        at = int(cursor or 0)
        self.limits.append(limit)
        more = str(at + 1) if at + 1 < len(self._pages) else None
        return {"sessions": [{}] * min(limit, self._pages[at]), "next": more}


def test_a_page_is_filled_from_short_ones_and_is_never_waited_for_without_end() -> None:
    few = Slow([20, 0, 20, 20, 20])
    found = dashboard._page(few, "sessions", {}, {})  # type: ignore[arg-type]
    assert (len(found["sessions"]), found["next"]) == (dashboard.PAGE, "4")
    assert few.limits == [50, 30, 30, 10]
    none = Slow([0] * 100)
    found = dashboard._page(none, "sessions", {"cursor": "3"}, {})  # type: ignore[arg-type]
    assert (found["sessions"], found["next"]) == ([], str(3 + dashboard.CALLS))


def test_more_long_questions_than_places_are_refused() -> None:
    with dashboard._place(), dashboard._place(), pytest.raises(Error, match="ND-104-11"):
        dashboard.pools({})
