"""Pairs of trials on each host in turn: none loads the target beside another."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from netdyno.experiment.pairs import RepeatBudget, measure_pairs
from netdyno.experiment.record import Record
from netdyno.stats.discards import Discard
from netdyno.stats.observation import Observation, Setting
from netdyno.stats.paired import Order
from netdyno.stats.pairs import Pair
from netdyno.tuning.benches import RecordedBench
from netdyno.tuning.hosts.bench import HostBench

HOSTS_APART = 7919
"""Between the seeds of two hosts."""


@dataclass(frozen=True)
class HostSides:
    """A host, and the two settings as they are on it."""

    bench: HostBench
    a: Setting
    b: Setting

    @property
    def name(self) -> str:
        """Of the host."""
        return self.bench.host.name


def measure_in_turns(
    sides: Sequence[HostSides],
    pairs: int,
    spare: RepeatBudget,
    record: Record,
    seed: int,
    *,
    order: Order = "shuffled",
    phase: str = "",
    after: Callable[[Observation], None] = lambda seen: None,
) -> tuple[dict[str, list[Pair]], dict[str, list[Discard]]]:
    """A pair of each host in turn, in an order drawn for each turn; and what was measured again.

    Whether A or B comes first is drawn for each host by itself: an effect of the order would else be the same
    on all of them, and be taken for one of the setting.
    """
    found: dict[str, list[Pair]] = {one.name: [] for one in sides}
    discarded: dict[str, list[Discard]] = {one.name: [] for one in sides}
    benches = {one.name: RecordedBench(one.bench, record, f"{one.name}{phase}") for one in sides}
    draw = random.Random(f"hosts {seed}")
    coins = {one.name: seed + 2 + HOSTS_APART * place for place, one in enumerate(sides)}
    for turn in range(pairs):
        for one in draw.sample(sides, len(sides)):
            found[one.name] += measure_pairs(
                benches[one.name], one.a, one.b, turn + 1, seed + 2, order=order, spare=spare,
                progress=lambda _, __, seen: after(seen), first=turn, discarded=discarded[one.name],
                coins=coins[one.name],
            )  # fmt: skip
    return found, discarded
