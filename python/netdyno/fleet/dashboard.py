"""Fleets on the dashboard: their hosts, and what each is at."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from typing import Any

from netdyno.errors import Error
from netdyno.fleet import agents, status
from netdyno.store import Store

AGAIN, SHARE = 3.0, 0.2
"""Seconds between two looks at the agents, and the share of the time that looking may take: over SSH each
is a session of its own."""

_lock = threading.Lock()
_seen: list[dict[str, Any]] = []
_next = 0.0


def fleets(asked: Mapping[str, str]) -> dict[str, Any]:
    """Fleets that are up, with how their hosts were a few seconds ago at most."""
    global _seen, _next  # noqa: PLW0603 - all viewers share one look
    if asked:
        raise Error("ND-104-10", f"there is no parameter {min(asked)[:80]!r}", fix="Leave it out")
    with _lock:
        began = time.monotonic()
        if began >= _next or [one["name"] for one in _seen] != agents.names():
            _seen = [{"name": name, "hosts": status.ask(agents.load(name))} for name in agents.names()]
            now = time.monotonic()
            _next = now + max(AGAIN, (now - began) / SHARE)
        runs = _runs()
        return {"fleets": [one | {"runs": runs.get(one["name"], [])} for one in _seen]}


def _runs() -> dict[str, list[dict[str, str]]]:
    """By fleet, the runs under way whose load it generates."""
    found: dict[str, list[dict[str, str]]] = {}
    with Store() as store:
        for row in store.rows():
            if row.state == "running" and row.subject.fleet:
                found.setdefault(row.subject.fleet, []).append({"id": row.id, "name": row.name})
    return found
