"""What streams tell: the list of runs, a run under way, and what a system shows."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from netdyno.core.client import Client
from netdyno.core.redaction import hide
from netdyno.errors import Error
from netdyno.report import network
from netdyno.store import Store
from netdyno.system import proc
from netdyno.web import run_views
from netdyno.web.follow import Follower

MOST = 1000
"""Runs of the list."""
WRITES = 10.0
"""Seconds after its last trial in which the process of a run may write more; one that goes on, like a
notebook, holds nobody up for longer."""
LOOK = 1.0
"""Seconds between two looks whether a run is over."""


class RunList:
    """The runs of the store, the latest first."""

    over = False

    def __init__(self) -> None:
        self._rows: list[dict[str, Any]] | None = None

    async def read(self) -> Any:
        """All of them, when one has changed."""
        before = self._rows
        self._rows = await asyncio.to_thread(self._read)
        return self._rows if self._rows != before else None

    async def snapshot(self) -> Any:
        """All of them."""
        return self._rows

    def _read(self) -> list[dict[str, Any]]:
        with Store() as store:
            return [run_views.row(one) for one in store.rows(MOST)]


class Look:
    """What a system shows; where it cannot, why."""

    over = False

    def __init__(self, look: Callable[[Mapping[str, str]], Any], asked: Mapping[str, str]) -> None:
        self._look, self._asked = look, asked
        self._found: Any = None

    async def read(self) -> Any:
        """All of it, when it has changed."""
        before = self._found
        try:
            self._found = await asyncio.to_thread(self._look, self._asked)
        except Error as e:
            self._found = {"error": {**e.as_dict(), "what": hide(e.what)}}
        return self._found if self._found != before else None

    async def snapshot(self) -> Any:
        """All of it."""
        return self._found


class RunSource:
    """A run under way."""

    def __init__(self, run: str, folder: Path) -> None:
        self.run, self.over = run, False
        self.follower = Follower(folder)
        self._asked = 0.0
        self._owner: tuple[int, int] | None = None
        self._finished: float | None = None
        """When the run was first seen to be over."""
        self._links: dict[str, str] = {}
        """What passed impaired links, by the edge of the drawing."""

    async def read(self) -> Any:
        """What is new."""
        update = await asyncio.to_thread(self.follower.read)
        now = asyncio.get_running_loop().time()
        if now - self._asked >= LOOK:
            self._asked = now
            self.over = await asyncio.to_thread(self.is_over, now)
            asked = self.follower.plan.get("links")
            if isinstance(asked, dict):
                self._links = await asyncio.to_thread(_links, asked)
        if not update.changed:
            return None
        news: dict[str, Any] = {"now": self.follower.now(), "links": self._links}
        if update.again:
            news["again"] = await asyncio.to_thread(self.follower.snapshot)
        elif update.columns:
            news |= {"t": update.t, "columns": update.columns}
        return news

    async def snapshot(self) -> Any:
        """Everything."""
        again = await asyncio.to_thread(self.follower.snapshot)
        return {"again": again, "now": self.follower.now(), "links": self._links}

    def is_over(self, now: float) -> bool:
        """Also what its process writes after the last trial, like ladders, is there."""
        with Store() as store:
            owner = store.owners().get(self.run)
        if owner is None:
            self._finished = now if self._finished is None else self._finished
            if now - self._finished > WRITES:
                return True
        self._owner = owner or self._owner
        return self._owner is None or not proc.alive(*self._owner)


def _links(asked: Mapping[str, Any]) -> dict[str, str]:
    """What passed impaired links so far; nothing once they are gone."""
    found = {}
    with contextlib.suppress(Error), Client(str(asked["daemon"]), timeout=2.0) as client:
        for one in asked["links"]:
            stats = client.call("impair.stats", link=one["link"])
            ends = (str(one[end]).partition(".")[0] for end in ("a", "b"))
            found[" ".join(ends)] = network.counted(stats["a_to_b"], stats["b_to_a"])
    return found
