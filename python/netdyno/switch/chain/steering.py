"""The flows of a chain: from its description to rules of a switch, and the path of a packet; pure."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from netdyno.switch.chain.spec import REST, Chain, Match, Version
from netdyno.switch.chain.vnf import KINDS
from netdyno.switch.chain.vnf.base import IN, OUT
from netdyno.switch.driver.base import Flow
from netdyno.switch.openflow.action import (
    ETH_P_NSH,
    FORWARD_MAC,
    REVERSE_MAC,
    Action,
    Back,
    DecapNsh,
    DecNshTtl,
    EncapNsh,
    PopVlan,
    PushVlan,
    Select,
    SetNsh,
)
from netdyno.switch.tunnel import PROBER, REMOTE, SIDES, SWITCH, Line, LineEnd, Outer

CLIENT, SERVER = "client", "server"
Direction = Literal["forward", "reverse"]
DIRECTIONS: tuple[Direction, Direction] = ("forward", "reverse")
FIRST_VLAN, FIRST_INDEX, FIRST_TTL = 101, 255, 63
PROBE_TYPE = 0x88B5
"""Ethernet type for experiments (IEEE 802)."""
PROBES, PROBE_PRIORITY = (1 << 33) + 16, 64_000
"""Cookie of the first flow for probes of paths, and the priority of all."""
_PORT_FIELDS: Mapping[Direction, str] = {"forward": "tp_dst", "reverse": "tp_src"}
_IP_FIELDS: Mapping[Version, str] = {4: "ip", 6: "ipv6"}
TAGGED = 2000
"""Priority of rules for encapsulated frames: any other rule of a port might match them, too."""
TWO_TAGS, TAG_TYPES = "two VLAN tags", (0x8100, 0x88A8)
"""What rules are for that drop frames with a second VLAN tag, and the Ethernet types of tags."""
_TWO_TAGS_PRIORITY = 1500
"""Above that of all classes."""


@dataclass(frozen=True)
class Port:
    """A port of a host: of a function, of the client or server, or a switch's end of a line."""

    host: str
    interface: str

    @property
    def name(self) -> str:
        """The switch's port at the other end of its link."""
        return self.host if self.interface == "eth0" else f"{self.host}-{self.interface}"

    def __str__(self) -> str:
        return self.host if self.interface == "eth0" else f"{self.host}.{self.interface}"


@dataclass(frozen=True)
class Tag:
    """An encapsulation that tells the path of a packet and, with NSH, where on it the packet is."""

    path: int
    """VLAN identifier, or service path identifier."""
    index: int | None = None
    """Service index; None: it is a VLAN tag."""
    ttl: int | None = None
    """Of the network service header."""

    def __str__(self) -> str:
        if self.index is None:
            return f"VLAN {self.path}"
        return f"NSH path {self.path} index {self.index} TTL {self.ttl}"


@dataclass(frozen=True)
class Rule:
    """A flow, and what it is for."""

    flow: Flow
    traffic: str
    """The class of traffic."""
    direction: Direction
    source: Port
    targets: tuple[Port, ...]
    """Where packets go: one port, or those of a group; none: they are dropped."""
    mirrors: tuple[Port, ...] = ()
    tag: Tag | None = None
    """That packets have when they arrive."""
    switch: str = SWITCH
    """Host of the switch whose rule it is."""
    line: Line | None = None
    """The line to the other switch that it sends packets to."""
    outer: Outer | None = None
    """Headers of the tunnel of that line, if it has one."""
    standby: bool = False
    """Whether it is for packets of a line that its class does not take now."""
    version: Version | None = None
    """Version of IP that it matches; None: any."""
    refuses: bool = False
    """Whether it drops what no end may send."""

    def __str__(self) -> str:
        to = " or ".join(dict.fromkeys(map(str, self.targets))) or "nowhere"
        copies = "".join(f", copy to {one}" for one in self.mirrors)
        what = f"{self.traffic} {self.direction}{', IPv6' if self.version == 6 else ''}"
        return f"rule {self.flow.cookie} ({what}): {self.source} → {to}{copies}"


@dataclass(frozen=True)
class Step:
    """A point of a path: a frame that leaves a port, or comes in there."""

    port: Port
    sends: bool
    """Whether the host of the port sends it; else it receives it."""
    rule: Rule | None = None
    """The rule that brings it here; None: the host itself."""
    copy: bool = False
    """Whether it is a copy for a mirror."""
    tag: str = ""
    """Its encapsulation in words; empty: none."""
    outer: str = ""
    """The headers of its tunnel in words; empty: it is in none."""
    line: str = ""
    """The line between the switches in words; empty: it is on none."""

    def __str__(self) -> str:
        return f"{self.port} {'sends' if self.sends else 'receives'}"


def port_names(chain: Chain) -> list[Port]:
    """All ports of the switch: the ends', then those of each function and replica."""
    found = [Port(CLIENT, "eth0"), Port(SERVER, "eth0")]
    for host, name in chain.hosts().items():
        found += [Port(host, IN)] + [Port(host, OUT)] * (not chain.mirror(name))
    return found


def underlay_ports(chain: Chain) -> list[Port]:
    """Interfaces of the switches towards each other."""
    return [Port(host, one.interface) for host in chain.switches() for one in chain.lines()]


def tunnelled(chain: Chain) -> list[Port]:
    """Those of them on which packets are in a tunnel."""
    return [Port(host, one.interface) for host in chain.switches() for one in chain.lines() if one.tunnel]


def choices(chain: Chain) -> list[dict[str, str]]:
    """Lines by class: the first choice of all, then the second, …; a class with fewer keeps its last."""
    orders = {name: chain.order(name) for name in chain.paths()}
    most = max((len(one) for one in orders.values()), default=0)
    return [{name: one[min(at, len(one) - 1)] for name, one in orders.items()} for at in range(max(1, most))
            if all(orders.values())] or [{}]  # fmt: skip


def rules(chain: Chain, failed: Collection[str] = (), by: Mapping[str, str] | None = None) -> list[Rule]:
    """All flows. Those of classes come before the rest, by priority, and those that drop come last. `by` are
    names of the lines that classes take between the switches; default: the first of their orders.

    What arrives by another line is let in, too, so that nothing is lost while a class moves.

    `failed` are hosts of functions: replicas that live take the flows of those that failed. A function
    without any is left out, or ends the path if it is to fail closed.
    """
    made: list[Rule] = []
    chosen = {**choices(chain)[0], **(by or {})}
    lines = {one.name: one for one in chain.lines()}
    for place, (name, members) in enumerate(chain.paths().items()):
        line = lines.get(chosen.get(name, ""))
        match = chain.classes[name].match if name != REST else None
        blocked = chain.classes[name].blocked_by if match is not None else None
        priority = 100 if match is None else _priority(chain, place)
        for way, direction in enumerate(DIRECTIONS):
            arrives: Tag | None = None
            for edge in _edges(chain, members, direction, failed):
                function = chain.hosts().get(edge.sources[0].host)
                if blocked is not None and (direction == "reverse" or function == blocked):
                    # nothing of it is to come so far; what the server sends is dropped below
                    break
                before, after = arrives, _tag(chain, 2 * place + way, edge.ends)
                for source, part, had, goes in _parts(chain, edge, before, after, line):
                    arrives = goes
                    here = chain.switch_of(source.host)
                    leaves = bool(part.targets) and part.targets[0].host in SIDES
                    standby = line is not None and source.host in SIDES and source.interface != line.port
                    for version, fields in _matches(chain, match, had, direction):
                        flow = Flow(
                            cookie=len(made) + 1, in_port=source.name,
                            actions=_actions(part, had, goes, direction),
                            match=fields, priority=priority if had is None else TAGGED,
                        )  # fmt: skip
                        made.append(
                            Rule(flow, name, direction, source, part.targets, part.copies, goes, here,
                                 line if leaves else None, _outer(line, here) if leaves else None, standby,
                                 version)
                        )  # fmt: skip
    return [*made, *_refusals(chain, len(made) + 1)]


def _refusals(chain: Chain, first: int) -> Iterator[Rule]:
    """Rules, numbered from `first`, that drop frames where they come in: what the server sends of a class
    that is blocked, which the rules of the rest would bring to the client past the function that does; and,
    with any class, what has a second VLAN tag, behind which the switch sees no class."""
    number = itertools.count(first)
    source = Port(SERVER, "eth0")
    for place, (name, one) in enumerate(chain.classes.items()):
        if one.blocked_by is None:
            continue
        for version, fields in _matches(chain, one.match, None, "reverse"):
            flow = Flow(next(number), source.name, [], fields, _priority(chain, place))
            yield Rule(flow, name, "reverse", source, (), switch=chain.switch_of(SERVER), version=version,
                       refuses=True)  # fmt: skip
    for direction, host in zip(DIRECTIONS, (CLIENT, SERVER), strict=True):
        for kind in TAG_TYPES if chain.classes else ():
            source, fields = Port(host, "eth0"), {"dl_type": f"{kind:#06x}"}
            flow = Flow(next(number), source.name, [], fields, _TWO_TAGS_PRIORITY)
            yield Rule(flow, TWO_TAGS, direction, source, (), switch=chain.switch_of(host), refuses=True)


def _priority(chain: Chain, place: int) -> int:
    """Of rules of a class: one that is named first counts first."""
    return 1000 + len(chain.classes) - place


def expected(
    every: Sequence[Rule], traffic: str, direction: Direction, replicas: Collection[str] = ()
) -> list[Step]:
    """The path of a packet of a class, from the host that sends it to the one that gets it, by rules that
    packets of one version of IP meet.

    `replicas` are those that it takes, of each function; of a function without any here, the first.
    """
    ways = {one.source: one for one in every if (one.traffic, one.direction) == (traffic, direction)}
    found: list[Step] = []
    source, tag = Port(CLIENT if direction == "forward" else SERVER, "eth0"), ""
    while (rule := ways.get(source)) is not None:
        if source.host not in SIDES:
            found.append(Step(source, sends=True, tag=tag))
        found += [Step(one, False, rule, copy=True) for one in rule.mirrors]
        if not rule.targets:
            break
        to = next((one for one in rule.targets if one.host in replicas), rule.targets[0])
        tag = str(rule.tag or "")
        if rule.line:
            far = REMOTE if to.host == SWITCH else SWITCH
            left = Step(Port(to.host, rule.line.interface), True, rule, False, tag,
                        str(rule.outer or ""), str(rule.line))  # fmt: skip
            found += [left, replace(left, port=Port(far, rule.line.interface), sends=False, rule=None)]
            source = Port(far, rule.line.port)
            continue
        found.append(Step(to, False, rule, tag=tag))
        source = Port(to.host, {IN: OUT, OUT: IN}.get(to.interface, to.interface))
        if to.host in (CLIENT, SERVER):
            break
    return found


def sections(path: Sequence[Step], ends: Collection[str]) -> list[list[Step]]:
    """A path in parts: each but the last leads to one of these hosts, and the next begins there."""
    found: list[list[Step]] = [[]]
    for step in path:
        found[-1].append(step)
        if step.port.host in ends and not step.sends and not step.copy:
            found.append([])
    return [one for one in found if one]


@dataclass(frozen=True)
class _Edge:
    """A part of a path: from a function, an end, or any replica to the next."""

    sources: tuple[Port, ...]
    targets: tuple[Port, ...]
    copies: tuple[Port, ...]
    ends: int | None = None
    """Place on the path of the function that frames go to with an encapsulation; None: without."""


def _edges(
    chain: Chain, members: Sequence[str], direction: Direction, failed: Collection[str]
) -> Iterator[_Edge]:
    ends = (CLIENT, SERVER) if direction == "forward" else (SERVER, CLIENT)
    order = members if direction == "forward" else list(reversed(members))
    into, out = (IN, OUT) if direction == "forward" else (OUT, IN)
    sources: tuple[Port, ...] = (Port(ends[0], "eth0"),)
    copies: list[Port] = []
    passed = [one for one in order if not chain.mirror(one) and _alive(chain, one, failed)]
    for place, name in enumerate(order):
        hosts = _alive(chain, name, failed)
        if not hosts:
            if chain.vnfs[name].on_failure == "closed":
                yield _Edge(sources, (), tuple(copies))
                return
        elif chain.mirror(name):
            copies.append(Port(name, IN))
        else:
            at = place if _takes(chain, name, passed) else None
            yield _Edge(sources, tuple(Port(one, into) for one in hosts), tuple(copies), at)
            sources = tuple(Port(one, out) for one in dict.fromkeys(hosts))
            copies = []
    yield _Edge(sources, (Port(ends[1], "eth0"),), tuple(copies))


def _parts(
    chain: Chain, edge: _Edge, before: Tag | None, after: Tag | None, line: Line | None
) -> Iterator[tuple[Port, _Edge, Tag | None, Tag | None]]:
    """Sources of an edge with what the rule of each does, and the encapsulation that frames come and go with.

    An edge from one switch to the other has a rule of each source that leads to a line, and a rule where each
    line ends. Copies are taken at the switch of their mirror.
    """
    here = chain.switch_of(edge.sources[0].host)
    last = (edge.targets or edge.copies)[-1:]
    there = chain.switch_of(last[0].host) if last else here
    if there == here or line is None:
        yield from ((source, edge, before, _sent(after, before, edge)) for source in edge.sources)
        return
    copies = {
        host: tuple(one for one in edge.copies if chain.switch_of(one.host) == host) for host in (here, there)
    }
    near = replace(edge, targets=(Port(here, line.port),), copies=copies[here])
    far = replace(edge, copies=copies[there])
    between = _sent(after, before, near)
    yield from ((source, near, before, between) for source in edge.sources)
    for one in chain.lines():
        yield Port(there, one.port), far, between, _sent(after, between, far)


def _sent(after: Tag | None, before: Tag | None, edge: _Edge) -> Tag | None:
    """An encapsulation as a rule sends it. Each switch takes one off the TTL of a header that it keeps
    (RFC 8300 section 2.2); for a copy, the header is taken off, and another put on."""
    if after is None or after.index is None:
        return after
    if before is None or before.ttl is None or edge.copies:
        return replace(after, ttl=FIRST_TTL)
    return replace(after, ttl=before.ttl - 1)


def _outer(line: Line | None, switch: str) -> Outer | None:
    if line is None or line.tunnel is None:
        return None
    end = LineEnd.of(line, switch)
    return Outer(line.tunnel.kind, line.tunnel.key, end.local, end.remote)


def _alive(chain: Chain, name: str, failed: Collection[str]) -> list[str]:
    """A host for each bucket: the flows of a replica that failed go to others, and no other flow moves."""
    every = chain.instances(name)
    if chain.vnfs[name].on_failure is None:
        return every
    alive = [one for one in every if one not in failed]
    return [one if one in alive else alive[at % len(alive)] for at, one in enumerate(every)] if alive else []


def _takes(chain: Chain, name: str, passed: Sequence[str]) -> bool:
    """Whether a function gets frames with the encapsulation.

    Open vSwitch chooses no bucket for a frame that it has just taken out of an NSH, and puts none on in a
    bucket: replicas and the functions before and after them get plain frames.
    """
    if chain.steering not in KINDS[chain.vnfs[name].kind].passes:
        return False
    at = passed.index(name)
    near = passed[max(0, at - 1) : at + 2]
    return chain.steering == "vlan" or all(chain.vnfs[one].replicas == 1 for one in near)


def _tag(chain: Chain, path: int, place: int | None) -> Tag | None:
    if place is None:
        return None
    if chain.steering == "vlan":
        return Tag(FIRST_VLAN + path)
    return Tag(1 + path, FIRST_INDEX - place)


def _actions(edge: _Edge, before: Tag | None, after: Tag | None, direction: Direction) -> list[Action]:
    made: list[Action] = []
    if before is not None and (edge.copies or after is None) and (edge.copies or edge.targets):
        made.append(PopVlan() if before.index is None else DecapNsh())
        before = None
    made += [one.name for one in edge.copies]
    if not edge.targets:
        return made
    if after is not None and before is None:
        made.append(_put(after, direction))
    elif after is not None and before is not None and after.index is not None:
        made.append(DecNshTtl())
        if after.index != before.index:
            made.append(SetNsh(after.path, after.index))
    made.append(
        edge.targets[0].name if len(edge.targets) == 1 else Select(tuple(one.name for one in edge.targets))
    )
    return made


def _put(tag: Tag, direction: Direction) -> Action:
    if tag.index is None:
        return PushVlan(tag.path)
    macs = (FORWARD_MAC, REVERSE_MAC) if direction == "forward" else (REVERSE_MAC, FORWARD_MAC)
    return EncapNsh(tag.path, tag.index, *macs)


def _tag_fields(tag: Tag) -> Mapping[str, str]:
    if tag.index is None:
        return {"dl_vlan": str(tag.path)}
    return {"dl_type": f"{ETH_P_NSH:#06x}", "nsh_spi": str(tag.path), "nsh_si": str(tag.index)}


def _matches(
    chain: Chain, match: Match | None, tag: Tag | None, direction: Direction
) -> Iterator[tuple[Version | None, Mapping[str, str]]]:
    """Fields of rules: one for each version of IP where a protocol is matched."""
    if tag is not None:
        yield None, _tag_fields(tag)
    elif match is None:
        yield None, {}
    else:
        more = {} if match.port is None else {_PORT_FIELDS[direction]: str(match.port)}
        if match.dscp is not None:
            more["ip_dscp"] = str(match.dscp)
        for version in chain.versions():
            of = f"{match.protocol}{'6' if version == 6 else ''}" if match.protocol else _IP_FIELDS[version]
            yield version, {of: "", **more}


def probe_flows(chain: Chain, host: str) -> list[Flow]:
    """Flows of a switch for the probes of paths: out by the line that their address names, back from the far
    switch, and to the host that sent them."""
    if chain.wan is None:
        return []
    made: list[tuple[str, list[Action], dict[str, str]]] = []
    for one in chain.lines():
        port = Port(host, one.port).name
        made.append((port, [PROBER if host == SWITCH else Back()], {}))
        if host == SWITCH:
            made.append((PROBER, [port], {"dl_dst": probe_address(one)}))
    kind = {"dl_type": f"{PROBE_TYPE:#06x}"}
    return [Flow(PROBES + at, port, actions, {**kind, **more}, PROBE_PRIORITY)
            for at, (port, actions, more) in enumerate(made)]  # fmt: skip


def probe_address(line: Line) -> str:
    """The Ethernet address of probes that go by a line."""
    return f"02:6e:64:00:02:{line.number:02x}"


def of_version(every: Sequence[Rule], version: Version) -> list[Rule]:
    """Rules that packets of one version of IP meet."""
    return [one for one in every if one.version in (None, version)]
