"""A prediction of a chain's throughput from its parts, and how far off it was.

Functions share the processors, so the time that a bit takes adds up: 1/r(n) = 1/r(0) + the sum of what each
function adds, and a function alone adds 1/r(alone) − 1/r(0). A function that had a processor to itself would
cost less than that; then the prediction is too low, and that is said.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from netdyno.stats.estimate import estimate, mean
from netdyno.stats.observation import Observation
from netdyno.switch.chain.spec import Chain

METRIC = "throughput"


@dataclass(frozen=True)
class Prediction:
    """Of one length."""

    functions: int
    predicted: float
    measured: float
    off: float
    """By what share of the measured value the prediction is too high; below 0: too low."""
    interval: tuple[float, float] | None
    blocks: int

    def document(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "functions": self.functions, "predicted": self.predicted, "measured": self.measured,
            "off": self.off, "interval": list(self.interval) if self.interval else None,
            "blocks": self.blocks,
        }  # fmt: skip


def alike(chain: Chain, name: str) -> str:
    """The first function of the chain that is made as this one is."""

    def made(of: str) -> tuple[str, str, int]:
        one = chain.vnfs[of]
        return one.kind, json.dumps(one.options, sort_keys=True), one.replicas

    return next(one for one in chain.chain if made(one) == made(name))


def parts(chain: Chain) -> list[str]:
    """Functions that are to be measured alone, beside the first, whose length of 1 is measured anyway."""
    found = dict.fromkeys(alike(chain, name) for name in chain.chain)
    return [name for name in found if name != chain.chain[0]]


def predict(
    chain: Chain, none: Sequence[Observation], alone: Mapping[str, Sequence[Observation]],
    lengths: Mapping[int, Sequence[Observation]],
) -> list[Prediction]:  # fmt: skip
    """Of every length above 1, block by block, from its parts alone; of none with a part not measured."""
    found = []
    for count, seen in lengths.items():
        names = [alike(chain, name) for name in chain.chain[:count]]
        if count < 2 or any(name not in alone for name in names):
            continue
        predicted, measured = [], []
        for block, one in enumerate(seen):
            free = _rate(none, block)
            own = [_rate(alone[name], block) for name in names]
            actual = _rate([one], 0)
            if free and actual and all(own):
                # a function that is faster than none costs nothing, and less than nothing it cannot
                time = 1 / free + sum(max(0.0, 1 / rate - 1 / free) for rate in own if rate)
                predicted.append(1 / time)
                measured.append(actual)
        if predicted:
            off = estimate([p / m - 1 for p, m in zip(predicted, measured, strict=True)])
            found.append(
                Prediction(count, mean(predicted), mean(measured), off.mean, off.interval, len(predicted))
            )
    return found


def _rate(seen: Sequence[Observation], block: int) -> float | None:
    one = seen[block] if block < len(seen) else None
    return one.metrics.get(METRIC) if one and one.valid else None
