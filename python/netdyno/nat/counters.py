"""What passed each stage of a NAT, and what was dropped there and why: from what its daemon counts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from netdyno.nat.reasons import meaning
from netdyno.nat.running import Running

STAGES = {"rx": "RX", "validity": "validity", "subscriber-table": "NAT", "nat44": "ConnTrack", "tx": "TX"}
"""Kinds of elements → stages; others are the box's own."""
OWN = "box"


@dataclass(frozen=True)
class Stage:
    """An element, all its replicas together."""

    stage: str
    element: str
    kind: str
    packets_in: int
    packets_out: int
    bytes: int | None
    """Of queues of ports."""
    drops: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class DropCount:
    """Packets an element dropped for one reason."""

    element: str
    reason: str
    packets: int
    meaning: str


@dataclass(frozen=True)
class Counters:
    """All of a NAT, since its start."""

    elapsed: float
    forwarded_up: int
    forwarded_down: int
    stages: tuple[Stage, ...]
    dropped: tuple[DropCount, ...]
    lost: tuple[str, ...]
    """Optional ports that are gone."""

    def as_dict(self) -> dict[str, Any]:
        """As JSON has it."""
        return {
            "elapsed": self.elapsed,
            "forwarded_up": self.forwarded_up,
            "forwarded_down": self.forwarded_down,
            "elements": [asdict(one) for one in self.stages],
            "drops": [asdict(one) for one in self.dropped],
            "lost": list(self.lost),
        }


def ask(nat: Running) -> Counters:
    """Those of a NAT that runs."""
    return counters(nat.call("graph.describe"), nat.call("graph.stats"), nat.call("nat.status")["workers"])


def counters(
    shape: Mapping[str, Any], stats: Mapping[str, Any], workers: Sequence[Mapping[str, Any]]
) -> Counters:
    """From the graph's shape and counters, and the trackers' numbers."""
    kinds = {one["name"]: str(one["kind"]) for one in shape["elements"]}
    weights, lost = stats.get("bytes", {}), _of_ports(stats.get("interfaces", {}))
    found: dict[str, list[Mapping[str, Any]]] = {}
    for one in stats["elements"]:
        found.setdefault(name(one["name"]), []).append(one)
    stages = tuple(
        _stage(element, of, kinds, weights, lost.get(element, {})) for element, of in found.items()
    )
    listed = [
        DropCount(one.element, reason, count, meaning(one.kind, reason))
        for one in stages
        for reason, count in one.drops.items()
    ]
    return Counters(
        elapsed=float(stats["status"]["elapsed"]),
        forwarded_up=sum(one["forwarded_up"] for one in workers),
        forwarded_down=sum(one["forwarded_down"] for one in workers),
        stages=tuple(sorted(stages, key=lambda one: [*STAGES.values(), OWN].index(one.stage))),
        dropped=tuple(sorted(listed, key=lambda one: -one.packets)),
        lost=tuple(stats["status"].get("lost", ())),
    )


def name(element: str) -> str:
    """Of an element without the number of its replica, and of a queue without its own."""
    whole = element.partition("#")[0]
    port, dot, queue = whole.rpartition(".")
    return f"{port}.{queue.rstrip('0123456789')}" if dot else whole


def _of_ports(interfaces: Mapping[str, Mapping[str, int]]) -> dict[str, dict[str, int]]:
    """What ports lost before their queues' elements had it, or after, by the names of these."""
    found = {}
    for port, counts in interfaces.items():
        found[f"{port}.rx"] = {"port_dropped": counts["rx_dropped"], "port_errors": counts["rx_errors"]}
        found[f"{port}.tx"] = {"port_dropped": counts["tx_dropped"]}
    return found


def _stage(
    element: str,
    of: Sequence[Mapping[str, Any]],
    kinds: Mapping[str, str],
    weights: Mapping[str, int],
    lost: Mapping[str, int],
) -> Stage:
    kind = kinds[of[0]["name"]]
    drops = Counter({reason: count for reason, count in lost.items() if count})
    for one in of:
        drops.update({reason: count for reason, count in one["drops"].items() if count})
    heavy = [weights[one["name"]] for one in of if one["name"] in weights]
    return Stage(
        stage=OWN if "-kernel." in element else STAGES.get(kind, OWN),
        element=element,
        kind=kind,
        packets_in=sum(one["packets_in"] for one in of),
        packets_out=sum(one["packets_out"] for one in of),
        bytes=sum(heavy) if heavy else None,
        drops=dict(drops),
    )
