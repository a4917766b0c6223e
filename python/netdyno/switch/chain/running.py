"""Chains that run on this machine: each is in a file, and its packets are counted when somebody looks."""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

from netdyno import files, paths
from netdyno.lab import counters
from netdyno.report.diagram import Box, Diagram, Edge
from netdyno.switch.chain.spec import Chain
from netdyno.switch.chain.steering import CLIENT, SERVER
from netdyno.system import namespace, proc
from netdyno.system.journal import Journal

DROPS = ("rx_dropped", "tx_dropped")
PORTS = ("in", "out", "eth0")


@dataclass(frozen=True)
class Passed:
    """Packets of a hop so far, both ways, of all its replicas."""

    received: int
    sent: int
    dropped: int
    near: int
    """At its port towards the client; of an end, at its only one."""


@dataclass(frozen=True)
class RunningChain:
    """What its file says."""

    id: str
    switch: str
    paths: Mapping[str, list[str]]
    """Functions by class, in order; the class of all other traffic is one of them."""
    copies: Mapping[str, str]
    """Functions that get copies of packets → the hop that sends these on."""
    kinds: Mapping[str, str]
    hosts: Mapping[str, list[str]]
    """Namespaces of each hop, ends included."""
    by: Mapping[str, str] = field(default_factory=dict)
    """Of each class, the path between the switches that it takes now; none: there are not several."""

    def look(self) -> dict[str, Passed]:
        """Packets of each hop as they are now."""
        return {hop: _passed(hosts) for hop, hosts in self.hosts.items()}

    def diagram(self) -> Diagram:
        """Its hops, and the ways between them."""
        boxes = [
            Box(hop, hop, (_kind(self.kinds[hop], len(hosts)),) if hop in self.kinds else ())
            for hop, hosts in self.hosts.items()
        ]
        ways = dict.fromkeys(
            way for path in self.paths.values() for way in pairwise([CLIENT, *self._forwarding(path), SERVER])
        )
        edges = [Edge(source, target, both=True) for source, target in ways]
        return Diagram(boxes, [*edges, *(Edge(by, to, dashed=True) for to, by in self.copies.items())])

    def on_edges(self, seen: Mapping[str, Passed]) -> dict[str, int | None]:
        """Packets on each way by the key of its edge; None where a hop is reached by several of them."""
        edges = self.diagram().edges
        into = [one.target for one in edges]
        return {one.key: seen[one.target].near if into.count(one.target) == 1 else None for one in edges}

    def _forwarding(self, path: list[str]) -> list[str]:
        return [name for name in path if name not in self.copies]


def _kind(kind: str, replicas: int) -> str:
    return f"{kind} ×{replicas}" if replicas > 1 else kind


def folder() -> Path:
    """Where their files are."""
    return files.own_folder(paths.runtime() / "chains")


@contextlib.contextmanager
def published(
    chain: Chain, space: Callable[[str], str | None], notes: Journal
) -> Iterator[Callable[[Mapping[str, str]], None]]:
    """Have a chain found by others while it runs; `space`: from a host to its namespace.

    What it yields is told the path between the switches of each class, when classes move.
    """
    every = chain.hosts()
    inner = {name: [space(host) for host, of in every.items() if of == name] for name in chain.vnfs}
    copies: dict[str, str] = {}
    for path in chain.paths().values():
        last = CLIENT
        for name in path:
            if chain.mirror(name):
                copies.setdefault(name, last)
            else:
                last = name
    about = {
        "switch": chain.switch, "paths": chain.paths(), "copies": copies,
        "kinds": {name: one.kind for name, one in chain.vnfs.items()},
        "hosts": {CLIENT: [space(CLIENT)], **inner, SERVER: [space(SERVER)]},
        "pid": os.getpid(), "start": proc.start_time(os.getpid()),
    }  # fmt: skip
    file = folder() / f"nd-{os.getpid()}-{time.monotonic_ns()}.json"
    noted = notes.write("path", path=str(file))

    def tell(by: Mapping[str, str]) -> None:
        files.write(file, json.dumps({**about, "by": dict(by) if chain.wan else {}}))

    try:
        tell({})
        yield tell
    finally:
        notes.undo(noted)


def running() -> list[RunningChain]:
    """Those that run here; what a killed process left is removed."""
    found = []
    for path in sorted(folder().glob("*.json")):
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            about = json.loads(path.read_text(encoding="utf-8"))
            if not proc.alive(about.pop("pid"), about.pop("start")):
                path.unlink(missing_ok=True)
                continue
            found.append(RunningChain(path.stem, **about))
    return found


def _passed(hosts: list[str]) -> Passed:
    received = sent = dropped = near = 0.0
    for host in hosts:
        seen = namespace.inside(host, counters.devices)
        for port in PORTS:
            of = seen.get(port, {})
            rx, tx = of.get("rx_packets", 0.0), of.get("tx_packets", 0.0)
            received, sent = received + rx, sent + tx
            dropped += sum(of.get(name, 0.0) for name in DROPS)
            near += rx + tx if port != "out" else 0.0
    return Passed(int(received), int(sent), int(dropped), int(near))
