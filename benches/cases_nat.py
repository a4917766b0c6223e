"""The carrier-grade NAT against our l2fwd and testpmd's macswap, with the same ports, flows and cores."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bed import BEYOND, CORES, GENERATOR, SERVER, Core, Skipped, folder, frames, namespace
from cases_testpmd import LONG, at_bursts, memif
from rounds import Peer, Sides
from testpmd import Testpmd

Setup = Callable[[], contextlib.AbstractContextManager[Sides]]

PORTS = [
    {"name": "a", "device": "pair:in", "ip": "10.0.0.1/8", "gateway": "10.255.255.254"},
    {"name": "b", "device": "pair:in", "ip": "10.255.255.254/8"},
    {"name": "c", "device": "pair:out", "ip": "203.0.113.2/24"},
    {"name": "d", "device": "pair:out", "ip": "203.0.113.1/24"},
]
"""Subscribers, the inside and outside of what is measured, and the router."""
ROUTER = {"host": {"kind": "arp-nd", "port": "d"}}
ENDS = {GENERATOR: ["generator", "a.tx", "a.rx", "back", "d.rx", "host", "d.tx"]}
POOL = "198.18.0.0/22"
"""Room for ten million ports and more."""
PER_SUBSCRIBER = 64
QUEUES = ["b.rx", "b.tx", "c.rx", "c.tx"]
STAGES = ("in-validity", "nat", "conntrack", "forward")
"""What every packet passes between the ports, in the NAT or in l2fwd."""


def translating(flows: int) -> tuple[dict[str, Any], list[str]]:
    """Elements and edges of the NAT, with room for these flows."""
    subscribers = max(flows // PER_SUBSCRIBER, 1)
    elements = {
        "in-validity": {"kind": "validity", "port": "b"},
        "out-validity": {"kind": "validity", "port": "c"},
        "nat": {"kind": "subscriber-table", "most_subscribers": subscribers},
        "conntrack": {
            "kind": "nat44", "inside": "b", "outside": "c", "pool": [POOL],
            "sessions": max(flows, 1024), "most_subscribers": subscribers, "ports_per_block": 64,
        },
        "in-host": {"kind": "nat-host", "port": "b"},
        "out-host": {"kind": "nat-host", "port": "c", "gateway": "203.0.113.1"},
    }  # fmt: skip
    edges = [
        "b.rx -> in-validity",
        "in-validity.out -> nat -> conntrack",
        "c.rx -> out-validity",
        "out-validity.out -> conntrack",
        "conntrack.outside -> c.tx",
        "conntrack.inside -> b.tx",
        "in-validity.local -> in-host -> b.tx",
        "out-validity.local -> out-host -> c.tx",
    ]
    return elements, edges


def forwarding() -> tuple[dict[str, Any], list[str]]:
    """Elements and edges of l2fwd."""
    elements = {"forward": {"kind": "l2fwd"}, "answers": {"kind": "l2fwd"}}
    return elements, ["b.rx -> forward -> c.tx", "c.rx -> answers -> b.tx"]


def load(seconds: float, flows: int, dut: tuple[dict[str, Any], list[str]]) -> dict[str, Any]:
    """64-byte UDP of so many flows in random order, as fast as one core sends it."""
    subscribers = max(flows // PER_SUBSCRIBER, 1)
    ports = min(flows, PER_SUBSCRIBER)
    sources = {"random": {"from": "10.0.1.0", "to": address(0x0A000100 + subscribers - 1)}}
    vary = [
        {"field": "ipv4.source", "change": sources},
        {"field": "udp.source_port", "change": {"random": {"from": 10_000, "to": 10_000 + ports - 1}}},
    ]
    frame = {"size": {"fixed": "64B"}, "rate": {"frames": "200M/s"}, "vary": vary, "measured": False}
    group = {
        "name": "up", "target": "udp://198.51.100.9:53", "port": "a", "model": {"stream": {"echo": False}},
        "frame": frame,
    }  # fmt: skip
    made = between(seconds, [group], dut)
    # sessions are made before it is measured
    made["phases"]["warmup"] = "3s" if flows > 100_000 else "1s"
    return made


def between(
    seconds: float, groups: list[dict[str, Any]], dut: tuple[dict[str, Any], list[str]]
) -> dict[str, Any]:
    """These groups from subscribers, through what is measured, over cables."""
    elements, edges = dut
    elements = {
        "generator": {"kind": "generator", "port": "a"}, "back": {"kind": "discard"}, **ROUTER, **elements,
    }  # fmt: skip
    edges = ["generator -> a.tx", "a.rx -> back", *edges, "d.rx -> host -> d.tx"]
    return graph(seconds, PORTS, groups, elements, edges, ENDS | {SERVER: [*dut[0], *QUEUES]})


def graph(
    seconds: float,
    ports: list[dict[str, Any]],
    groups: list[dict[str, Any]],
    elements: dict[str, Any],
    edges: list[str],
    on: dict[int, list[str]],
) -> dict[str, Any]:
    """A profile over these elements, each core with its own."""
    made = frames(seconds, ports, groups)
    placement = [{"core": core, "elements": names} for core, names in on.items()]
    made["transport"]["dpdk"] |= {
        "elements": elements, "edges": edges, "placement": placement, "memory": "2GiB",
    }  # fmt: skip
    return made


def address(number: int) -> str:
    """An IPv4 address of its number."""
    return ".".join(str(number >> shift & 0xFF) for shift in (24, 16, 8, 0))


def upstream(flows: int) -> Setup:
    """What one core translates of what subscribers send; `cycles`: what its elements spend on a packet."""

    @contextlib.contextmanager
    def play() -> Iterator[Sides]:
        if len(CORES) < 2:
            raise Skipped("two cores are needed, one for the NAT and one for its ends; there is one")
        with namespace() as name, folder() as where:
            core = Core(name, where)

            def side(dut: tuple[dict[str, Any], list[str]]) -> Callable[[float], dict[str, float]]:
                return lambda seconds: passed(core, seconds, flows, dut)

            yield Sides(side(translating(flows)), (Peer("l2fwd", {"of ours": side(forwarding())}),))
            core.close()

    return play


def passed(core: Core, seconds: float, flows: int, dut: tuple[dict[str, Any], list[str]]) -> dict[str, float]:
    """What gets through it over cables, and what its elements spend on a packet."""
    result, _ = core.run(load(seconds, flows, dut), allowed=BEYOND)
    its = [e for e in result["elements"] if e["name"] in STAGES]
    return {
        "rate": result["interfaces"]["c"]["tx_packets"] / sum(result["phases"].values()),
        "cycles": sum(e["cycles_per_packet"] for e in its),
    }


@dataclass
class Crossing:
    """Ends in one process, which send and receive, and in another what is measured between them, over memif.

    The ends are the same for all; they end first, as testpmd's driver does not bear it that the other end
    goes while frames pass.
    """

    ends: Core
    dut: Core
    where: Path

    @property
    def paths(self) -> list[Path]:
        """Sockets of the inside port and of the outside one."""
        return [self.where / "in", self.where / "out"]

    @property
    def inner(self) -> list[str]:
        """Ports of what is measured."""
        return [memif("server", path, n) for n, path in enumerate(self.paths)]

    @property
    def outer(self) -> list[str]:
        """Ports of the ends."""
        return [memif("client", path, n) for n, path in enumerate(self.paths)]

    def fresh(self) -> None:
        """Nothing is left of who was there before."""
        for path in self.paths:
            path.unlink(missing_ok=True)

    def across(self, made: dict[str, Any], seconds: float | None = None) -> float:
        """What of this load comes out at the other side, a second: of all phases, or of so many seconds."""
        dpdk = made["transport"]["dpdk"]
        # who swaps addresses only answers no ARP
        near = {"name": "a", "ip": PORTS[0]["ip"], "peer_mac": "02:00:00:00:00:02"}
        outer = zip((near, PORTS[3]), self.outer, strict=True)
        dpdk["ports"] = [port | {"device": device} for port, device in outer]
        dpdk["placement"] = dpdk["placement"][:1]
        result, _ = self.ends.run(made, allowed=BEYOND)
        passed = result["interfaces"]["d"]["rx_packets"]
        return float(passed / (seconds or sum(result["phases"].values())))

    def ours(
        self, made: dict[str, Any], dut: tuple[dict[str, Any], list[str]], seconds: float | None = None
    ) -> float:
        """The same through a NAT of ours."""
        self.fresh()
        elements, edges = dut
        ports = [port | {"device": device} for port, device in zip(PORTS[1:3], self.inner, strict=True)]
        graph_ = graph(LONG, ports, [], elements, edges, {SERVER: [*elements, *QUEUES]})
        return self.dut.during(graph_, lambda: self.across(made, seconds))


@contextlib.contextmanager
def crossing() -> Iterator[Crossing]:
    """Both processes, in a namespace of their own."""
    if len(CORES) < 2:
        raise Skipped("two cores are needed, one for the NAT and one for its ends; there is one")
    with namespace() as name, folder() as near, folder() as far:
        made = Crossing(Core(name, far), Core(name, near), near)
        yield made
        made.dut.close()
        made.ends.close()


def over_memif(flows: int) -> Setup:
    """The same from another process over shared memory, where testpmd forwards too, and swaps addresses."""

    @contextlib.contextmanager
    def play() -> Iterator[Sides]:
        with crossing() as both:

            def offered(seconds: float) -> dict[str, Any]:
                return load(seconds, flows, ({}, []))

            def ours(seconds: float) -> dict[str, float]:
                return {"rate": both.ours(offered(seconds), translating(flows))}

            def macswap(seconds: float, burst: int) -> dict[str, float]:
                both.fresh()
                with Testpmd(SERVER, both.inner, "--forward-mode=macswap", burst=burst) as testpmd:
                    testpmd.say("start")
                    return {"rate": both.across(offered(seconds))}

            yield Sides(ours, (at_bursts(macswap),))

    return play
