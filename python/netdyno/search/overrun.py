"""What reached our own receiver and was not taken by it: that is no loss of the DUT's.

A NIC counts what its receive queue has no room for. A cable in memory refuses it at the other end, where it
counts as a drop of the element that sent it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from netdyno.core.result import Repetition
from netdyno.experiment.spec import table
from netdyno.search import wiring

RECEIVER = "receiver"
FULL = 32.0
"""Packets of a burst from which on a worker has more to do than it can."""


def refused(repetition: Repetition, profile: Mapping[str, Any]) -> int:
    """Frames that cables to our receivers refused, at most: those of the warm-up are among them."""
    dpdk = wiring.graph(profile)
    elements = [(wiring.bare(str(one["name"])), one) for one in repetition.elements]
    full = {name for name, one in elements if one.get("packets_per_batch", 0) >= FULL}
    # between two workers is a ring, which also fills where the one that only sends is slow
    senders = {
        sender
        for receiver, sender, port in _cables(dpdk)
        if wiring.together(dpdk, sender, port) or receiver in full
    }
    return sum(int((one.get("drops") or {}).get("refused", 0)) for name, one in elements if name in senders)


def _cables(dpdk: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    """Of each cable that a receiver of ours takes from: our port, who sends to it, and by which port."""
    ports, edges = wiring.ports(dpdk), list(wiring.edges(dpdk))
    kinds = {name: table(one).get("kind") for name, one in table(dpdk.get("elements")).items()}
    for own in {a.partition(".")[0] for a, b in edges if kinds.get(b) == RECEIVER} & ports.keys():
        for far in ports:
            if far != own and ports[far] == ports[own] and ports[own].startswith("pair:"):
                yield from ((f"{own}.rx", a, b) for a, b in edges if b == f"{far}.tx")
