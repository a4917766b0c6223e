"""A configuration that is good, and machines by description."""

import copy
from typing import Any

from netdyno.nat.config import Nat, checked
from netdyno.nat.cores import Topology
from netdyno.system.machine import Core

CGN: dict[str, Any] = {
    "format": "netdyno-nat/1",
    "name": "cgn",
    "inside": {"device": "0000:83:00.0", "ip": "10.0.0.254/24"},
    "outside": {"device": "0000:83:00.1", "ip": "203.0.113.2/24", "gateway": "203.0.113.1"},
    "pool": ["203.0.113.16/28"],
}


def changed(**changes: Any) -> dict[str, Any]:
    """The configuration with other values; `inside__device` is a key of a part, None takes one away."""
    made = copy.deepcopy(CGN)
    for path, value in changes.items():
        *parts, key = path.split("__")
        node = made
        for part in parts:
            node = node.setdefault(part, {})
        if value is None:
            del node[key]
        else:
            node[key] = value
    return made


def nat(**changes: Any) -> Nat:
    return checked(changed(**changes), "cgn.yaml")


def machine(sockets: int, cores: int, threads: int = 1, allowed: set[int] | None = None) -> Topology:
    """As common servers number them: all first threads, socket by socket, then all second ones."""
    count = sockets * cores
    listed = [
        Core(number, number % count // cores, tuple(range(number % count, count * threads, count)))
        for number in range(count * threads)
    ]
    return Topology.of(listed, allowed)


def neighbours(cores: int) -> Topology:
    """One socket whose threads have neighbouring numbers, as a laptop or a virtual machine."""
    return Topology.of(Core(n, 0, (n // 2 * 2, n // 2 * 2 + 1)) for n in range(2 * cores))
