"""The flows of a chain: from its description to rules of a switch, and the path of a packet; pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

from netdyno.switch.chain.spec import REST, Chain, Match
from netdyno.switch.chain.vnf.base import IN, OUT
from netdyno.switch.driver.base import Flow

CLIENT, SERVER = "client", "server"
Direction = Literal["forward", "reverse"]
DIRECTIONS: tuple[Direction, Direction] = ("forward", "reverse")


@dataclass(frozen=True)
class Port:
    """A port of a host: of a function, or of the client or server."""

    host: str
    interface: str

    @property
    def name(self) -> str:
        """The switch's port at the other end of its link."""
        return self.host if self.interface == "eth0" else f"{self.host}-{self.interface}"

    def __str__(self) -> str:
        return self.host if self.interface == "eth0" else f"{self.host}.{self.interface}"


@dataclass(frozen=True)
class Rule:
    """A flow, and what it is for."""

    flow: Flow
    traffic: str
    """The class of traffic."""
    direction: Direction
    source: Port
    to: Port
    mirrors: tuple[Port, ...] = ()

    def __str__(self) -> str:
        copies = "".join(f", copy to {one}" for one in self.mirrors)
        return f"rule {self.flow.cookie} ({self.traffic} {self.direction}): {self.source} → {self.to}{copies}"


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

    def __str__(self) -> str:
        return f"{self.port} {'sends' if self.sends else 'receives'}"


def port_names(chain: Chain) -> list[Port]:
    """All ports of the switch: the ends', then those of each function."""
    found = [Port(CLIENT, "eth0"), Port(SERVER, "eth0")]
    for name in chain.vnfs:
        found += [Port(name, IN)] + [Port(name, OUT)] * (not chain.mirror(name))
    return found


def rules(chain: Chain) -> list[Rule]:
    """All flows. Those of classes come before the rest, by priority."""
    made: list[Rule] = []
    for place, (name, members) in enumerate(chain.paths().items()):
        match = chain.classes[name].match if name != REST else None
        blocked = chain.classes[name].blocked_by if match is not None else None
        # a class that is named first counts first
        priority = 100 if match is None else 1000 + len(chain.classes) - place
        for direction in DIRECTIONS:
            for source, to, copies in _edges(chain, members, direction):
                if blocked is not None and (direction == "reverse" or source.host == blocked):
                    # nothing of it is to come so far
                    break
                flow = Flow(
                    cookie=len(made) + 1, in_port=source.name, to=[to.name, *(one.name for one in copies)],
                    match=_fields(match, direction), priority=priority,
                )  # fmt: skip
                made.append(Rule(flow, name, direction, source, to, tuple(copies)))
    return made


def expected(chain: Chain, every: Sequence[Rule], traffic: str, direction: Direction) -> list[Step]:
    """The path of a packet of a class, from the host that sends it to the one that gets it."""
    found: list[Step] = []
    for rule in (one for one in every if (one.traffic, one.direction) == (traffic, direction)):
        found.append(Step(rule.source, sends=True))
        found += [Step(one, False, rule, copy=True) for one in rule.mirrors]
        found.append(Step(rule.to, False, rule))
    return found


def _edges(
    chain: Chain, members: Sequence[str], direction: Direction
) -> Iterator[tuple[Port, Port, list[Port]]]:
    """Each part of a path: from a port to the next, and mirrors on it."""
    stops: list[tuple[Port, Port]] = [(Port(CLIENT, "eth0"), Port(CLIENT, "eth0"))]
    copies: list[list[Port]] = [[]]
    for name in members:
        if chain.mirror(name):
            copies[-1].append(Port(name, IN))
        else:
            stops.append((Port(name, IN), Port(name, OUT)))
            copies.append([])
    stops.append((Port(SERVER, "eth0"), Port(SERVER, "eth0")))
    edges = [(a[1], b[0], of) for (a, b), of in zip(pairwise(stops), copies, strict=True)]
    yield from edges if direction == "forward" else [(b, a, of) for a, b, of in reversed(edges)]


def _fields(match: Match | None, direction: Direction) -> dict[str, str]:
    if match is None:
        return {}
    return {match.protocol: "", "tp_dst" if direction == "forward" else "tp_src": str(match.port)}
