"""Mutants of a chain's rules: each deleted, misdirected, duplicated; neighbours in the wrong order; pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from netdyno.switch.chain.steering import CLIENT, SERVER, Rule


@dataclass(frozen=True)
class Mutant:
    """Rules with a fault in them."""

    name: str
    rules: list[Rule]
    changed: frozenset[int]
    """Numbers of the rules that are not as they should be."""


def mutants(rules: Sequence[Rule]) -> Iterator[Mutant]:
    """Every one. None sends a packet in a circle: what is misdirected goes to an end."""
    for place, rule in enumerate(rules):
        others = [one for one in rules if one is not rule]
        if not any(_covers(one, rule) for one in others):
            yield Mutant(f"delete {rule}", others, frozenset({rule.flow.cookie}))
        ends = (SERVER, CLIENT) if rule.direction == "forward" else (CLIENT, SERVER)
        wrong = ends[0] if rule.to.host != ends[0] else ends[1]
        if rule.source.host == wrong:
            # sent back by the port that it came in by, it is not sent at all
            continue
        for word, to in (("misdirect", [wrong, *rule.flow.to[1:]]), ("duplicate", [*rule.flow.to, wrong])):
            made = list(rules)
            made[place] = replace(rule, flow=replace(rule.flow, to=to))
            yield Mutant(f"{word} {rule} to {wrong}", made, frozenset({rule.flow.cookie}))
        if rule.mirrors:
            made = list(rules)
            made[place] = replace(rule, flow=replace(rule.flow, to=rule.flow.to[:1]))
            yield Mutant(f"no copy by {rule}", made, frozenset({rule.flow.cookie}))
    yield from _reordered(rules)


def _covers(other: Rule, rule: Rule) -> bool:
    """Whether another rule does the same for the packets of a rule that is gone, as the next that matches."""
    a, b = other.flow, rule.flow
    return (a.in_port, list(a.to)) == (b.in_port, list(b.to)) and not a.match and a.priority < b.priority


def _reordered(rules: Sequence[Rule]) -> Iterator[Mutant]:
    """Two neighbours of a path in the wrong order: to the second first, from it to the first, and on."""
    for place, (a, b, c) in enumerate(zip(rules, rules[1:], rules[2:], strict=False)):
        if not ((a.traffic, a.direction) == (b.traffic, b.direction) == (c.traffic, c.direction)):
            continue
        made = list(rules)
        made[place] = replace(a, flow=replace(a.flow, to=[b.to.name, *a.flow.to[1:]]))
        made[place + 1] = replace(b, flow=replace(b.flow, to=[c.to.name, *b.flow.to[1:]]))
        made[place + 2] = replace(c, flow=replace(c.flow, to=[a.to.name, *c.flow.to[1:]]))
        # the host after b sends to that after a: as `a → B, B → A, A → c`
        yield Mutant(f"reorder {a.to.host} and {b.to.host} ({a.traffic} {a.direction})", made,
                     frozenset({a.flow.cookie, b.flow.cookie, c.flow.cookie}))  # fmt: skip
