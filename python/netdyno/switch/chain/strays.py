"""Packets of a conversation that no end sent, that come late, or in headers that are not read."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import NamedTuple

from netdyno.switch.chain.capture import Captures
from netdyno.switch.chain.lab import ChainLab
from netdyno.switch.chain.sight import Fault, Key, Sighting, excess
from netdyno.switch.chain.steering import CLIENT, SERVER, Direction, Port, Step
from netdyno.switch.chain.talk import PROTOCOLS, Talk
from netdyno.switch.chain.vnf import KINDS
from netdyno.switch.chain.vnf.graphs import Forwarder
from netdyno.switch.tunnel import SWITCH

_RST = 4
_MAKES = ("duplicate", "corrupt")
"""Ways of a bad path that make packets which nobody sent."""


class Course(NamedTuple):
    """What a packet was judged by."""

    place: tuple[str, Direction, str]
    """Class, direction and protocol of its result."""
    steps: list[Step]
    elsewhere: frozenset[tuple[Port, bool]] = frozenset()
    """Points of other parts of its path, where it is another packet."""


def asks_for(lab: ChainLab, ways: Collection[str]) -> bool:
    """Whether the description of a path or function of the chain has one of these ways."""
    every: list[object] = [spec for _, spec in lab.network.described()]
    every += [one.graph() for one in lab.vnfs.values() if isinstance(one, Forwarder)]
    return any(_asks(one, ways) for one in every)


def _asks(of: object, ways: Collection[str]) -> bool:
    """Whether it names a way. A preset names all, and those that it has not have no value."""
    if isinstance(of, Mapping):
        return any((key in ways and bool(value)) or _asks(value, ways) for key, value in of.items())
    if isinstance(of, list | tuple):
        return any(_asks(one, ways) for one in of)
    return isinstance(of, str) and any(word in of for word in ways)


def repeatable(lab: ChainLab) -> bool:
    """Whether the chain's description asks for packets that nobody sent, or that come twice."""
    return asks_for(lab, _MAKES)


def made(lab: ChainLab, captures: Captures, talk: Talk) -> Mapping[Direction, Fault]:
    """Of each direction, the first packet with the protocol and port of a conversation that no end sent."""
    if talk.protocol not in PROTOCOLS:
        return {}
    found: dict[Direction, Fault] = {}
    for at, direction, fault in sorted(_made(lab, captures, talk), key=lambda one: one[0]):
        if at:
            found.setdefault(direction, fault)
    with captures.lock:
        unread = sorted(captures.unread, key=lambda one: one.at)
    for one in unread[:1]:
        verb = "sends" if one.sends else "receives"
        host = one.port.host if one.sends else SWITCH
        what = f"{one.port} {verb} a packet of {talk.name} in headers that are none of its path's"
        found.setdefault("forward", Fault(what, host=host, leak=True))
    return found


def _made(lab: ChainLab, captures: Captures, talk: Talk) -> Iterator[tuple[int, Direction, Fault]]:
    ends = {CLIENT, SERVER, *_relays(lab)}
    for one, origin in captures.new().items():
        about = origin.about
        mine = one[0] == talk.name and about is not None and talk.port in about[1:]
        if about is None or not (mine or origin.signed):
            continue
        if origin.sends and origin.port.host in ends:
            continue
        direction: Direction = "reverse" if about[1] == talk.port else "forward"
        if not talk.answered and direction == "reverse" and _resets(one):
            # a function may refuse what it is to block
            continue
        what = f"a packet of {one[0]} that no end sent, with the ports {about[1]} → {about[2]}"
        if origin.sends:
            yield origin.at, direction, Fault(f"it sends {what}", host=origin.port.host, leak=True)
        else:
            yield origin.at, direction, Fault(f"{origin.port} receives {what}", host=SWITCH, leak=True)


def late(captures: Captures, courses: Mapping[Key, Course]) -> Mapping[tuple[str, Direction, str], Fault]:
    """Of each class, direction and protocol, the first packet that is anywhere more often than it was
    sent."""
    found: dict[tuple[str, Direction, str], Fault] = {}
    with captures.lock:
        every = {one: list(captures.every.get(one, ())) for one in courses}
    for one, course in courses.items():
        seen: list[Sighting] = [s for s in every[one] if (s.port, s.sends) not in course.elsewhere]
        if course.place not in found and (fault := excess(course.steps, seen)):
            found[course.place] = fault
    return found


def _relays(lab: ChainLab) -> list[str]:
    """Hosts of functions that begin connections themselves."""
    found = []
    for host, name in lab.chain.hosts().items():
        one = lab.chain.vnfs[name]
        if KINDS[one.kind].ends(one.options, "tcp", 0) or KINDS[one.kind].http(one.options):
            found.append(host)
    return found


def _resets(one: Key) -> bool:
    return len(one) == 4 and isinstance(one[2], int) and bool(one[2] & _RST)
