"""Mutants of a chain's rules: each deleted, misdirected, duplicated; copies left out, encapsulations wrong or
left on, a TTL left as it was, groups that send flows elsewhere; neighbours in the wrong order; pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import get_args

from netdyno.switch.chain.spec import Version
from netdyno.switch.chain.steering import CLIENT, SERVER, Port, Rule
from netdyno.switch.chain.vnf.base import IN, OUT
from netdyno.switch.openflow.action import (
    Action,
    DecapNsh,
    DecNshTtl,
    EncapNsh,
    PopVlan,
    PushVlan,
    Select,
    SetNsh,
)
from netdyno.switch.tunnel import SIDES, SWITCH, Line

OTHER = 4000
"""An identifier of no path."""


@dataclass(frozen=True)
class Mutant:
    """Rules with a fault in them."""

    name: str
    rules: list[Rule]
    changed: frozenset[int]
    """Numbers of the rules that can be told as not right. Where the fault is that both directions of a flow
    take different replicas, those of the other direction are among them."""


def mutants(rules: Sequence[Rule], lines: Sequence[Line] = ()) -> Iterator[Mutant]:
    """Every one of rules that packets meet. None sends a packet in a circle: what is misdirected goes to
    an end.

    `lines` are all between the switches."""
    for place, rule in enumerate(rules):
        if rule.standby:
            continue
        others = [one for one in rules if one is not rule]
        if not any(_covers(one, rule) for one in others):
            yield Mutant(f"delete {rule}", others, frozenset({rule.flow.cookie}))
        actions = list(rule.flow.actions)
        for at, one in enumerate(actions):
            if other := _misdirected(one):
                yield _with(rules, place, [*actions[:at], other, *actions[at + 1 :]], f"wrong tag by {rule}")
            elif isinstance(one, DecNshTtl):
                yield _with(rules, place, [*actions[:at], *actions[at + 1 :]], f"TTL as it was by {rule}")
            elif isinstance(one, PopVlan | DecapNsh):
                yield _with(rules, place, [*actions[:at], *actions[at + 1 :]], f"tag left on by {rule}")
            elif isinstance(one, Select) and len(set(one.ports)) > 1:
                turned = Select((*one.ports[1:], one.ports[0]))
                # where nothing comes back, any replica is right
                if pair := _pair(rules, rule):
                    yield _with(rules, place, [*actions[:at], turned], f"turn group of {rule}", pair)
        for line in lines:
            if rule.line and line.name != rule.line.name:
                other = Port(rule.switch, line.port).name
                yield _with(rules, place, [*actions[:-1], other], f"by the path {line.name} {rule}")
                yield _with(rules, place, [*actions, other], f"by the path {line.name}, too, {rule}")
        wrong = _elsewhere(rules, rule)
        if wrong is None:
            continue
        for word, to in (("misdirect", [*actions[:-1], wrong]), ("duplicate", [*actions, wrong])):
            if word == "duplicate" and not actions:
                # of a rule that drops, both are the same
                continue
            yield _with(rules, place, to, f"{word} {rule} to {wrong}")
        if rule.mirrors:
            copies = {one.name for one in rule.mirrors}
            kept = [one for one in actions if not (isinstance(one, str) and one in copies)]
            yield _with(rules, place, kept, f"no copy by {rule}")
    yield from _reordered(rules)


def _elsewhere(rules: Sequence[Rule], rule: Rule) -> str | None:
    """A port of the same switch that a rule does not lead to: an end's, a function's or the tunnel's.

    None: a packet that is sent back by the port that it came in by is not sent at all.
    """
    ends = (SERVER, CLIENT) if rule.direction == "forward" else (CLIENT, SERVER)
    here = {one for each in rules if each.switch == rule.switch for one in (each.source, *each.targets)}
    there = [Port(one, "eth0") for one in ends if Port(one, "eth0") in here]
    if len(there) < len(ends):
        way = IN if rule.switch == SWITCH else OUT
        there += sorted((one for one in here if one.interface == way), key=str)
        there += sorted((one for one in here if one.host in SIDES), key=str)
    for one in there:
        if one.host not in (rule.targets[0].host if rule.targets else "", rule.source.host):
            return one.name
    return None


def _with(
    rules: Sequence[Rule],
    place: int,
    actions: Sequence[Action],
    name: str,
    also: frozenset[int] = frozenset(),
) -> Mutant:
    made, rule = list(rules), rules[place]
    made[place] = replace(rule, flow=replace(rule.flow, actions=list(actions)))
    return Mutant(name, made, also | {rule.flow.cookie})


def _misdirected(one: Action) -> Action | None:
    """The same with an encapsulation that tells of no path."""
    if isinstance(one, PushVlan):
        return PushVlan(OTHER)
    if isinstance(one, EncapNsh):
        return replace(one, path=OTHER)
    if isinstance(one, SetNsh):
        return replace(one, index=one.index - 100)
    return None


def _pair(rules: Sequence[Rule], rule: Rule) -> frozenset[int]:
    """Rules of the other direction of a class that lead to the same replicas."""
    hosts = {one.host for one in rule.targets}
    return frozenset(
        one.flow.cookie
        for one in rules
        if one.traffic == rule.traffic
        and one.direction != rule.direction
        and (one.version in (None, rule.version) or rule.version is None)
        and hosts & {to.host for to in one.targets}
    )


def _covers(other: Rule, rule: Rule) -> bool:
    """Whether another rule does the same for the packets of a rule that is gone, as the next that matches."""
    a, b = other.flow, rule.flow
    same = (a.in_port, list(a.actions)) == (b.in_port, list(b.actions))
    return same and not a.match and a.priority < b.priority


def _reordered(rules: Sequence[Rule]) -> Iterator[Mutant]:
    """Two neighbours of a path in the wrong order: to the second first, from it to the first, and on."""
    triples: dict[tuple[int, ...], tuple[Rule, Rule, Rule]] = {}
    for version in get_args(Version):
        same = [(at, one) for at, one in enumerate(rules)
                if one.version in (None, version) and not one.standby]  # fmt: skip
        for three in zip(same, same[1:], same[2:], strict=False):
            triples[tuple(at for at, _ in three)] = (three[0][1], three[1][1], three[2][1])
    for places, (a, b, c) in triples.items():
        if not ((a.traffic, a.direction) == (b.traffic, b.direction) == (c.traffic, c.direction)):
            continue
        if [one.host for one in a.targets + b.targets] != [b.source.host, c.source.host]:
            continue
        made = list(rules)
        for at, (rule, to) in zip(places, ((a, b), (b, c), (c, a)), strict=True):
            actions = [*rule.flow.actions[:-1], to.targets[0].name]
            made[at] = replace(rule, flow=replace(rule.flow, actions=actions))
        # the host after b sends to that after a: as `a → B, B → A, A → c`
        which = f"{a.traffic} {a.direction}{', IPv6' if a.version == 6 else ''}"
        yield Mutant(f"reorder {a.targets[0].host} and {b.targets[0].host} ({which})", made,
                     frozenset({a.flow.cookie, b.flow.cookie, c.flow.cookie}))  # fmt: skip
