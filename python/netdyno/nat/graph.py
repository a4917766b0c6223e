"""A NAT's configuration as a graph of elements, each on a core; and a fault of the graph told by its key."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Network
from typing import Any

from netdyno.errors import Error
from netdyno.nat import cores, host
from netdyno.nat.config import Nat, Side
from netdyno.nat.cores import REPLICATED, STAGES, Topology
from netdyno.nat.file import PIPELINE, SUBSCRIBERS
from netdyno.system.machine import is_address

EDGES = (
    "inside.rx -> in-validity",
    "in-validity.out -> nat -> conntrack",
    "outside.rx -> out-validity",
    "out-validity.out -> conntrack",
    "conntrack.outside -> outside.tx",
    "conntrack.inside -> inside.tx",
    "in-validity.local -> in-host -> inside.tx",
    "out-validity.local -> out-host -> outside.tx",
)
BY_DHCP = (
    *EDGES[:-1],
    "out-validity.local -> sites",
    "sites.out -> out-host -> outside.tx",
    "sites.tx -> outside.tx",
)
"""The same where sites have public addresses by DHCP."""
VALIDITY = {"inside": "in-validity", "outside": "out-validity"}
"""What looks at the packets of each port first."""
ELEMENTS = {
    "rx": ("inside.rx", "outside.rx"),
    "validity": tuple(VALIDITY.values()),
    "nat": ("nat",),
    "conntrack": ("conntrack",),
    "tx": ("in-host", "out-host", "inside.tx", "outside.tx"),
}
"""What each stage is made of. The box's own answers are few, and go with what sends them."""


@dataclass(frozen=True)
class Work:
    """A worker: its core, and the elements that run there."""

    core: int
    elements: tuple[str, ...]


@dataclass(frozen=True)
class Layout:
    """Where everything runs, and what is to be told of it."""

    workers: tuple[Work, ...]
    notes: tuple[str, ...] = ()


# ---- where it runs


def layout(nat: Nat, there: Topology, near: int | None = None) -> Layout:
    """The workers of a NAT on a machine; near the NUMA node `near` where the cores are not said."""
    if isinstance(nat.execution, Mapping):
        return _by_stage(nat, nat.execution, there)
    order = there.in_order(near)
    return _pipeline(nat, order, there) if nat.execution == PIPELINE else _to_completion(nat, order, there)


def _to_completion(nat: Nat, order: Sequence[int], there: Topology) -> Layout:
    """Everything of a worker on one core."""
    count = nat.workers
    parts: list[list[str]] = [[] for _ in range(count)]
    for port, side in (("inside", nat.inside), ("outside", nat.outside)):
        number = queues(nat, side)
        for name in (f"{port}.rx", VALIDITY[port]):
            for i in range(number):
                parts[i % count].append(_one(name, i, number))
    for name in REPLICATED:
        for i in range(count):
            parts[i].append(_one(name, i, count))
    parts[0] += [*_own(nat), *_kernels(nat)]
    for port, side in (("inside", nat.inside), ("outside", nat.outside)):
        number = queues(nat, side)
        for i in range(number):
            parts[i % count].append(_one(f"{port}.tx", i, number))
    notes = []
    if count > len(order):
        notes.append(f"this machine has {there}: {count} workers fold onto {len(order)} cores")
    if 1 < (number := queues(nat, nat.inside)) < count:
        notes.append(f"{count} workers share {number} queues: some get what others have received")
    on = [(order[i % len(order)], part) for i, part in enumerate(parts)]
    return Layout(_workers(on), tuple(notes))


def _pipeline(nat: Nat, order: Sequence[int], there: Topology) -> Layout:
    """The stages on as many cores as there are."""
    stages, names = ["rx", "validity"], [_stage(nat, "rx"), _stage(nat, "validity")]
    for i in range(nat.workers):
        stages += REPLICATED
        names += [[_one(name, i, nat.workers)] for name in REPLICATED]
    stages.append("tx")
    names.append(_stage(nat, "tx"))
    parts = cores.spread(stages, len(order))
    notes = []
    if len(parts) < len(stages):
        fewer = f"{len(stages)} stages fold onto {len(parts)} {'core' if len(parts) == 1 else 'cores'}"
        notes.append(f"this machine has {there}: {fewer}")
    on = [(order[n], [name for i in part for name in names[i]]) for n, part in enumerate(parts)]
    return Layout(_workers(on), tuple(notes))


def _by_stage(nat: Nat, places: Mapping[str, tuple[cores.CoreLocation, ...]], there: Topology) -> Layout:
    """Each stage where it is said to be. Stages of one core are one worker, and call each other."""
    wanted = [place for stage in STAGES for place in places[stage]]
    numbers, notes = cores.resolve(wanted, there)
    given = iter(numbers)
    on: list[tuple[int, list[str]]] = []
    for stage in STAGES:
        if stage in REPLICATED:
            on += [(next(given), [_one(stage, i, nat.workers)]) for i in range(len(places[stage]))]
        else:
            on.append((next(given), _stage(nat, stage)))
    return Layout(_workers(on), tuple(notes))


def _stage(nat: Nat, stage: str) -> list[str]:
    elements = list(ELEMENTS[stage])
    return [*_kernels(nat), *_own(nat), *elements[2:]] if stage == "tx" else elements


def _own(nat: Nat) -> list[str]:
    """What answers for the box itself."""
    return ["in-host", *(["sites"] if nat.sites is not None else []), "out-host"]


def _kernels(nat: Nat) -> list[str]:
    """What leads to the host's kernel, and back. It is little, and goes with what sends."""
    return [name for made in _to_kernels(nat) for name in host.names(made)]


def _to_kernels(nat: Nat) -> list[host.Parts]:
    sides = {"inside": nat.inside, "outside": nat.outside}
    return [host.parts(port, side.kernel, side.vlans) for port, side in sides.items() if side.kernel]


def _one(name: str, number: int, count: int) -> str:
    """One of several, as a placement names it; queues have their number without a `#`."""
    if count == 1:
        return name
    return f"{name}{number}" if name.endswith((".rx", ".tx")) else f"{name}#{number}"


def _workers(on: Iterable[tuple[int, Sequence[str]]]) -> tuple[Work, ...]:
    """Elements by core, in the order in which packets reach them."""
    found: dict[int, list[str]] = {}
    for core, elements in on:
        found.setdefault(core, []).extend(elements)
    return tuple(Work(core, tuple(elements)) for core, elements in found.items())


def queues(nat: Nat, side: Side) -> int:
    """Queues of a port: as it says; else a NIC has one for each worker that runs to completion."""
    said = side.settings.get("queues")
    if said is not None:
        return int(said)
    several = nat.workers > 1 and isinstance(nat.execution, str) and nat.execution != PIPELINE
    # what is no NIC does not spread flows over its queues, or need not
    return min(nat.workers, 16) if several and is_address(side.device.lower()) else 1


def by_rss(nat: Nat) -> bool:
    """Whether workers divide subscribers as RSS steers packets."""
    if nat.steering is not None:
        return nat.steering == "rss"
    return nat.workers > 1 and nat.sites is None and queues(nat, nat.inside) > 1


# ---- the graph


def document(nat: Nat, where: Layout) -> dict[str, Any]:
    """The graph, as `netdyno graph run` takes it. What the configuration leaves out it leaves out, too."""
    ports = {"inside": _port(nat, nat.inside, "source"), "outside": _port(nat, nat.outside, "destination")}
    elements, edges = _elements(nat), list(EDGES if nat.sites is None else BY_DHCP)
    for kernel in _to_kernels(nat):
        ports |= kernel.ports
        elements |= kernel.elements
        edges += kernel.edges
    made: dict[str, Any] = {
        "description": f"Carrier-grade NAT {nat.name}",
        "ports": ports,
        "elements": elements,
        "edges": edges,
    }
    if replicas := _replicas(nat, ports):
        made["replicas"] = replicas
    made["placement"] = [{"core": work.core, "elements": list(work.elements)} for work in where.workers]
    return made | _without_none(huge_pages=nat.huge_pages, memory=nat.memory)


def _port(nat: Nat, side: Side, subscribers: str) -> dict[str, Any]:
    """`subscribers`: which address of what it receives is theirs."""
    number = queues(nat, side)
    several: dict[str, Any] = {"queues": number} if number > 1 else {}
    return {**side.settings, **several, **({"rss": subscribers} if several and by_rss(nat) else {})}


def _elements(nat: Nat) -> dict[str, Any]:
    addresses = {"pool": list(nat.pool)} if nat.sites is None else {"sites": _site(nat.sites)}
    conntrack: dict[str, Any] = {"kind": "nat44", "inside": "inside", "outside": "outside"}
    conntrack |= addresses
    conntrack |= _subscribers(nat) | _without_none(
        sessions=nat.sessions,
        ports_per_block=nat.ports_per_block,
        blocks_per_subscriber=nat.blocks_per_subscriber,
        sessions_per_subscriber=nat.sessions_per_subscriber,
    )
    # what is outside in the subscribers' space: what is said to be, and the outside port's own network
    conntrack |= {"non_host_addresses": _non_host_addresses(nat.inside, nat.outside)} | _without_none(
        outside_prefixes=_outside(nat) or None
    )
    conntrack |= {**nat.conntrack, **_without_none(steering="rss" if by_rss(nat) else None)}
    # the box is silent while the other of a pair translates
    pair = {"pair": True} if "pair" in nat.conntrack else {}
    # what keeps sessions answers for mappings, so that requests go there
    pcp = {"pcp": True} if "pcp" in nat.conntrack else {}
    # subscribers reach the box at either address; if both are the kernel's, so is what goes to the other one
    other = str(nat.outside.address.ip)
    also_host = {"also_host": True} if nat.inside.kernel and nat.outside.kernel else {}
    # ports are promiscuous: what a switch floods is another router's
    validity: dict[str, Any] = {"kind": "validity", "verify": True, "own_mac": True}
    out_validity: dict[str, Any] = validity | {"port": "outside"}
    out_host: dict[str, Any] = {"kind": "nat-host", "port": "outside", "gateway": str(nat.gateway)}
    sites: dict[str, Any] = {}
    if nat.sites is None:
        out_host["answers_for"] = list(nat.pool)
    else:
        # its answers may come to addresses that no session has yet
        out_validity |= {
            "dhcp": True,
            "macs": _without_none(first=nat.sites.get("macs"), count=nat.sites["most"]),
        }
        own = {key: said for key, said in nat.sites.items() if key not in _SITE}
        # whose addresses no site has, whatever a server offers
        others = _without_none(subscribers=_subscribers(nat).get("subscribers"), gateway=str(nat.gateway))
        others["never"] = [str(nat.inside.address.network)]
        sites["sites"] = {"kind": "nat-sites", "port": "outside", "sites": _site(nat.sites)} | own | others
    return {
        "in-validity": validity | {"port": "inside"} | pcp | {"also": [other]},
        "out-validity": out_validity,
        "nat": {"kind": "subscriber-table"}
        | _subscribers(nat)
        | {"non_host_addresses": [str(nat.inside.address.ip), *_non_host_addresses(nat.inside)]}
        | _without_none(leases=nat.leases, reverse_path=_reverse_path(nat)),
        "conntrack": conntrack,
        "in-host": {"kind": "nat-host", "port": "inside"}
        | pair
        | _without_none(
            on_link=_on_link(nat),
            routes=[dict(route) for route in nat.routes] or None,
            host=nat.inside.kernel and True,
        )
        | also_host
        | {"also": [other], "sources": _from_inside(nat)},
        **sites,
        "out-host": out_host
        | pair
        | _without_none(host=nat.outside.kernel and True)
        | {"sources": _from_outside(nat)},
    }


def _from_inside(nat: Nat) -> dict[str, Any]:
    """From whom the box takes packets inside: subscribers, those on the link, and behind routers there."""
    routed = [str(nat.inside.address.network), *(route["to"] for route in nat.routes)]
    only = _reverse_path(nat) or list(dict.fromkeys([*(nat.subscribers or SUBSCRIBERS), *routed]))
    return {"non_host_addresses": _non_host_addresses(nat.inside, nat.outside), "only": only}


def _from_outside(nat: Nat) -> dict[str, Any]:
    """From whom it takes none outside, as the sessions do: nobody there has an address of the inside."""
    other_side = [*(nat.subscribers or SUBSCRIBERS), str(nat.inside.address.ip)]
    exempt = nat.conntrack.get("exempt", ())
    sources: dict[str, Any] = {
        "non_host_addresses": _non_host_addresses(nat.inside, nat.outside),
        "other_side": other_side,
    }
    return sources | _without_none(**{"except": list(dict.fromkeys([*_outside(nat), *exempt])) or None})


def _non_host_addresses(*sides: Side) -> list[str]:
    """Network and broadcast addresses, which are no host's."""
    networks = [side.address.network for side in sides if side.address.network.prefixlen < 31]
    return [str(address) for network in networks for address in (network[0], network[-1])]


def _outside(nat: Nat) -> list[str]:
    """Prefixes in the subscribers' space that are outside."""
    own = nat.outside.address.network
    subscribers = [IPv4Network(text) for text in nat.subscribers or SUBSCRIBERS]
    listed = [str(own)] if any(one.overlaps(own) for one in subscribers) else []
    return [*listed, *nat.outside_prefixes]


def _reverse_path(nat: Nat) -> list[str] | None:
    """Where packets from inside may come from, if that counts."""
    if nat.reverse_path == "loose":
        return None
    return [str(nat.inside.address.network), *(route["to"] for route in nat.routes)]


def _on_link(nat: Nat) -> list[str] | None:
    """Whom the box may ask for by ARP. By leases nobody: who has none could answer for another."""
    return [str(nat.inside.address.network)] if nat.leases is None else None


_SITE = ("most", "by", "prefix")
"""What both the sessions and the DHCP clients know of sites."""


def _site(sites: Mapping[str, Any]) -> dict[str, Any]:
    return {key: said for key, said in sites.items() if key in _SITE}


def _subscribers(nat: Nat) -> dict[str, Any]:
    listed = None if nat.subscribers is None else list(nat.subscribers)
    return _without_none(subscribers=listed, most_subscribers=nat.most_subscribers)


def _replicas(nat: Nat, ports: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {
        # what a queue received goes on with the one of its own number, without a hand-off
        VALIDITY[port]: {"count": settings["queues"], "affinity": "upstream"}
        for port, settings in ports.items()
        if settings.get("queues", 1) > 1
    }
    if nat.workers > 1:
        found |= {name: {"count": nat.workers, "affinity": "owner"} for name in REPLICATED}
    return found


def _without_none(**options: Any) -> dict[str, Any]:
    """Those that were said."""
    return {key: value for key, value in options.items() if value is not None}


# ---- faults

_OPTIONS = {
    "subscribers": "subscribers",
    "pool": "pool",
    "answers_for": "pool",
    "gateway": "outside.gateway",
    "most_subscribers": "limits.subscribers",
    "sessions": "limits.sessions",
    "sessions_per_subscriber": "limits.sessions_per_subscriber",
    "ports_per_block": "ports.per_block",
    "blocks_per_subscriber": "ports.blocks_per_subscriber",
    "udp_filtering": "filtering.udp",
    "tcp_filtering": "filtering.tcp",
    **{key: f"sites.{key}" for key in ("macs", "known", "release_after", "least_lease")},
    **{
        key: key
        for key in ("sites", "mss", "timeouts", "forwards", "exempt", "deterministic", "log", "leases", "pcp")
    },
    "state": "state",
    "steering": "steering",
    "routes": "inside.routes",
    **{key: key for key in ("acl", "ip_options", "outside_prefixes", "reverse_path")},
    "pair": "pair",
    "inside": "inside",
    "outside": "outside",
}
"""Options of elements → keys of a configuration."""
_ELEMENT = re.compile(r"elements\.(?P<element>[^.\[]+)\.(?P<option>[a-z_]+)(?P<rest>.*)")


def config_path(at: str) -> str:
    """A place in the graph as one in the configuration; what has none there stays as it is."""
    if found := re.fullmatch(r"ports\.((?:inside|outside)\b.*)", at):
        return found[1]
    if found := re.match(r"(ports|elements)\.(in|out)-(kernel|untag|tag)\b", at):
        return f"{found[2]}side.host"
    if found := re.match(r"elements\.(in|out)-(to-kernel|resolution|from-kernel)\b", at):
        return f"{found[1]}side.host.rate"
    if at.startswith("placement"):
        return "execution"
    if at.startswith("replicas"):
        return "workers"
    found = _ELEMENT.fullmatch(at)
    if found is None:
        return at
    if found["option"] == "host":
        return "inside.host" if found["element"].startswith("in-") else "outside.host"
    if found["option"] == "port":
        return "inside" if found["element"].startswith("in-") else "outside"
    key = _OPTIONS.get(found["option"])
    return at if key is None else key + found["rest"]


def explained(e: Error, file: str) -> Error:
    """What the daemon says of the graph, as a fault of the configuration that it was made of."""
    found = tuple({**one, "at": _placed(str(one.get("at") or ""), file)} for one in e.all)
    return Error(e.code, e.what, at=_placed(e.at, file), fix=e.fix, all=found)


_OF_GRAPH = re.compile(r"(elements|ports|placement|replicas|edges|memory|huge_pages)\b")


def _placed(at: str, file: str) -> str:
    return f"{file}: {config_path(at)}" if _OF_GRAPH.match(at) else at
