"""The graph of a profile as far as a trial's judgement takes it: edges, and what runs on one worker."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any

from netdyno.experiment.spec import table


def graph(profile: Mapping[str, Any]) -> Mapping[str, Any]:
    """What it says of DPDK."""
    return table(table(profile.get("transport")).get("dpdk"))


def ports(dpdk: Mapping[str, Any]) -> dict[str, str]:
    """The device of each port."""
    listed = map(table, dpdk.get("ports") or [])
    return {str(port.get("name", "")): str(port.get("device", "")) for port in listed}


def bare(name: str) -> str:
    """An element's name without the number of a replica, `nat#1`, or of a port's queue, `b.rx1`."""
    element, dot, way = name.partition("#")[0].partition(".")
    return element + dot + way.rstrip("0123456789")


def edges(dpdk: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """The elements at both ends of each, by their bare names: `b.tx`, `nat`."""
    named = ports(dpdk)

    def element(said: str) -> str:
        name, _, rest = said.strip().partition(".")
        # of other elements it is an output
        return bare(f"{name}.{rest}" if name in named else name)

    for line in dpdk.get("edges") or []:
        for a, b in pairwise(str(line).split("->")):
            yield element(a), element(b)


def together(dpdk: Mapping[str, Any], a: str, b: str) -> bool:
    """Whether two elements are on one worker, at least some replicas of them: no ring is between these."""
    workers = [
        {bare(str(name)) for name in table(one).get("elements") or []} for one in dpdk.get("placement") or []
    ]

    def of(name: str) -> set[int]:
        # what is named nowhere runs on the first
        return {number for number, names in enumerate(workers) if name in names} or {0}

    return bool(of(a) & of(b))
