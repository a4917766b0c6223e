"""How long packets are in transit through a chain: what its description says of that, and what was seen."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from netdyno.lab.effect import Described
from netdyno.switch.chain.capture import Captures
from netdyno.switch.chain.lab import ChainLab
from netdyno.switch.chain.sight import Key
from netdyno.switch.chain.vnf.graphs import Forwarder

QUIET = 0.3
"""Seconds without a packet after which none is in transit, beyond the time that packets take."""
UNKNOWN = 1.0
"""Seconds that packets may take through a chain beyond what is described, while none was seen to pass."""


def described(lab: ChainLab) -> float:
    """Seconds of a round trip by the delays of all paths and functions."""
    ways: list[Mapping[str, Any]] = [spec for _, spec in lab.network.described()]
    for one in lab.vnfs.values():
        if isinstance(one, Forwarder):
            elements = (one.graph().get("elements") or {}).values()
            ways += [{"a_to_b": of["impair"]} for of in elements if isinstance(of.get("impair"), Mapping)]
    return Described.of(*ways).delay


def awaited(lab: ChainLab) -> float:
    """Seconds for which a packet that is missed may still be in transit."""
    known = UNKNOWN if lab.transit is None else lab.transit
    return QUIET + 2 * known + described(lab)


def quiet(lab: ChainLab) -> float:
    """Seconds without a packet after which none is in transit."""
    return QUIET + max(lab.transit or 0.0, described(lab))


def longest(captures: Captures, packets: Iterable[Key]) -> float:
    """The longest time, in seconds, between the first and the last port of a packet. Those that
    were sent again do not count."""
    found = 0.0
    with captures.lock:
        for one in packets:
            seen = sorted(captures.every.get(one, ()), key=lambda s: s.at)
            ports = {(s.port, s.sends) for s in seen}
            if len(seen) == len(ports) and seen:
                found = max(found, (seen[-1].at - seen[0].at) / 1e9)
    return found
