"""Service chains on the dashboard: those that run on this machine, drawn, with packets as they grow."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from netdyno.errors import Error
from netdyno.switch.chain import running
from netdyno.switch.chain.running import RunningChain


def chains(_: Mapping[str, str]) -> dict[str, Any]:
    """What can be watched here."""
    return {"chains": [{"id": one.id, "name": title(one)} for one in running.running()]}


def chain(asked: Mapping[str, str]) -> dict[str, Any]:
    """A chain that runs: its drawing, and the packets of each hop now."""
    wanted = asked.get("id", "")
    one = next((one for one in running.running() if one.id == wanted), None)
    if one is None:
        raise Error("ND-104-28", "it does not run any more", at=wanted[:80], fix="Choose another one")
    try:
        seen = one.look()
    except OSError as e:
        # it ends while it is looked at
        raise Error("ND-104-28", f"its hops cannot be read: {e.strerror}", at=wanted[:80]) from e
    hops = [{"name": hop, "kind": one.kinds.get(hop, ""), **asdict(counts)} for hop, counts in seen.items()]
    return {
        **one.diagram().document(),
        "name": title(one),
        "time": time.monotonic(),
        "passed": one.on_edges(seen),
        "hops": hops,
        "paths": [
            {"class": name, "hops": list(path), "by": one.by.get(name)} for name, path in one.paths.items()
        ],
    }


def title(one: RunningChain) -> str:
    """Its switch and functions in a line."""
    return f"{one.switch}: {', '.join(one.kinds) or 'no function'}"
