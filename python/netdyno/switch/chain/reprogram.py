"""A chain re-programmed while packets pass it, in two steps, and what was lost by that.

First the new rules are written, and old rules of functions that no new one replaces stay: packets on their
way find them. When those match nothing any more, they are removed. Each step is one bundle. Two switches are
programmed one after the other: before that, each gets the rules that packets of the other's new rules meet.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from netdyno.errors import Error
from netdyno.switch.chain import steering, transit
from netdyno.switch.chain import verify as verifying
from netdyno.switch.chain.bench import lengths, shortened
from netdyno.switch.chain.connections import DatagramReport, Datagrams
from netdyno.switch.chain.lab import ChainLab
from netdyno.switch.chain.proof import proven
from netdyno.switch.chain.steering import CLIENT, SERVER, Rule
from netdyno.switch.chain.talk import free_port
from netdyno.switch.chain.verify import Verification

OLD = 1 << 32
"""Added to the cookies of old rules that stay for a while, so that their packets are counted apart."""
QUIET = 0.1
"""Seconds in which old rules must match nothing before they are removed, beyond the time that a packet is
between two of them."""
PATIENCE = 10.0
"""Seconds after which they are removed in any case, beyond the time that packets take."""
UNDISTURBED = 0.2
"""Seconds between two changes."""


@dataclass(frozen=True)
class Change:
    """One change of a chain."""

    functions: int
    """Functions that traffic passes afterwards."""
    seconds: float
    """From the first rule written until the old ones are gone."""
    drained: bool
    """The old rules matched nothing any more when they were removed."""


@dataclass(frozen=True)
class ReprogramReport:
    """Changes of a chain, and the datagrams that passed it meanwhile."""

    changes: list[Change]
    datagrams: DatagramReport
    verification: Verification

    @property
    def lost(self) -> str:
        """What was lost; empty: nothing."""
        if self.datagrams.lost:
            return f"{self.datagrams.lost:,} of {self.datagrams.sent:,} datagrams were lost"
        return self.verification.first_fault

    def document(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "lost": self.lost, "changes": [asdict(one) for one in self.changes],
            "datagrams": asdict(self.datagrams),
            "proof": self.verification.document(),
        }  # fmt: skip


def between(old: Sequence[Rule], new: Sequence[Rule]) -> list[Rule]:
    """The rules of the first step: the new ones, and the old ones of functions that no new one replaces.

    Old rules of the ends are not among them: whatever comes in takes the new path at once.
    """
    keys = {_key(one) for one in new}
    stay = [one for one in old if one.source.host not in (CLIENT, SERVER) and _key(one) not in keys]
    return [*new, *(replace(one, flow=replace(one.flow, cookie=OLD + one.flow.cookie)) for one in stay)]


def before(old: Sequence[Rule], new: Sequence[Rule]) -> list[Rule]:
    """Rules by which a switch does as it did, and is ready for packets that another sends by new rules."""
    keys = {_key(one) for one in old}
    more = [one for one in new if one.source.host not in (CLIENT, SERVER) and _key(one) not in keys]
    return [*(replace(one, flow=replace(one.flow, cookie=OLD + one.flow.cookie)) for one in old), *more]


def change(lab: ChainLab, old: Sequence[Rule], new: Sequence[Rule]) -> tuple[float, bool]:
    """From one set of rules to another in two steps; how long it took, and whether old rules were drained."""
    began, quiet = time.monotonic(), QUIET + (lab.transit or 0.0)
    until = began + PATIENCE + transit.awaited(lab)
    if len(lab.switches) > 1:
        lab.program(before(old, new))
    lab.program(between(old, new))
    counts, since, drained = _old_packets(lab), time.monotonic(), False
    while not drained and time.monotonic() < until:
        time.sleep(QUIET / 4)
        if (now := _old_packets(lab)) != counts:
            counts, since = now, time.monotonic()
        drained = time.monotonic() - since >= quiet
    lab.program(new)
    return time.monotonic() - began, drained


def run(
    lab: ChainLab, name: str, times: int, told: Callable[[Change], None] = lambda _: None
) -> ReprogramReport:
    """Change the number of functions so many times, down and up through all lengths.

    Raises Error if routers or NATs part the network, so that there is one length only, or if the chain does
    not work before.
    """
    there = lengths(lab.chain)
    if len(there) < 2:
        what = "routers or NATs part the network of this chain: it has one length"
        raise Error("ND-104-82", what, at=name, fix="Use a chain of transparent functions")
    proven(lab, name)
    turns = [*there[-2::-1], *there[1:]]
    made, rules = [], list(lab.rules)
    talking = Datagrams(lab, free_port(lab.chain))
    try:
        for number in range(times):
            time.sleep(UNDISTURBED)
            functions = turns[number % len(turns)]
            new = steering.rules(shortened(lab.chain, lab.chain.chain[:functions]))
            seconds, drained = change(lab, rules, new)
            rules = new
            made.append(Change(functions, seconds, drained))
            told(made[-1])
        change(lab, rules, lab.rules)
        time.sleep(UNDISTURBED)
    finally:
        found = talking.finish()
    return ReprogramReport(made, found, verifying.verify(lab))


def _key(rule: Rule) -> tuple[Any, ...]:
    return rule.flow.priority, rule.flow.in_port, tuple(sorted(rule.flow.match.items()))


def _old_packets(lab: ChainLab) -> int:
    return sum(count for cookie, count in lab.flow_packets().items() if cookie >= OLD)
