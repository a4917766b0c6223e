"""Whether pauses of workers explain what a trial lost: whose they are, and what rings hold."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from netdyno.core.result import Repetition
from netdyno.experiment.spec import table
from netdyno.search import wiring
from netdyno.stats import pauses
from netdyno.stats.pauses import WorkerPauses

CABLE = 2047
"""Frames that a cable in memory holds each way."""
RING = 1023
"""Frames that a ring between two workers holds, and a receive ring at least, where nothing else is known."""
ENDS = frozenset({"generator", "receiver"})
"""Kinds of elements that are no part of what is measured."""


def excused(repetition: Repetition, profile: Mapping[str, Any], sent: int, lost: int) -> str:
    """Why what was lost is no evidence against the DUT; nothing if pauses do not explain it."""
    seconds = repetition.phases.measure
    if seconds <= 0:
        return ""
    return pauses.excuse(workers(repetition, profile), lost, sent / seconds, room(profile))


def workers(repetition: Repetition, profile: Mapping[str, Any]) -> list[WorkerPauses]:
    """All workers whose pauses are known: of our generator, and of DUTs that a daemon of ours runs."""
    ends = _ends(profile)
    own = [
        WorkerPauses(
            f"worker {one.worker} of the {'generator' if one.worker in ends else 'DUT'}", one.core, one.pauses
        )
        for one in repetition.workers
        if one.pauses is not None
    ]
    return own + [
        WorkerPauses(f"worker {one.worker} of {name}", one.core, one.pauses)
        for name, dut in repetition.dut.items()
        for one in dut.workers
    ]


def _ends(profile: Mapping[str, Any]) -> set[int]:
    """Workers that send or receive what is measured; all, where the profile has no graph of its own."""
    dpdk = wiring.graph(profile)
    elements, placement = table(dpdk.get("elements")), dpdk.get("placement") or []
    kinds = {name: table(one).get("kind") for name, one in elements.items()}
    if not ENDS & {*kinds.values()}:
        return set(range(max(1, len(placement))))
    if not placement:
        return {0}
    return {
        number
        for number, one in enumerate(placement)
        if any(kinds.get(str(name).partition("#")[0]) in ENDS for name in table(one).get("elements") or [])
    }


def room(profile: Mapping[str, Any]) -> int:
    """What a ring holds at least of what comes while nobody takes anything from it."""
    dpdk = wiring.graph(profile)
    devices = wiring.ports(dpdk).values()
    cables = bool(devices) and all(device.startswith("pair:") for device in devices)
    return CABLE if cables and all(wiring.together(dpdk, a, b) for a, b in wiring.edges(dpdk)) else RING
