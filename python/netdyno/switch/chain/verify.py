"""Proof that a chain steers: packets of each class at each hop, both directions, in order, exactly once."""

from __future__ import annotations

import socket
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from netdyno.errors import Error
from netdyno.switch.chain import fragments, largest, layout, refusals, reordering, transit, underlay, xdp
from netdyno.switch.chain.capture import Captures
from netdyno.switch.chain.changes import changed
from netdyno.switch.chain.lab import ChainLab
from netdyno.switch.chain.replicas import Choices, disagreement
from netdyno.switch.chain.sight import Fault, Key, Sighting, judge, marked
from netdyno.switch.chain.spec import REST
from netdyno.switch.chain.steering import (
    DIRECTIONS,
    SERVER,
    Direction,
    Port,
    Rule,
    Step,
    expected,
    of_version,
    port_names,
    sections,
    tunnelled,
    underlay_ports,
)
from netdyno.switch.chain.strays import Course, late, made, repeatable
from netdyno.switch.chain.talk import ANSWER, PROTOCOLS, Talk, conversations, free_port
from netdyno.switch.chain.underlay import TunnelReport
from netdyno.switch.controller.foreign import Listed
from netdyno.switch.wireguard import WanCapture
from netdyno.system import namespace

ROUNDS = 3
"""A loss counts if each of so many rounds shows it: a packet that a busy machine lost is no fault. One packet
too many counts at once."""
LATE = 1.0
"""Seconds within which packets of the last conversation may come once more."""
AGAIN = 0.05
"""Seconds between two looks whether a packet that is missed has come."""


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
    refused: bool = False
    """Whether the switch is to drop all of it where it comes in."""

    @property
    def cut(self) -> bool:
        """Whether the path ends before a function that failed and is to let nothing pass."""
        return not self.refused and [one for one in self.steps if not one.copy][-1].sends

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
            "good": self.good, "cut": self.cut, "refused": self.refused,
            "fault": str(self.fault) if self.fault else "", "untested": self.untested,
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
    foreign: Sequence[Listed] = ()
    """Flows of others in the switches, which packets of the chain meet before its rules."""

    @property
    def good(self) -> bool:
        """Whether everything followed its path."""
        return not self.first_fault

    @property
    def first_fault(self) -> str:
        """The first departure in words; empty: everything is as it is to be."""
        for one in self.directions:
            if not one.good:
                return f"{one.traffic} {one.direction} ({one.protocol}): {one.fault or one.untested}"
        for flow in self.foreign:
            return (
                "a flow that is not the chain's takes packets before its rules do "
                f"({flow.packets} until now): {flow}"
            )
        return str(self.tunnel.fault or "") if self.tunnel else ""

    def document(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "good": self.good, "fault": self.first_fault, "seconds": self.seconds,
            "directions": [one.document() for one in self.directions],
            "flows": {str(cookie): packets for cookie, packets in self.flows.items()},
            "foreign_flows": [str(one) for one in self.foreign],
            "tunnel": self.tunnel.document() if self.tunnel else None,
        }  # fmt: skip

    @property
    def faults(self) -> list[Fault]:
        """The first departure of each class and direction, and what is wrong with the tunnel."""
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
    ports = [*port_names(lab.chain), *underlay_ports(lab.chain)]
    with lab.watched():
        return _verify(lab, rounds, told, ports, began)


def _verify(
    lab: ChainLab, rounds: int, told: Callable[[DirectionResult], None], ports: Sequence[Port], began: float
) -> Verification:
    shared = layout.shared_ports(lab.chain)
    copied = {"": shared, layout.sent(""): shared} if shared else None
    captures = Captures(ports, lab.network.namespace, tunnelled(lab.chain), copied, xdp.far_ends(lab))
    captures.exact = not repeatable(lab)
    found: list[DirectionResult] = []
    courses: dict[Key, Course] = {}
    before = lab.flow_packets()
    # the tunnel of the default class is measured
    line = next((one for one in lab.chain.lines() if one.name == lab.by[REST] and one.tunnel), None)
    encrypted = line is not None and line.name in lab.gateways
    through = True
    wire = WanCapture(lab.network.namespace(line.gateways[0])) if line and encrypted else None
    try:
        # what others sent before is on its way
        captures.quiet(transit.quiet(lab), ANSWER)
        for traffic in lab.chain.paths():
            for talk in conversations(lab, traffic):
                # a rule makes every packet too many that meets it
                extra = (one.fault.rule for one in reversed(found) if one.fault and one.fault.excess)
                results = _rounds(lab, captures, courses, traffic, talk, rounds, next(extra, None))
                if traffic == REST and talk.protocol == "udp":
                    through = through and all(one.good for one in results)
                if len(results) == 2 and all(one.good for one in results):
                    results = _further(lab, captures, courses, traffic, talk, rounds, results)
                if results[0].good and (fault := fragments.passed(lab, captures, traffic, talk)):
                    results[0] = replace(results[0], fault=fault)
                for one in results:
                    told(one)
                found += results
        for refusal in refusals.proofs(lab, captures):
            result = DirectionResult(
                refusal.traffic, refusal.direction, refusal.protocol, [Step(refusal.source, sends=True)],
                refusal.packets, refusal.fault, refusal.untested, refusal.counts, refused=True,
            )  # fmt: skip
            told(result)
            found.append(result)
        if all(one.good for one in found) and captures.exact:
            time.sleep(LATE + (lab.transit or 0.0))
            again = late(captures, courses)
            found = [
                replace(one, fault=again.get((one.traffic, one.direction, one.protocol))) for one in found
            ]
    finally:
        captures.close()
    if all(one.good for one in found):
        lab.transit = transit.longest(captures, courses)
    if dead := lab.dead():
        raise Error(
            "ND-91-41",
            f"a part of the chain ended: {dead}",
            at="chain",
            fix="Its last words are above; `netdyno chain up` holds the chain, to look",
        )
    after = lab.flow_packets()
    moved = {cookie: count - before.get(cookie, 0) for cookie, count in after.items()}
    tunnel = None
    if line:
        on_wire = wire.read() if wire else (None, None)
        tunnel = underlay.report(lab, line, free_port(lab.chain), through, on_wire)
    return Verification(found, time.monotonic() - began, moved, tunnel, lab.foreign_flows())


def _rounds(
    lab: ChainLab,
    captures: Captures,
    courses: dict[Key, Course],
    traffic: str,
    talk: Talk,
    rounds: int,
    suspect: Rule | None,
) -> list[DirectionResult]:
    """Again while a round shows a fault; a loss that one round does not show is none."""
    kept: list[DirectionResult] = []
    rules = of_version(lab.rules, talk.version)
    ways = directions(rules, traffic)
    # where the chain is cut, each flow sends, and none is answered
    talk.answered = talk.answered and (len(ways) == 2 or bool(talk.relays))
    for number in range(max(1, rounds)):
        captures.clear()
        talk.patience = ANSWER * (number + 1) + transit.described(lab) + 2 * (lab.transit or 0.0)
        talk.run(lab)
        captures.quiet(transit.quiet(lab), 3 * ANSWER + transit.quiet(lab))
        until = time.monotonic() + transit.awaited(lab)
        while True:
            # a search for a rule sends packets again
            others = made(lab, captures, talk)
            seen = [
                _followed(lab, captures, courses, traffic, rules, direction, talk, suspect)
                for direction in ways
            ]
            # the search for a rule that makes too many has sent its own packets: what was found holds
            searched = any(one.fault and one.fault.excess for one in seen)
            if others or searched or not any(_missed(one) for one in seen) or time.monotonic() > until:
                break
            time.sleep(AGAIN)
        if len(seen) == 2 and talk.protocol in PROTOCOLS and all(one.good for one in seen):
            fault = disagreement(rules, traffic, *(one.choices for one in seen))
            seen[1] = replace(seen[1], fault=fault or talk.unbalanced(lab))
        # a conversation that is cut on the way there says nothing of the way back
        if len(seen) == 2 and all(one.good for one in seen) and talk.failed:
            seen[1] = replace(seen[1], fault=talk.failed)
        for direction, stray in others.items():
            at = min(DIRECTIONS.index(direction), len(seen) - 1)
            known = seen[at].fault
            if known is None or not known.certain:
                # the rule behind which the packet is missed has most likely made it what it is
                by = known or stray
                seen[at] = replace(seen[at], fault=replace(stray, rule=by.rule, also=by.also))
        kept = [_of_both(*both, captures.exact) for both in zip(kept, seen, strict=True)] if kept else seen
        if all(one.good for one in kept) or number + 1 == rounds:
            break
    return kept


def _further(
    lab: ChainLab,
    captures: Captures,
    courses: dict[Key, Course],
    traffic: str,
    talk: Talk,
    rounds: int,
    results: list[DirectionResult],
) -> list[DirectionResult]:
    """Of results that are good, also whether several datagrams at once stay in order, and whether the largest
    packets take their path."""
    if burst := reordering.burst(lab, talk):
        found = _rounds(lab, captures, courses, traffic, burst, rounds, None)
        results = [replace(old, fault=new.fault) for old, new in zip(results, found, strict=True)]
    if all(one.good for one in results) and (large := largest.largest(lab, talk)):
        found = _rounds(lab, captures, courses, traffic, large, rounds, None)
        results = [
            replace(old, fault=largest.explained(lab, large, old.direction, new.fault)) if new.fault else old
            for old, new in zip(results, found, strict=True)
        ]
    return results


def _missed(one: DirectionResult) -> bool:
    """Whether a packet is missed that may be in transit."""
    return bool(one.untested) or (one.fault is not None and not one.fault.certain)


def _of_both(old: DirectionResult, new: DirectionResult, exact: bool) -> DirectionResult:
    """What stands after another round: a packet too many, unless the chain is to make such; else what was
    good once; else the fault as it was told last."""
    if exact and (surplus := [one for one in (new, old) if one.fault and one.fault.certain]):
        return surplus[0]
    return old if old.good or (new.untested and old.fault) else new


def directions(rules: Sequence[Rule], traffic: str) -> tuple[Direction, ...]:
    """Directions in which there is something to follow: where nothing gets through, nothing comes back."""
    end = expected(rules, traffic, "forward")[-1]
    return DIRECTIONS if end.port.host == SERVER else DIRECTIONS[:1]


def _followed(
    lab: ChainLab,
    captures: Captures,
    courses: dict[Key, Course],
    traffic: str,
    rules: Sequence[Rule],
    direction: Direction,
    talk: Talk,
    suspect: Rule | None,
) -> DirectionResult:
    whole = talk.path(lab, expected(rules, traffic, direction), direction)
    if talk.relays:
        return _relayed(lab, captures, courses, traffic, whole, direction, talk, suspect)
    sender = whole[0].port.host
    packets = {
        one: about for one, about in captures.sent_by(sender).items() if talk.is_mine(one, about, direction)
    }
    if not packets:
        why = f"{sender} sent nothing"
        if direction == "reverse":
            why += ": nothing of the other direction reached it"
        return DirectionResult(traffic, direction, talk.name, whole, 0, untested=why)
    seen = {one: captures.of(one) for one in packets}
    chosen = Choices(lab.chain, rules, traffic, direction)
    counts: Counter[str] = Counter()
    fault: Fault | None = None
    shown = whole
    for one in sorted(packets, key=lambda k: min(s.at for s in seen[k])):
        taken = chosen.add(talk.flow(packets[one], direction), seen[one])
        steps = talk.path(lab, expected(rules, traffic, direction, taken), direction)
        at = Counter((s.port, s.sends) for s in seen[one])
        for step in steps:
            counts[str(step)] += at[step.port, step.sends]
        courses[one] = Course((traffic, direction, talk.name), steps)
        if fault is None:
            fault = _fault(lab, captures, one, traffic, steps, seen[one], suspect)
            # later captures would count a packet that is sent again
            shown = steps
    if talk.may_lose and fault and not fault.certain:
        fault = None
    fault, untested = fault or chosen.fault or talk.disordered(shown, seen), ""
    if fault is None and talk.count > 1:
        if len(chosen.taken) >= talk.count:
            fault = chosen.unused(lab.chain, talk.protocol)
        elif talk.failed is None or not talk.answered:
            untested = f"{sender} sent packets of {len(chosen.taken)} of {talk.count} flows"
    return DirectionResult(
        traffic, direction, talk.name, shown, len(packets), fault, untested, counts=counts,
        replicas=chosen.flows(), choices=chosen.taken,
    )  # fmt: skip


def _relayed(
    lab: ChainLab,
    captures: Captures,
    courses: dict[Key, Course],
    traffic: str,
    whole: list[Step],
    direction: Direction,
    talk: Talk,
    suspect: Rule | None,
) -> DirectionResult:
    """Where functions end connections and begin others: each part of the path has packets of its own, and
    what carries a mark must be on all of them."""
    name = f"{talk.name}/{talk.port}"
    parts = sections(whole, talk.relays)
    seen = [_part(captures, part, whole, talk, direction) for part in parts]
    if not seen[0]:
        why = f"{whole[0].port.host} sent nothing"
        return DirectionResult(traffic, direction, name, whole, 0, untested=why)
    counts: Counter[str] = Counter()
    fault: Fault | None = None
    for part, before, here in zip(parts[1:], seen[:-1], seen[1:], strict=True):
        if fault is None and not all(map(marked, before.keys() & here.keys())):
            fault = Fault("it hands connections on that it is to end", host=part[0].port.host)
    due = None
    for part, here in zip(parts, seen, strict=True):
        for one in sorted(here, key=lambda k: min(s.at for s in here[k])):
            at = Counter((s.port, s.sends) for s in here[one])
            for step in part:
                counts[str(step)] += at[step.port, step.sends]
            elsewhere = _elsewhere(part, whole) if marked(one) else frozenset()
            courses[one] = Course((traffic, direction, name), part, elsewhere)
            # later captures would count a packet that is sent again
            fault = fault or _fault(lab, captures, one, traffic, part, here[one], suspect)
        sent = sum(map(marked, here))
        if fault is None and due is not None and sent != due:
            what = f"{part[0]} {sent} of {due} messages that it received"
            fault = Fault(what, host=part[0].port.host)
        due = sent
    return DirectionResult(traffic, direction, name, whole, sum(map(len, seen)), fault, counts=counts)


def _part(
    captures: Captures, part: list[Step], whole: list[Step], talk: Talk, direction: Direction
) -> dict[Key, list[Sighting]]:
    """Packets that the first host of a part sent, and where they were seen. Only what carries a mark is to be
    on other parts, too."""
    others = _elsewhere(part, whole)
    return {
        one: [s for s in captures.of(one) if not marked(one) or (s.port, s.sends) not in others]
        for one, about in captures.sent_at(part[0].port).items()
        if talk.is_mine(one, about, direction)
    }


def _elsewhere(part: list[Step], whole: list[Step]) -> frozenset[tuple[Port, bool]]:
    return frozenset((one.port, one.sends) for one in whole) - {(one.port, one.sends) for one in part}


def _fault(
    lab: ChainLab,
    captures: Captures,
    one: Key,
    traffic: str,
    steps: list[Step],
    seen: list[Sighting],
    suspect: Rule | None,
) -> Fault | None:
    """Where a packet leaves its path, or passes the function that is to block it."""
    blocked = lab.chain.classes[traffic].blocked_by if traffic in lab.chain.classes else None
    if blocked and any(s.sends and lab.chain.hosts().get(s.port.host) == blocked for s in seen):
        return Fault("it lets packets pass that it is to block", host=blocked, leak=True)
    sent = sum((s.port, s.sends) == (steps[0].port, True) for s in seen)
    found = judge(steps, seen, sent, layout.shared_ports(lab.chain))
    if found and found.excess:
        return _located(lab, captures, one, steps, found, suspect)
    if found and blocked and any(s.port.host == SERVER and not s.sends for s in seen):
        found = replace(found, leak=True)
    if found is None and captures.exact:
        return changed(lab.chain, steps, seen)
    return underlay.explained(lab, found) if found and lab.chain.lines() else found


def _located(
    lab: ChainLab, captures: Captures, one: Key, steps: list[Step], fault: Fault, suspect: Rule | None
) -> Fault:
    """The rule that makes one too many: sent again from its source, and not from the next, it does so.

    Those of `suspect` are tried first, and then the middle of what is left.
    """
    with captures.lock:
        frames = {port: frame for (known, port), frame in captures.frames.items() if known == one}
    starts = [at for at, step in enumerate(steps) if step.sends and step.port in frames]
    low, high, found = 0, len(starts) - 1, fault
    first = next((n for n, at in enumerate(starts) if suspect and _next(steps[at:]) == suspect), high + 1)
    likely = [first, first + 1]
    while low <= high:
        middle = next((n for n in likely if low <= n <= high), (low + high) // 2)
        rest = steps[starts[middle] :]
        captures.clear()
        _send(lab, rest[0].port, frames[rest[0].port])
        captures.quiet(transit.quiet(lab), ANSWER + transit.quiet(lab))
        seen = captures.of(one)
        # an end may send it once more by itself
        sent = sum((s.port, s.sends) == (rest[0].port, True) for s in seen)
        if odd := judge(rest, seen, sent, layout.shared_ports(lab.chain)):
            rule = _next(rest)
            found, low = Fault(odd.what, rule, excess=True), middle + 1
        else:
            high = middle - 1
    return found


def _next(steps: list[Step]) -> Rule | None:
    """The rule that a packet meets first from there."""
    return next((step.rule for step in steps[1:] if step.rule and not step.copy), None)


def _send(lab: ChainLab, port: Port, frame: bytes) -> None:
    def out() -> None:
        with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as made:
            made.bind((port.interface, 0))
            made.send(frame)

    namespace.inside(lab.network.namespace(port.host), out)
