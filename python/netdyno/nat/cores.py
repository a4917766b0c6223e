"""Cores by where they are, `s0c1h`: socket, core, hyper-thread; what stands in for one that is missing."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import combinations, pairwise
from pathlib import Path

from netdyno import config
from netdyno.system.machine import Core, Machine, is_address

STAGES = ("rx", "validity", "nat", "conntrack", "tx")
"""What a packet passes, in this order."""
REPLICATED = ("nat", "conntrack")
"""The stages of which each worker has one."""
_CORE = re.compile(r"s(\d{1,3})c(\d{1,4})(h?)")


@dataclass(frozen=True)
class CoreLocation:
    """Location of a logical core: NUMA socket, physical core, hyper-thread."""

    socket: int
    core: int
    second: bool = False
    """Its second hyper-thread."""

    @classmethod
    def of(cls, text: str) -> CoreLocation:
        """From `s0c1`, or `s0c1h` for the hyper-thread. Raises ValueError where it is neither."""
        found = _CORE.fullmatch(text)
        if not found:
            raise ValueError("write a core like s0c1 (socket 0, core 1), or s0c1h for its hyper-thread")
        return cls(int(found[1]), int(found[2]), bool(found[3]))

    def __str__(self) -> str:
        return f"s{self.socket}c{self.core}{'h' * self.second}"


@dataclass(frozen=True)
class Topology:
    """A machine's cores: of each NUMA node the physical cores, of each of these its threads."""

    nodes: Mapping[int, tuple[tuple[int, ...], ...]]
    allowed: frozenset[int]
    """The logical cores that this process may use."""

    @classmethod
    def of(cls, cores: Iterable[Core], allowed: Iterable[int] | None = None) -> Topology:
        """From logical cores as the kernel tells of them; all of them may be used unless that is said."""
        listed = list(cores)
        physical: dict[tuple[int, int], list[int]] = {}
        for core in listed:
            physical.setdefault((core.node, min(core.threads)), []).append(core.number)
        nodes: dict[int, tuple[tuple[int, ...], ...]] = {}
        for node, first in sorted(physical):
            nodes[node] = (*nodes.get(node, ()), tuple(sorted(physical[node, first])))
        there = {core.number for core in listed}
        return cls(nodes, frozenset(there if allowed is None else there & set(allowed)))

    def find(self, place: CoreLocation) -> int | None:
        """The logical core at a place; None where there is none, or it may not be used."""
        physical = self.nodes.get(place.socket, ())
        threads = physical[place.core] if place.core < len(physical) else ()
        number = threads[place.second] if place.second < len(threads) else None
        return number if number in self.allowed else None

    def name(self, number: int) -> str:
        """Where a logical core is; threads after the second have a number: `s0c1h2`."""
        for node, physical in self.nodes.items():
            for index, threads in enumerate(physical):
                if number in threads:
                    thread = threads.index(number)
                    return f"s{node}c{index}" + ("" if thread == 0 else "h" if thread == 1 else f"h{thread}")
        return f"core {number}"

    def usable(self) -> dict[int, tuple[tuple[int, ...], ...]]:
        """The physical cores of each node with the threads that may be used, without those that have none."""
        kept = {
            node: tuple(
                left for threads in physical if (left := tuple(n for n in threads if n in self.allowed))
            )
            for node, physical in self.nodes.items()
        }
        return {node: physical for node, physical in kept.items() if physical}

    def in_order(self, near: int | None = None) -> list[int]:
        """Logical cores in the order in which workers are given them.

        Physical cores of the node `near`, those of other nodes, then the second threads of all of them in the
        same order. The machine's first core comes after the others of its node: the system works there.
        """
        usable = self.usable()
        nodes = sorted(usable, key=lambda node: (node != near, node))
        first = min((threads for physical in usable.values() for threads in physical), default=())
        physical = [
            threads for node in nodes for threads in sorted(usable[node], key=lambda one: one == first)
        ]
        most = max(map(len, physical), default=0)
        return [threads[i] for i in range(most) for threads in physical if i < len(threads)]

    def __str__(self) -> str:
        usable = self.usable()
        physical = sum(map(len, usable.values()))
        threads = sum(len(one) for all_ in usable.values() for one in all_)
        told = f"{physical} {'core' if physical == 1 else 'cores'}"
        if threads > physical:
            told += f" with {threads} hyper-threads"
        return f"{told} on {len(usable)} {'socket' if len(usable) == 1 else 'sockets'}"


def here(process: int = 0) -> Topology:
    """This machine's, as far as this process may use it, or another one."""
    try:
        allowed = sorted(os.sched_getaffinity(process))
    except ProcessLookupError:
        allowed = sorted(os.sched_getaffinity(0))
    cores = Machine().cores()
    return Topology.of(cores or [Core(number, 0, (number,)) for number in allowed], allowed)


def node_of(device: str) -> int | None:
    """The NUMA node that a NIC is on, where that is known."""
    address = device.lower()
    return Machine().number(f"sys/bus/pci/devices/{address}/numa_node") if is_address(address) else None


# ---- places to cores


@dataclass
class _Fold:
    """Places that are given cores, one after the other."""

    there: Topology
    given: dict[CoreLocation, int] = field(default_factory=dict)

    def give(self, place: CoreLocation) -> int:
        """A core for one that is not there: as far apart from the others as it was meant to be."""
        if place in self.given:
            return self.given[place]
        if (there := self.there.find(place)) is not None:
            return there
        usable = self.there.usable()
        nodes = sorted(usable, key=lambda node: (node != place.socket, node))
        if place.second:
            # a thread of the physical core that it was to share; that core itself where it has but one
            beside = self.give(CoreLocation(place.socket, place.core))
            threads = next(one for node in nodes for one in usable[node] if beside in one)
            number = next((n for n in threads if n not in self.given.values()), beside)
        else:
            number = self._free(usable, nodes, place)
        self.given[place] = number
        return number

    def _free(
        self, usable: Mapping[int, tuple[tuple[int, ...], ...]], nodes: list[int], place: CoreLocation
    ) -> int:
        taken = set(self.given.values())
        physical = [threads for node in nodes for threads in usable[node]]
        for threads in physical:
            if taken.isdisjoint(threads):
                return threads[0]
        for threads in physical:
            if left := [number for number in threads if number not in taken]:
                return left[0]
        near = [threads[0] for threads in usable[nodes[0]]]
        return near[place.core % len(near)]


def resolve(wanted: Sequence[CoreLocation], there: Topology) -> tuple[list[int], list[str]]:
    """A logical core for each place, and what is to be told.

    What a machine does not have folds onto what it has: onto a physical core that nobody else was given, else
    a free hyper-thread, else a core that runs something already.
    """
    fold = _Fold(there, {place: n for place in wanted if (n := there.find(place)) is not None})
    missing = [place for place in dict.fromkeys(wanted) if place not in fold.given]
    for place in missing:
        fold.give(place)
    notes = []
    if missing:
        onto = ", ".join(f"{place} folds onto {there.name(fold.given[place])}" for place in missing)
        notes.append(f"this machine has {there}: {onto}")
    return [fold.given[place] for place in wanted], notes


# ---- stages to cores

_WORK = {"rx": 2, "validity": 1, "nat": 1, "conntrack": 3, "tx": 2}
"""Rough shares of the work. Validity is the least, so it is the first to share (figure 10 of the paper)."""


def spread(stages: Sequence[str], cores: int) -> list[list[int]]:
    """Stages, by their numbers, on so many cores or fewer: neighbours together, the work evenly."""
    count = min(cores, len(stages))
    work = [_WORK[stage] for stage in stages]

    def parts(cuts: Sequence[int]) -> list[list[int]]:
        edges = [0, *cuts, len(stages)]
        return [list(range(a, b)) for a, b in pairwise(edges)]

    if len(stages) > 16:
        # too many ways to look at each: in equal numbers
        return parts([len(stages) * i // count for i in range(1, count)])
    ways = (parts(cuts) for cuts in combinations(range(1, len(stages)), count - 1))
    return min(ways, key=lambda way: sum(sum(work[i] for i in part) ** 2 for part in way))


# ---- core sets by name


@cache
def named() -> dict[str, dict[str, str]]:
    """The core sets that come with netdyno: the place of each stage."""
    return dict(config.read(Path(__file__).with_name("core_sets.yaml")))
