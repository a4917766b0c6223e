"""Proof that a chain steers: packets of each class at each hop, both directions, in order, exactly once."""

from __future__ import annotations

import contextlib
import secrets
import socket
import struct
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from netdyno.errors import Error
from netdyno.switch.chain import layout, underlay
from netdyno.switch.chain.capture import Captures
from netdyno.switch.chain.lab import ChainLab
from netdyno.switch.chain.replicas import Choices, disagreement
from netdyno.switch.chain.sight import Fault, Key, Sighting, judge
from netdyno.switch.chain.spec import REST, Chain
from netdyno.switch.chain.steering import (
    CLIENT,
    DIRECTIONS,
    SERVER,
    Direction,
    Port,
    Step,
    expected,
    port_names,
    underlay_ports,
)
from netdyno.switch.chain.underlay import TunnelReport
from netdyno.system import namespace

ROUNDS = 3
"""A fault counts if each of so many rounds shows the same: a packet that a busy machine lost is no fault."""
ANSWER, QUIET = 1.0, 0.3
"""Seconds that a conversation waits for a packet, and after which no packet is in transit."""
PROTOCOLS = {"tcp": 6, "udp": 17}
FLOWS = 16
"""TCP connections for each replica: one of two gets none by chance once in a thousand million times."""
SOURCE = 30_000
"""Source port of the first flow of datagrams."""
FREE = 40_007
"""Port of the default class, or the next one that is in no class."""


@dataclass(frozen=True)
class DirectionResult:
    """A class of traffic in one direction."""

    traffic: str
    direction: Direction
    protocol: str
    steps: list[Step]
    packets: int
    """Packets that were followed."""
    fault: Fault | None = None
    untested: str = ""
    """Why nothing could be followed."""
    counts: Mapping[str, int] = field(default_factory=dict)
    """Packets at each step."""
    replicas: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """Flows that each replica of a function took."""
    choices: Mapping[int, Mapping[str, str]] = field(default_factory=dict)
    """Of each flow, the replica of each function that its packets took."""

    @property
    def cut(self) -> bool:
        """Whether the path ends before a function that failed and is to let nothing pass."""
        return [one for one in self.steps if not one.copy][-1].sends

    @property
    def good(self) -> bool:
        """Whether packets were followed, and all followed their path."""
        return self.fault is None and not self.untested

    def document(self) -> dict[str, Any]:
        """As JSON."""
        rule = self.fault.rule if self.fault else None
        return {
            "class": self.traffic, "direction": self.direction, "protocol": self.protocol,
            "packets": self.packets,
            "steps": [{"at": str(s.port), "sends": s.sends, "copy": s.copy,
                       "rule": s.rule.flow.cookie if s.rule else None,
                       "packets": self.counts.get(str(s), 0)} for s in self.steps],
            "good": self.good, "cut": self.cut, "fault": str(self.fault) if self.fault else "",
            "untested": self.untested,
            "replicas": {name: dict(flows) for name, flows in self.replicas.items()},
            "rule": rule.flow.cookie if rule else None, "host": self.fault.host if self.fault else "",
        }  # fmt: skip


@dataclass(frozen=True)
class Verification:
    """All classes, both directions."""

    directions: list[DirectionResult]
    seconds: float
    flows: Mapping[int, int]
    """Packets that the switch counted by each rule."""
    tunnel: TunnelReport | None = None
    """The tunnel between the switches, if there is one."""

    @property
    def good(self) -> bool:
        """Whether everything followed its path."""
        return all(one.good for one in self.directions) and not (self.tunnel and self.tunnel.fault)

    @property
    def wrong(self) -> str:
        """The first departure in words; empty: everything is as it is to be."""
        for one in self.directions:
            if not one.good:
                return f"{one.traffic} {one.direction} ({one.protocol}): {one.fault or one.untested}"
        return str(self.tunnel.fault or "") if self.tunnel else ""

    @property
    def faults(self) -> list[Fault]:
        """The first departure of each class and direction."""
        every = [one.fault for one in self.directions]
        if self.tunnel:
            every.append(self.tunnel.fault)
        return [one for one in every if one]

    @property
    def named(self) -> set[int]:
        """Numbers of the rules at fault."""
        return {rule.flow.cookie for one in self.faults for rule in (one.rule, one.also) if rule}


def verify(
    lab: ChainLab, rounds: int = ROUNDS, told: Callable[[DirectionResult], None] = lambda _: None
) -> Verification:
    """Send packets of each class through the chain, and follow them."""
    began = time.monotonic()
    captures = Captures([*port_names(lab.chain), *underlay_ports(lab.chain)], lab.network.namespace)
    found: list[DirectionResult] = []
    before = lab.flow_packets()
    try:
        for traffic in lab.chain.paths():
            for protocol, talk in _conversations(lab, traffic):
                results = _rounds(lab, captures, traffic, protocol, talk, rounds)
                for one in results:
                    told(one)
                found += results
    finally:
        captures.close()
    if dead := lab.dead():
        raise Error(
            "ND-91-41", f"a part of the chain ended: {dead}", at="chain", fix="See its log in the folder"
        )
    after = lab.flow_packets()
    moved = {cookie: count - before.get(cookie, 0) for cookie, count in after.items()}
    tunnel = None
    if lab.chain.tunnel:
        through = all(one.good for one in found if one.traffic == REST and one.protocol == "udp")
        tunnel = underlay.report(lab, free_port(lab.chain), through)
    return Verification(found, time.monotonic() - began, moved, tunnel)


def _rounds(
    lab: ChainLab, captures: Captures, traffic: str, protocol: str, talk: Talk, rounds: int
) -> list[DirectionResult]:
    """Again while a round shows a fault; what one round shows to be whole is whole."""
    kept: list[DirectionResult] = []
    for number in range(max(1, rounds)):
        captures.clear()
        talk.run(lab)
        captures.quiet(QUIET, 3 * ANSWER)
        seen = [
            _followed(lab, captures, traffic, protocol, direction, talk)
            for direction in directions(lab, traffic)
        ]
        if len(seen) == 2 and protocol in PROTOCOLS and all(one.good for one in seen):
            fault = disagreement(lab.rules, traffic, *(one.choices for one in seen))
            seen[1] = replace(seen[1], fault=fault)
        if not kept:
            kept = seen
        else:
            # what was good once is good; else the fault stands as it was told last
            kept = [
                old if old.good or (new.untested and old.fault) else new
                for old, new in zip(kept, seen, strict=True)
            ]
        if all(one.good for one in kept) or number + 1 == rounds:
            break
    return kept


def directions(lab: ChainLab, traffic: str) -> tuple[Direction, ...]:
    """Directions in which there is something to follow: where nothing gets through, nothing comes back."""
    end = expected(lab.rules, traffic, "forward")[-1]
    return DIRECTIONS if end.port.host == SERVER else DIRECTIONS[:1]


def _followed(
    lab: ChainLab, captures: Captures, traffic: str, protocol: str, direction: Direction, talk: Talk
) -> DirectionResult:
    whole = talk.path(lab, expected(lab.rules, traffic, direction), direction)
    sender = whole[0].port.host
    packets = {
        one: about for one, about in captures.sent_by(sender).items() if talk.is_mine(one, about, direction)
    }
    if not packets:
        why = f"{sender} sent nothing"
        if direction == "reverse":
            why += ": nothing of the other direction reached it"
        return DirectionResult(traffic, direction, protocol, whole, 0, untested=why)
    seen = {one: captures.of(one) for one in packets}
    chosen = Choices(lab.chain, lab.rules, traffic, direction)
    counts: Counter[str] = Counter()
    fault: Fault | None = None
    shown = whole
    for one in sorted(packets, key=lambda k: min(s.at for s in seen[k])):
        taken = chosen.add(talk.flow(packets[one], direction), seen[one])
        steps = talk.path(lab, expected(lab.rules, traffic, direction, taken), direction)
        for step in steps:
            counts[str(step)] += sum((s.port, s.sends) == (step.port, step.sends) for s in seen[one])
        if fault is None:
            fault = _wrong(lab, captures, one, traffic, steps, seen[one])
            # later captures would count a packet that is sent again
            shown = steps
    fault = fault or chosen.fault
    if fault is None and 1 < talk.count == len(chosen.taken):
        fault = chosen.unused(lab.chain, protocol)
    return DirectionResult(
        traffic, direction, protocol, shown, len(packets), fault, counts=counts,
        replicas=chosen.flows(), choices=chosen.taken,
    )  # fmt: skip


def _wrong(
    lab: ChainLab, captures: Captures, one: Key, traffic: str, steps: list[Step], seen: list[Sighting]
) -> Fault | None:
    """Where a packet leaves its path, or passes the function that is to block it."""
    blocked = lab.chain.classes[traffic].blocked_by if traffic in lab.chain.classes else None
    if blocked and any(s.sends and lab.chain.hosts().get(s.port.host) == blocked for s in seen):
        return Fault("it lets packets pass that it is to block", host=blocked)
    sent = sum((s.port, s.sends) == (steps[0].port, True) for s in seen)
    found = judge(steps, seen, sent)
    if found and found.excess:
        return _located(lab, captures, one, steps, found)
    return underlay.explained(lab, found) if found and lab.chain.tunnel else found


def _located(lab: ChainLab, captures: Captures, one: Key, steps: list[Step], fault: Fault) -> Fault:
    """The rule that makes one too many: sent again from its source, and not from the next, it does so."""
    with captures.lock:
        frames = {port: frame for (known, port), frame in captures.frames.items() if known == one}
    starts = [at for at, step in enumerate(steps) if step.sends and step.port in frames]
    low, high, found = 0, len(starts) - 1, fault
    while low <= high:
        middle = (low + high) // 2
        rest = steps[starts[middle] :]
        captures.clear()
        _send(lab, rest[0].port, frames[rest[0].port])
        captures.quiet(QUIET, ANSWER)
        seen = captures.of(one)
        # an end may send it once more by itself
        sent = sum((s.port, s.sends) == (rest[0].port, True) for s in seen)
        if odd := judge(rest, seen, sent):
            rule = next((step.rule for step in rest[1:] if step.rule and not step.copy), None)
            found, low = Fault(odd.what, rule, excess=True), middle + 1
        else:
            high = middle - 1
    return found


def _send(lab: ChainLab, port: Port, frame: bytes) -> None:
    def out() -> None:
        with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as made:
            made.bind((port.interface, 0))
            made.send(frame)

    namespace.inside(lab.network.namespace(port.host), out)


# ------------------------------------------------------------------------------- conversations


class Talk:
    """A conversation between the client and the server that sends packets of a class."""

    def __init__(self, protocol: str, port: int, flows: int = 1, *, answered: bool = True) -> None:
        self.protocol, self.port, self.count, self.answered = protocol, port, flows, answered
        self.mark = b"netdyno-chain " + secrets.token_hex(8).encode()
        self._clients: dict[int, int] = {}
        """Ports of the client by those that the server sees: a NAT may change them."""

    def run(self, lab: ChainLab) -> None:
        """Have it with each flow in turn; it may come to nothing."""
        with contextlib.suppress(OSError), contextlib.ExitStack() as stack:
            for number in range(self.count):
                if self.answered:
                    self._flow(lab, number)
                else:
                    self._sent(lab, stack, number)

    def _sent(self, lab: ChainLab, stack: contextlib.ExitStack, number: int) -> None:
        """A packet that nobody is to answer."""
        kind = socket.SOCK_STREAM if self.protocol == "tcp" else socket.SOCK_DGRAM
        client = stack.enter_context(namespace.inside(lab.network.namespace(CLIENT), lambda: _socket(kind)))
        client.setblocking(False)
        self._bind(lab, client, number)
        with contextlib.suppress(BlockingIOError):
            client.connect((layout.addresses(lab.chain).server, self.port))
        if self.protocol == "udp":
            client.send(self.mark + secrets.token_hex(4).encode())

    def _flow(self, lab: ChainLab, number: int) -> None:
        with contextlib.ExitStack() as stack:
            kind = socket.SOCK_STREAM if self.protocol == "tcp" else socket.SOCK_DGRAM
            server = stack.enter_context(
                namespace.inside(lab.network.namespace(SERVER), lambda: _socket(kind))
            )
            client = stack.enter_context(
                namespace.inside(lab.network.namespace(CLIENT), lambda: _socket(kind))
            )
            server.bind(("", self.port))
            self._bind(lab, client, number)
            to = (layout.addresses(lab.chain).server, self.port)
            if self.protocol == "udp":
                self._datagrams(client, server, to)
            else:
                self._stream(client, server, to)

    def _bind(self, lab: ChainLab, client: socket.socket, number: int) -> None:
        """Open vSwitch hashes the addresses of datagrams alone: each flow needs one of its own."""
        if self.protocol == "udp" and self.count > 1:
            every = layout.addresses(lab.chain).more
            client.bind((every[number % len(every)], SOURCE + number))

    def _datagrams(self, client: socket.socket, server: socket.socket, to: tuple[str, int]) -> None:
        # each datagram of a flow is another packet
        mark = self.mark + secrets.token_hex(4).encode()
        client.sendto(mark + b" there", to)
        _, back = server.recvfrom(2048)
        self._clients[back[1]] = client.getsockname()[1]
        server.sendto(mark + b" back", back)
        client.recvfrom(2048)

    def _stream(self, client: socket.socket, server: socket.socket, to: tuple[str, int]) -> None:
        server.listen(1)
        client.connect(to)
        accepted, back = server.accept()
        self._clients[back[1]] = client.getsockname()[1]
        with accepted:
            accepted.settimeout(ANSWER)
            client.sendall(self.mark)
            accepted.recv(2048)
            accepted.sendall(self.mark)
            client.recv(2048)

    def flow(self, about: tuple[int, int, int] | None, direction: Direction) -> int:
        """The flow of a packet at the host that sent it: the client's port."""
        if about is None:
            return 0
        return about[1] if direction == "forward" else self._clients.get(about[2], 0)

    def is_mine(self, one: Key, about: tuple[int, int, int] | None, direction: Direction) -> bool:
        """Whether a packet is of it."""
        if about is None or one[0] != self.protocol or about[0] != PROTOCOLS[self.protocol]:
            return False
        return about[2 if direction == "forward" else 1] == self.port

    def path(self, lab: ChainLab, steps: list[Step], direction: Direction) -> list[Step]:
        """The part of its class's path that its packets take."""
        return steps


class Arp(Talk):
    """A question for the address of the next host with one, and its answer."""

    def __init__(self) -> None:
        super().__init__("arp", 0)

    def run(self, lab: ChainLab) -> None:
        """Ask."""
        known = layout.addresses(lab.chain)
        routed = lab.chain.routed(lab.chain.chain)
        target = known.inside[routed[0]].partition("/")[0] if routed else known.server

        def ask() -> None:
            with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(0x0806)) as out:
                out.bind(("eth0", 0))
                mac = out.getsockname()[4]
                words = struct.pack("!HHBBH6s4s6s4s", 1, 0x0800, 6, 4, 1, mac, socket.inet_aton(known.client),
                                    bytes(6), socket.inet_aton(target))  # fmt: skip
                out.send(b"\xff" * 6 + mac + b"\x08\x06" + words)

        namespace.inside(lab.network.namespace(CLIENT), ask)

    def is_mine(self, one: Key, about: tuple[int, int, int] | None, direction: Direction) -> bool:
        """By the operation."""
        return one[0] == "arp" and one[1] == (b"\x00\x01" if direction == "forward" else b"\x00\x02")

    def path(self, lab: ChainLab, steps: list[Step], direction: Direction) -> list[Step]:
        """As far as the network of the client goes."""
        routed = lab.chain.routed(lab.chain.chain)
        if not routed:
            return steps
        at = next(
            (i for i, one in enumerate(steps) if (one.port.host, one.port.interface) == (routed[0], "in")),
            None,
        )
        if at is None:
            # the chain is cut before
            return steps
        return steps[: at + 1] if direction == "forward" else steps[at:]


def _conversations(lab: ChainLab, traffic: str) -> list[tuple[str, Talk]]:
    flows = FLOWS * max(
        (lab.chain.vnfs[name].replicas for name in lab.chain.paths()[traffic]
         if lab.chain.vnfs[name].replicas > 1), default=0)  # fmt: skip
    if traffic != REST:
        one = lab.chain.classes[traffic]
        match, answered = one.match, one.blocked_by is None
        return [(match.protocol, Talk(match.protocol, match.port, flows or 1, answered=answered))]
    port = free_port(lab.chain)
    return [("arp", Arp()), ("udp", Talk("udp", port)), ("tcp", Talk("tcp", port, flows or 1))]


def free_port(chain: Chain) -> int:
    """A port of the server that is in no class: its traffic is of the default class."""
    taken = {one.match.port for one in chain.classes.values()}
    return next(number for number in range(FREE, 65_536) if number not in taken)


def _socket(kind: socket.SocketKind) -> socket.socket:
    made = socket.socket(socket.AF_INET, kind)
    made.settimeout(ANSWER)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    return made
