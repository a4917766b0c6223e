"""A NAT, or what stands in its place, between two ends that send and receive: profiles and graphs as data.

`memory`: all of it is one daemon, with cables in memory between its ports. `af_packet`: the ends are one
daemon, and what is measured stands behind two veth pairs, where the kernel's NAT can stand as well.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from ipaddress import IPv4Address, IPv4Interface, IPv4Network
from itertools import islice
from math import gcd
from typing import Any, Literal

from netdyno import units
from netdyno.errors import Error
from netdyno.nat import graph
from netdyno.nat.config import Nat, Side
from netdyno.nat.cores import Topology
from netdyno.nat.graph import Layout, Work
from netdyno.nat.ports import CLIENT_PORTS, PER_BLOCK

Direction = Literal["up", "down"]
Ports = Literal["memory", "af_packet"]

SUBSCRIBERS = IPv4Address("10.64.0.1")
"""The first one; a router on the inside leads to them."""
BEHIND = "10.64.0.0/10"
PORTS = ("access", "world")
"""Of the ends: the subscribers' and the servers'."""
SERVER, SERVER_PORT = "198.51.100.9", 7
FIRST_PORT = 10_000
"""Of subscribers with one flow each; the next one has the next port."""
PORTS_EACH = 64
"""Flows of a subscriber where there are many."""
RATE = {"memory": {"line": "100%"}, "af_packet": {"frames": "2M/s"}}
"""The highest load that is tried."""
LINE = "10Gbit/s"
"""The link, where none is said: the paper's."""
OPENING: dict[Ports, int] = {"memory": 250_000, "af_packet": 50_000}
"""Sessions that are opened in a second, before the load begins: what is lost of that is missed all along."""
TOUCHED = 2e6
"""Sessions for which a table is made in a second, at least."""
SPARE = 0.95
"""Share of the new flows there are that a trial may use."""
SETTLE, REST = 0.1, 0.2
"""Seconds from the last of them to the load, and from there to what is measured."""
FRAMES = 4096
"""Frames that an AF_PACKET port holds each way."""
ELSEWHERE = frozenset({"state", "log", "pcp", "pair", "deterministic"})
"""What reaches beyond a lab: files that a NAT in service keeps, its collectors and standby, what subscribers
ask for; and ports of subscribers by their addresses, which the lab has others of."""
USUAL_SESSIONS = 8192
"""Sessions that a subscriber may have where nothing is said."""
SINGLE = 1000
"""The most flows of which each is a subscriber of its own; what comes down has a static forward for each."""


@dataclass(frozen=True)
class Flows:
    """How many flows there are; `new`: each frame is one of its own (RFC 9693)."""

    count: int = 1000
    new: bool = False

    @property
    def shape(self) -> tuple[int, int]:
        """Subscribers and ports of each, without a common divisor: so every pair comes once in a round."""
        if self.new:
            ports = 1021
            subscribers = max(1, self.count // ports)
            return subscribers + (subscribers % ports == 0), ports
        if self.count <= SINGLE:
            return self.count, 1
        return self.count // PORTS_EACH | 1, PORTS_EACH


@dataclass(frozen=True)
class LoadSpec:
    """Load of one profile: direction, ports, flows and rate."""

    direction: Direction = "up"
    ports: Ports = "memory"
    flows: Flows = Flows()
    seed: int = 1
    rate: str | None = None
    """The highest load; none: what is usual for the ports."""
    seconds: float = 1.0
    """Length of a trial, for which there have to be new flows enough."""
    line: str = LINE
    """The link whose rate nothing is offered beyond; shares of line rate are of it."""


def placed(nat: Nat, ports: Ports) -> Nat:
    """The NAT between ports of a lab: its addresses stay; devices and what is `ELSEWHERE` do not."""
    devices = {
        "memory": ("pair:nat-inside", "pair:nat-outside"),
        "af_packet": (af_packet(0, "in0"), af_packet(1, "out0")),
    }[ports]
    kept = {"queues", "burst"}
    sides = [
        Side(
            {"device": device, "ip": str(side.address)}
            | {key: value for key, value in side.settings.items() if key in kept},
            side.address,
        )
        for side, device in zip((nat.inside, nat.outside), devices, strict=True)
    ]
    made = replace(
        nat,
        inside=sides[0],
        outside=sides[1],
        leases=None,
        huge_pages=None,
        conntrack={key: value for key, value in nat.conntrack.items() if key not in ELSEWHERE},
    )
    return made if nat.sites is None else replace(made, sites=None, pool=_in_place_of_sites(nat))


def _in_place_of_sites(nat: Nat) -> tuple[str, ...]:
    """Addresses that stay, since nobody gives any by DHCP in a lab."""
    taken = {nat.outside.address.ip, nat.gateway}
    free = (one for one in nat.outside.address.network.hosts() if one not in taken)
    found = tuple(map(str, islice(free, min(nat.addresses, 16))))
    if not found:
        what = f"{nat.outside.address.network} has no address left to stand for those of sites"
        raise Error("ND-104-07", what, at="outside.ip", fix="Use a network of three hosts or more")
    return found


def roomy(nat: Nat, flows: Flows, direction: Direction) -> Nat:
    """The NAT with room for the flows, and for what comes down a static forward for each of them.

    A forward makes the outside endpoint known beforehand. Sessions are opened from the inside all the same.
    """
    subscribers, ports = flows.shape
    made = with_room(nat, subscribers, ports)
    if direction == "down":
        return forwarded(made, subscribers)
    per_block = made.ports_per_block or PER_BLOCK
    if subscribers > (blocks := made.addresses * (CLIENT_PORTS // per_block)):
        what = (
            f"{subscribers:,} subscribers need as many blocks of {per_block:,} ports; the pool has {blocks:,}"
        )
        raise Error("ND-104-07", what, at="pool", fix="Use a larger pool, or leave ports.per_block out")
    return made


def with_room(nat: Nat, subscribers: int, ports: int) -> Nat:
    """The NAT with room for so many subscribers with so many sessions each, by ports of their own."""
    blocks = 1 << max(6, (ports - 1).bit_length())
    each = nat.sessions_per_subscriber
    return replace(
        nat,
        subscribers=(BEHIND,),
        # they are others than those that routes lead to
        routes=(),
        reverse_path="loose",
        sessions=max(nat.sessions or 0, subscribers * ports + 1024, 65_536),
        most_subscribers=max(nat.most_subscribers or 0, subscribers + 64, 4096),
        # what is measured is the table, not what one of those may have who are simulated
        sessions_per_subscriber=None if each is None else max(each, USUAL_SESSIONS),
        ports_per_block=max(nat.ports_per_block or 0, blocks) if ports > 1 else nat.ports_per_block,
    )


def forwarded(nat: Nat, subscribers: int) -> Nat:
    """The NAT with a static forward for each of so many subscribers."""
    forwards = [
        {
            "protocol": "udp",
            "inside": f"{SUBSCRIBERS + i}:{FIRST_PORT + i}",
            "outside": f"{public(nat)}:{FIRST_PORT + i}",
        }
        for i in range(subscribers)
    ]
    return replace(nat, conntrack={**nat.conntrack, "forwards": forwards})


def public(nat: Nat) -> IPv4Address:
    """The pool address that what comes down goes to."""
    return IPv4Network(nat.pool[0])[0]


def router(nat: Nat) -> str:
    """The address of the subscribers' end, behind which they are: the first one that is free."""
    network = nat.inside.address.network
    free = next((one for one in network.hosts() if one != nat.inside.address.ip), None)
    if free is None:
        what = f"{network} has no address left for the router of the lab's subscribers"
        raise Error("ND-104-07", what, at="inside.ip", fix="Use a network of two hosts or more")
    return str(free)


def af_packet(number: int, interface: str) -> str:
    """A kernel interface, with room for what comes while a worker waits for its core."""
    return f"net_af_packet{number},iface={interface},framecnt={FRAMES},qdisc_bypass=1"


# ---- cores


def spare(there: Topology) -> Topology:
    """The cores for what is measured: of three or more one is left to both ends."""
    order = there.in_order()
    return there if len(order) < 3 else Topology(there.nodes, there.allowed - {order[-1]})


Ends = tuple[int, ...]
"""The core of both ends, or one for each: the subscribers' and the servers'."""


def ends_beside(where: Layout, there: Topology) -> Ends:
    """The cores for the ends: physical ones that nothing of what is measured runs on, one for each end where
    there are two, of its node if it has any; else a thread that is free; else the core of the worker with
    least to do."""
    used = {work.core: sum(map(_weight, work.elements)) for work in where.workers}
    usable = there.usable()
    nodes = sorted(usable, key=lambda node: (not used.keys() & set(sum(there.nodes[node], ())), node))
    # from the last one on: workers are given the first
    physical = [threads for node in nodes for threads in reversed(usable[node])]
    whole = [threads for threads in physical if used.keys().isdisjoint(siblings(there, threads[0]))]
    free = [number for threads in physical for number in threads if number not in used]
    if whole:
        return tuple(threads[0] for threads in whole[: len(PORTS)])
    return (free[0] if free else min(used, key=lambda core: (used[core], -core)),)


def siblings(there: Topology, number: int) -> tuple[int, ...]:
    """The threads of a logical core's physical one, itself among them."""
    every = (threads for physical in there.nodes.values() for threads in physical)
    return next((threads for threads in every if number in threads), (number,))


_WEIGHTS = {"rx": 2, "validity": 1, "nat": 1, "conntrack": 3, "tx": 2}


def _weight(element: str) -> int:
    name = element.partition("#")[0].rstrip("0123456789")
    stage = next((stage for stage, names in graph.ELEMENTS.items() if name in names), None)
    return _WEIGHTS[stage] if stage else 0


def l2fwd_layout(there: Topology) -> Layout:
    """One worker, where a NAT that runs to completion has its own."""
    names = ("inside.rx", "there", "outside.tx", "outside.rx", "back", "inside.tx")
    return Layout((Work(there.in_order()[0], names),))


# ---- what stands between the ports


def l2fwd(nat: Nat, where: Layout) -> dict[str, Any]:
    """Two ports with nothing but forwarding between them: what the machine does at most."""
    return {
        "description": "l2fwd in place of a NAT",
        "ports": {"inside": dict(nat.inside.settings), "outside": dict(nat.outside.settings)},
        "elements": {"there": {"kind": "l2fwd"}, "back": {"kind": "l2fwd"}},
        "edges": ["inside.rx -> there -> outside.tx", "outside.rx -> back -> inside.tx"],
        "placement": [{"core": work.core, "elements": list(work.elements)} for work in where.workers],
    }


def profile(nat: Nat, document: Mapping[str, Any] | None, ends: Ends, wanted: LoadSpec) -> dict[str, Any]:
    """The ends' profile. With a `document` that graph runs between them; else the ports lead out of here."""
    dpdk = around(nat, document, ends, ends_of(wanted.direction), wanted.line)
    size = {"fixed": "64B"}
    return {
        "name": f"nat-{wanted.direction}",
        "description": f"{wanted.flows.count:,} flows of UDP {wanted.direction} through a NAT.",
        "seed": wanted.seed,
        "phases": {
            "warmup": f"{round((_begun(wanted) + REST) * 1000)}ms",
            "measure": "1s",
            "drain": "200ms",
            "sample": "100ms",
        },
        "targets": targets(nat),
        # a trial without loss counts however late or starved we were: that is more than was asked; where
        # frames are lost, those count that bursts and pauses of workers explain, and no share of the time
        "validity": {"lateness_p99": "1s", "starved": 1.0},
        "transport": {"dpdk": dpdk},
        "groups": _groups(wanted, size),
    }


def around(
    nat: Nat,
    document: Mapping[str, Any] | None,
    ends: Ends,
    what: tuple[Mapping[str, Any], Sequence[str]],
    line: str = LINE,
) -> dict[str, Any]:
    """The ports of both ends with these elements and edges, as the transport of a profile."""
    elements, edges = what
    inside = IPv4Interface(f"{router(nat)}/{nat.inside.address.network.prefixlen}")
    world = IPv4Interface(f"{nat.gateway}/{nat.outside.address.network.prefixlen}")
    near = nat.inside.settings["device"] if document else af_packet(0, "in1")
    far = nat.outside.settings["device"] if document else af_packet(1, "out1")
    speed = {"speed": line}
    listed = [
        {"name": PORTS[0], "device": near, "ip": str(inside), "gateway": str(nat.inside.address.ip)} | speed,
        {"name": PORTS[1], "device": far, "ip": str(world), "gateway": str(nat.outside.address.ip)} | speed,
    ]
    sides = zip(PORTS, (ends[0], ends[-1]), strict=True)
    own = [{"core": core, "elements": _of_end(port, elements)} for port, core in sides]
    dpdk: dict[str, Any] = {"ports": listed, "elements": dict(elements), "edges": list(edges)}
    dpdk["placement"] = _merged(own)
    if document:
        dpdk |= {key: document[key] for key in ("replicas", "memory", "huge_pages") if key in document}
        dpdk["ports"] += [{"name": name, **port} for name, port in document["ports"].items()]
        dpdk["elements"] = {**document["elements"], **elements}
        dpdk["edges"] = [*document["edges"], *edges]
        dpdk["placement"] = _merged([*document["placement"], *own])
    return dpdk


def _of_end(port: str, elements: Mapping[str, Any]) -> list[str]:
    return [*(name for name, said in elements.items() if said["port"] == port), f"{port}.rx", f"{port}.tx"]


def targets(nat: Nat) -> dict[str, str]:
    """Whom frames are for: a server in the world, and a subscriber seen from there."""
    return {"server": f"udp://{SERVER}:{SERVER_PORT}", "public": f"udp://{public(nat)}:{FIRST_PORT}"}


def _merged(placement: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """What is on one core is one worker."""
    found: dict[int, list[str]] = {}
    for one in placement:
        found.setdefault(one["core"], []).extend(one["elements"])
    return [{"core": core, "elements": names} for core, names in found.items()]


def ends_of(direction: Direction) -> tuple[dict[str, Any], list[str]]:
    """Elements and edges of the subscribers' end and the servers'."""
    hosts = {f"{port}-host": {"kind": "arp-nd", "port": port} for port in PORTS}
    if direction == "up":
        elements = {
            "generator": {"kind": "generator", "port": "access"},
            "receiver": {"kind": "receiver", "port": "world"},
        }
        edges = [
            "generator -> access.tx",
            "access.rx -> access-host -> access.tx",
            "world.rx -> receiver -> world-host -> world.tx",
        ]
        return elements | hosts, edges
    elements = {
        "opener": {"kind": "generator", "port": "access"},
        "generator": {"kind": "generator", "port": "world"},
        "receiver": {"kind": "receiver", "port": "access"},
    }
    edges = [
        "opener -> access.tx",
        "generator -> world.tx",
        "access.rx -> receiver -> access-host -> access.tx",
        "world.rx -> world-host -> world.tx",
    ]
    return elements | hosts, edges


def opens(wanted: LoadSpec) -> bool:
    """Whether sessions are opened before the load begins (RFC 9693, test phase 1)."""
    return wanted.direction == "down" or (wanted.flows.count > SINGLE and not wanted.flows.new)


def _begun(wanted: LoadSpec) -> float:
    """Seconds after which the load begins: tables have their memory, and sessions that are to be are open."""
    subscribers, ports = wanted.flows.shape
    flows = subscribers * ports
    return SETTLE + flows / TOUCHED + (flows / OPENING[wanted.ports] if opens(wanted) else 0.0)


LAYERS: list[dict[str, Any]] = [{"ethernet": {}}, {"ipv4": {}}, {"udp": {}}]


def _groups(wanted: LoadSpec, size: Mapping[str, Any]) -> list[dict[str, Any]]:
    subscribers, ports = wanted.flows.shape
    vary = varied(wanted)
    after = {"after": f"{round(_begun(wanted) * 1000)}ms"}
    rate = {"frames": wanted.rate} if wanted.rate else RATE[wanted.ports]
    if wanted.flows.new:
        # no flow comes twice in a trial
        enough = subscribers * ports / (REST + wanted.seconds) * SPARE
        said = units.RATE.value(wanted.rate, "rate") if wanted.rate else enough
        rate = {"frames": f"{min(said, enough):.0f}/s"}
    up: dict[str, Any] = {
        "name": "up",
        "target": "server",
        "port": "access",
        "model": {"stream": {"echo": False}},
        "frame": {"layers": LAYERS, "vary": vary, "size": dict(size), "rate": rate},
    }
    if not opens(wanted):
        return [up | {"frame": up["frame"] | (after if wanted.flows.new else {})}]
    ready = {"after": f"{round(subscribers * ports / TOUCHED * 1000)}ms", "measured": False}
    opening = up | {
        "name": "open",
        "model": {
            "stream": {"echo": False, "count": subscribers * ports, "rate": f"{OPENING[wanted.ports]}/s"}
        },
        # opened once, and none of the load: nobody measures what of it arrives
        "frame": {key: value for key, value in up["frame"].items() if key != "rate"} | ready,
        "load": {"closed": {"flows": 1}},
    }
    if wanted.direction == "up":
        return [opening, up | {"frame": up["frame"] | after}]
    layers = [{"ethernet": {}}, {"ipv4": {"source": SERVER}}, {"udp": {"source_port": SERVER_PORT}}]
    each = {"increment": {"from": FIRST_PORT, "count": subscribers}}
    down = {
        "name": "down",
        "target": "public",
        "port": "world",
        "model": {"stream": {"echo": False}},
        "frame": {
            "layers": layers,
            "vary": [{"field": "udp.destination_port", "change": each}],
            "size": dict(size),
            "rate": rate,
            **after,
        },
    }
    return [opening, down]


def varied(wanted: LoadSpec) -> list[dict[str, Any]]:
    """Who sends, by frame. Ports are pseudorandom (RFC 4814) where a subscriber has several."""
    subscribers, ports = wanted.flows.shape
    assert gcd(subscribers, ports) == 1
    who = {"increment": {"from": str(SUBSCRIBERS), "count": subscribers}}
    vary: list[dict[str, Any]] = [{"field": "ipv4.source", "change": who}]
    if ports == 1:
        change: dict[str, Any] = {"increment": {"from": FIRST_PORT, "count": subscribers}}
    else:
        change = {"list": random.Random(wanted.seed).sample(range(1024, 65_536), ports)}
    vary.append({"field": "udp.source_port", "change": change})
    if wanted.flows.new:
        anywhere = {"random": {"from": 1, "to": 65_535}}
        vary.append({"field": "udp.destination_port", "change": anywhere})
    return vary
