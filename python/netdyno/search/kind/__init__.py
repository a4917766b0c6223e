"""Kinds of searches, one a file; `netdyno bench` has a verb for each, but for those of studies of NATs."""

from __future__ import annotations

from netdyno.search.kind.back_to_back import BackToBack
from netdyno.search.kind.capacity import Capacity
from netdyno.search.kind.latency import Latency
from netdyno.search.kind.loss import Loss
from netdyno.search.kind.recovery import Recovery
from netdyno.search.kind.reset import Reset
from netdyno.search.kind.teardown import Teardown
from netdyno.search.kind.throughput import Rate, Throughput
from netdyno.search.wanted import Kind

KINDS: dict[str, Kind] = {
    kind.name: kind
    for kind in (
        Throughput(),
        Loss(),
        BackToBack(),
        Latency(),
        Recovery(),
        Reset(),
        Rate(),
        Capacity(),
        Teardown(),
    )
}
"""By name."""
