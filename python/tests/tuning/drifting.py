"""Benches of which the truth is known and the machine is not still, for simulations of how often the tuner errs."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping
from typing import Any

from netdyno.stats.observation import Metric, Observation, Setting
from netdyno.tuning.model import Access, Scale, Scope, Tunable

METRICS = {"throughput": Metric("throughput", "bit/s", "higher")}
COUNTER = "TcpExtTCPTimeouts"
"""Moves with every setting, whether or not that is of help: the harder case."""
INERT = tuple(
    Tunable(
        f"net.core.inert{n}", Scope.NAMESPACE, "", "", Access("sysctl", f"net.core.inert{n}"), 1, 1000,
        scale=Scale.LOG, default=10, counters=(COUNTER,),
    )
    for n in range(4)
)  # fmt: skip
"""Parameters that change nothing."""


class Drifting:
    """A machine that wanders from trial to trial, on which no setting changes anything."""

    metrics: Mapping[str, Metric] = METRICS

    def __init__(self, seed: int, drift: float = 0.03, noise: float = 0.03) -> None:
        self.draw = random.Random(f"drifting {seed}")
        self.drift, self.noise, self.at = drift, noise, 0.0
        self.trials = 0

    def measure(self, setting: Setting, seed: int) -> Observation:
        self.trials += 1
        self.at += self.draw.gauss(0, self.drift)
        value = 1e9 * math.exp(self.at + self.draw.gauss(0, self.noise))
        counters = {COUNTER: 100.0 * bool(setting) + self.draw.random()}
        return Observation(setting, {"throughput": value}, counters, started=self.trials, seconds=1.0)


class Disturbing(Drifting):
    """A setting that disturbs the machine in a share of its trials, which are slow then, and else is a little
    faster: on the whole it is 12 % worse. Both settings are disturbed by others now and then."""

    def __init__(
        self, seed: int, share: float, others: float = 0.0, noise: float = 0.02, better: float = 0.08,
        whole: float = -0.12,
    ) -> None:  # fmt: skip
        super().__init__(seed, 0.0, noise)
        self.share, self.others, self.better = share, others, better
        # (1 - share) (1 + better) + share · slow = 1 + whole
        self.slow = (1 + whole - (1 - share) * (1 + better)) / share if share else 1.0

    def measure(self, setting: Setting, seed: int) -> Observation:
        seen = super().measure(setting, seed)
        own = bool(setting) and self.draw.random() < self.share
        factor = (self.slow if own else 1 + self.better) if setting else 1.0
        stolen = own or self.draw.random() < self.others
        counters: dict[str, Any] = {**seen.counters, "cpu.all": 100.0, "cpu.steal": 40.0 if stolen else 0.0}
        if stolen and not own:
            factor *= 0.6
        metrics = {"throughput": seen.metrics["throughput"] * max(factor, 0.01)}
        return Observation(setting, metrics, counters, started=seen.started, seconds=1.0)
