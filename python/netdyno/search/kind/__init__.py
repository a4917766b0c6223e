"""Kinds of searches, one a file, with a verb of `netdyno bench` each; systems add theirs (`systems.py`)."""

from __future__ import annotations

from collections.abc import Mapping

from netdyno.lazy import Lazy
from netdyno.search.kind.application import (
    Concurrent,
    Connections,
    ObjectThroughput,
    TransactionLatency,
    Transactions,
)
from netdyno.search.kind.back_to_back import BackToBack
from netdyno.search.kind.latency import Latency
from netdyno.search.kind.loss import Loss
from netdyno.search.kind.recovery import Recovery
from netdyno.search.kind.reset import Reset
from netdyno.search.kind.throughput import Rate, Throughput
from netdyno.search.request import Kind
from netdyno.systems import named

KINDS: Mapping[str, Kind] = Lazy(
    {
        kind.name: kind
        for kind in (
            Throughput(),
            Loss(),
            BackToBack(),
            Latency(),
            Recovery(),
            Reset(),
            Rate(),
            Connections(),
            Concurrent(),
            Transactions(),
            ObjectThroughput(),
            TransactionLatency(),
        )
    },
    named("searches"),
)
"""By name."""
