"""How the agents of a fleet are, as they say themselves."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from netdyno.core.client import Client
from netdyno.errors import Error
from netdyno.fleet import answers
from netdyno.fleet.agents import Agent, Fleet
from netdyno.fleet.launchers import connected
from netdyno.system.journal import journal

PATIENCE = 10.0
"""Seconds for an answer."""


def ask(fleet: Fleet) -> list[dict[str, Any]]:
    """State, load under way, cores and clock of each host; `error` where one does not answer."""
    # of this process: threads would make others
    notes, token = journal(), f"status{os.getpid()}"

    def one(agent: Agent) -> dict[str, Any]:
        about: dict[str, Any] = {
            "name": agent.host.name, "launcher": agent.host.launcher, "state": "lost", "phase": None,
            "elapsed": None, "left": None, "version": None, "cores": [], "clock_offset": None,
            "clock_error": None, "error": None,
        }  # fmt: skip
        try:
            with connected(agent, token, notes) as way, Client(way.address, timeout=PATIENCE) as client:
                core = answers.about(client.call("core.describe"), client.path)
                run, offset = client.status(), way.offset(client)
        except Error as e:
            return about | {"error": e.as_dict()}
        under_way = not run.ended and run.state != "idle"
        return about | {
            "state": run.state, "version": core["version"], "cores": agent.host.cores or core["cores"],
            "phase": run.phase if under_way else None, "elapsed": run.elapsed if under_way else None,
            "left": run.left if under_way else None,
            "clock_offset": offset.seconds, "clock_error": offset.error,
        }  # fmt: skip

    with ThreadPoolExecutor(max_workers=max(1, min(32, len(fleet.agents)))) as pool:
        return list(pool.map(one, fleet.agents))
