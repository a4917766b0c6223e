"""Which work a DPDK port does by itself, and which is done in software: as the core says, in words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

WORDS = {
    "spread": "frames dealt out to queues",
    "checksums_sent": "checksums sent",
    "checksums_received": "checksums received",
    "vlan": "VLAN tags",
    "segments": "TCP segments",
    "stamps": "time stamps",
}
"""Kinds of work, in the order in which they are told."""


def shares(port: Mapping[str, Any]) -> tuple[list[str], list[str]]:
    """What the port does, and what is done in software; work that both do is in both."""
    work = port.get("work") or {}
    told = [
        (WORDS.get(key, key), str(work[key]))
        for key in (*WORDS, *sorted(work.keys() - WORDS.keys()))
        if key in work
    ]
    itself = [word for word, by in told if "port" in by or by == "hardware"]
    return itself, [word for word, by in told if "software" in by]
