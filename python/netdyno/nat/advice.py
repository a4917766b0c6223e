"""Which placement of the five stages on so many cores should carry most, from what each stage costs.

The model: a core has so many cycles a second. A worker spends on each packet the cycles of its stages, and
half of a hand-off for each ring that the packet comes by or leaves by. All packets pass the slowest worker.
Memory, sockets and hyper-threads are not in it, which is what a measurement of the proposal is for.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from netdyno.nat import cores
from netdyno.nat.cores import REPLICATED, STAGES, CoreLocation, Topology

FORMAT = "netdyno-nat-cycles/1"
WORKERS = 32
"""The most of a NAT."""
QUEUES = 16
"""The most of a port: of more workers some would receive for others."""
RECEIVING = ("rx", "validity", "tx")
"""What the first of several workers does for all, where a port has one queue."""
Worker = tuple[str, ...]
"""The stages of one worker, in their order."""


@dataclass(frozen=True)
class Cycles:
    """What was measured of a NAT in a short run."""

    stages: Mapping[str, float]
    """Cycles of each stage for a packet."""
    hand_off: float
    """Cycles that a packet costs more when it goes on to another core, on both together."""
    budget: float
    """Cycles that a core's stages have in a second."""
    ends: float = 0.0
    """Cycles of the ends that send and receive in the lab; they count only where they share a core."""

    @property
    def total(self) -> float:
        """Of a packet in all stages."""
        return sum(self.stages[stage] for stage in STAGES)


@dataclass(frozen=True)
class Placement:
    """Workers, each with the stages it does; each of several `lanes` has its share of the subscribers."""

    workers: tuple[Worker, ...]
    lanes: int = 1
    """How often NAT and ConnTrack are there."""
    to_completion: bool = False
    """Each lane is one worker, run to completion."""
    spread: bool = True
    """Run to completion: the port spreads flows over the lanes, and each receives for itself."""

    @property
    def cores(self) -> int:
        """How many it takes."""
        return (
            self.lanes
            if self.to_completion
            else len(self.workers) + max(0, self.lanes - 1) * len(self.replicas)
        )

    @property
    def replicas(self) -> tuple[Worker, ...]:
        """The workers that are there once for each lane."""
        return tuple(one for one in self.workers if set(one) <= {*REPLICATED})

    def __str__(self) -> str:
        if self.to_completion:
            how = (
                ""
                if self.lanes == 1
                else f" × {self.lanes}" + ("" if self.spread else ", one receives for all")
            )
            return f"run-to-completion{how}"
        names = ["+".join(worker) for worker in self.workers]
        return " | ".join(f"{name} × {self.lanes}" if self.lanes > 1 and one in self.replicas else name
                          for name, one in zip(names, self.workers, strict=True))  # fmt: skip


@dataclass(frozen=True)
class Prediction:
    """Predicted load of a placement."""

    placement: Placement
    load: Mapping[str, float]
    """Cycles that each worker has for a packet that passes the NAT."""
    rate: float
    """Packets per second."""
    slowest: str
    """The worker that bounds it."""


def predict(placement: Placement, cycles: Cycles, ends_on: str | None = None) -> Prediction:
    """What a placement should carry; `ends_on`: the worker whose core the lab's ends share."""
    load = _to_completion(placement, cycles) if placement.to_completion else _by_stage(placement, cycles)
    if ends_on is not None:
        load = {name: one + (cycles.ends if name == ends_on else 0.0) for name, one in load.items()}
    slowest = max(load, key=lambda name: load[name])
    return Prediction(placement, load, cycles.budget / load[slowest] if load[slowest] else 0.0, slowest)


def _to_completion(placement: Placement, cycles: Cycles) -> dict[str, float]:
    lanes = placement.lanes
    if placement.spread or lanes == 1:
        return {"each": cycles.total / lanes}
    shared = sum(cycles.stages[stage] for stage in RECEIVING)
    own = sum(cycles.stages[stage] for stage in REPLICATED) / lanes
    # what is another lane's goes to it over a ring, and comes back over one
    across = cycles.hand_off * (lanes - 1) / lanes
    return {"first": shared + own + across, "others": own + cycles.hand_off / lanes}


def _by_stage(placement: Placement, cycles: Cycles) -> dict[str, float]:
    on = {stage: number for number, worker in enumerate(placement.workers) for stage in worker}
    load = [sum(cycles.stages[stage] for stage in worker) for worker in placement.workers]
    for a, b in pairwise(STAGES):
        if on[a] != on[b]:
            load[on[a]] += cycles.hand_off / 2
            load[on[b]] += cycles.hand_off / 2
    return {
        "+".join(worker): one / (placement.lanes if worker in placement.replicas else 1)
        for worker, one in zip(placement.workers, load, strict=True)
    }


# ---- all placements


def placements(count: int, *, spread: bool, several: bool = True) -> Iterator[Placement]:
    """Every placement on at most so many cores: stages in any groups, in lanes if there may be `several`."""
    most = (QUEUES if spread else WORKERS) if several else 1
    for lanes in range(1, min(count, most) + 1):
        yield Placement((STAGES,), lanes, to_completion=True, spread=spread)
    for groups in _partitions(STAGES):
        one = Placement(groups)
        if 1 < one.cores <= count:
            yield one
        if not _replicable(groups):
            continue
        for lanes in range(2, min(count - 1, WORKERS if several else 1) + 1):
            wide = Placement(groups, lanes)
            if wide.cores <= count:
                yield wide


def _replicable(groups: Sequence[Worker]) -> bool:
    """Whether NAT and ConnTrack have workers of their own, of which there can be several."""
    return all(set(group) <= {*REPLICATED} or not set(group) & {*REPLICATED} for group in groups)


def _partitions(stages: Sequence[str]) -> Iterator[tuple[Worker, ...]]:
    if not stages:
        yield ()
        return
    first, rest = stages[0], stages[1:]
    for groups in _partitions(rest):
        yield ((first,), *groups)
        for number, group in enumerate(groups):
            yield ((first, *group), *groups[:number], *groups[number + 1 :])


def ranked(cycles: Cycles, count: int, *, spread: bool, several: bool = True) -> list[Prediction]:
    """All placements, the one that should carry most first; of equals the one with fewer cores and rings."""
    found = [predict(one, cycles) for one in placements(count, spread=spread, several=several)]

    def order(one: Prediction) -> tuple[float, int, int]:
        return -round(one.rate, 3), one.placement.cores, len(one.placement.workers)

    return sorted(found, key=order)


def of_set(name: str, there: Topology) -> Placement:
    """A core set by name as it comes to be on a machine: what folds onto one core is one worker."""
    wanted = [CoreLocation.of(cores.named()[name][stage]) for stage in STAGES]
    numbers, _ = cores.resolve(wanted, there)
    return grouped(dict(zip(STAGES, numbers, strict=True)))


def grouped(on: Mapping[str, int]) -> Placement:
    """The placement of stages by core."""
    found: dict[int, list[str]] = {}
    for stage in STAGES:
        found.setdefault(on[stage], []).append(stage)
    workers = tuple(tuple(stages) for stages in found.values())
    return Placement(workers, to_completion=len(workers) == 1)


# ---- as keys of a configuration


def keys(placement: Placement, there: Topology, near: int | None = None) -> dict[str, object]:
    """What a configuration says to have it: `execution` and `workers`."""
    if placement.to_completion:
        return {"execution": "run-to-completion"} | (
            {"workers": placement.lanes} if placement.lanes > 1 else {}
        )
    order = iter(there.in_order(near))
    execution: dict[str, object] = {}
    for worker in placement.workers:
        lanes = placement.lanes if worker in placement.replicas else 1
        names = [there.name(next(order)) for _ in range(lanes)]
        execution |= {
            stage: names if placement.lanes > 1 and stage in REPLICATED else names[0] for stage in worker
        }
    made: dict[str, object] = {"execution": {stage: execution[stage] for stage in STAGES}}
    return made | ({"workers": placement.lanes} if placement.lanes > 1 else {})


# ---- from counters of elements


def measured(
    own: Mapping[str, tuple[float, float]],
    piped: Mapping[str, tuple[float, float]] | None,
    crossings: int,
    budget: float,
    ends: float,
) -> Cycles:
    """From cycles and packets of each stage: on one worker, and on several with so many rings between."""
    stages = _each(own)
    more = sum(_each(piped).values()) - sum(stages.values()) if piped and crossings else 0.0
    return Cycles(stages, max(0.0, more / max(1, crossings)), budget, ends)


def _each(found: Mapping[str, tuple[float, float]]) -> dict[str, float]:
    """Cycles of each stage for a packet that passes the NAT."""
    passed = max((packets for _, packets in found.values()), default=0.0) or 1.0
    return {stage: found.get(stage, (0.0, 0.0))[0] / passed for stage in STAGES}
