"""Hosts of a fleet, as the parts of a merged result name them."""

from __future__ import annotations

from netdyno.core.wire import WorkerUsage


def of_worker(worker: WorkerUsage) -> str:
    """The host of a worker; empty outside a fleet."""
    return str((worker.model_extra or {}).get("host") or "")
