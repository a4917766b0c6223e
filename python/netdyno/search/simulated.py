"""DUTs whose capacity is known: for tests of searches, and of what misleads them.

A DUT forwards up to its capacity and loses the rest. In each trial the capacity differs a little (noise);
over the trials it may go up or down (drift); after an overload it may be lower for one trial (hysteresis).
And some trials lose frames because the machine was disturbed, which its counters tell, or because the DUT's
worker had no CPU for some milliseconds, which the worker tells.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping
from dataclasses import dataclass, field

from netdyno.search.trial import LoadTrial, TrialRequest
from netdyno.stats.pairs import DisturbanceLimits, disturbed
from netdyno.stats.pauses import WorkerPauses, excuse, lasted


@dataclass
class SimulatedDut:
    """A DUT with a known capacity, tried at a load."""

    capacity: float
    """Frames per second that it forwards, at the first trial."""
    noise: float = 0.0
    """Standard deviation of its capacity from trial to trial, as a share of it."""
    drift: float = 0.0
    """By how much its capacity grows from trial to trial, as a share of it."""
    hysteresis: float = 0.0
    """By how much it is lower in the trial after an overload, as a share of it."""
    steal: float = 0.0
    """Share of the trials in which the hypervisor takes the processors away."""
    pauses: float = 0.0
    """How often in a second its worker has no CPU, on average."""
    paused: tuple[float, float] = (0.5e-3, 10e-3)
    """How long then, seconds: from, to."""
    ring: int = 1024
    """Frames that its ring holds meanwhile."""
    faulty: tuple[float, int] = (float("inf"), 0)
    """A fault of its own: from this load on it loses so many frames in each trial."""
    offered: float = float("inf")
    """The highest load that our own generator can offer."""
    seed: int = 1
    trials: int = 0
    """How many there were."""
    _overloaded: bool = False
    _random: random.Random = field(init=False, repr=False)

    def __post_init__(self) -> None:
        """Everything drawn follows from the seed."""
        self._random = random.Random(self.seed)

    @property
    def truth(self) -> float:
        """The middle of its capacity in the next trial, without noise."""
        return self.capacity * (1 + self.drift * self.trials)

    def __call__(self, ask: TrialRequest) -> LoadTrial:
        """One trial."""
        capacity = self.truth * (1 + self._random.gauss(0, self.noise))
        if self._overloaded:
            capacity *= 1 - self.hysteresis
        self.trials += 1
        load = min(ask.load, self.offered)
        self._overloaded = load > capacity
        sent = max(1, round(load * ask.seconds))
        lost = max(0, sent - round(capacity * ask.seconds)) if load > capacity else 0
        if load >= self.faulty[0]:
            lost += self.faulty[1]
        told, more = self._pause(load, capacity, ask.seconds)
        lost = min(lost + more, sent)
        counters: Mapping[str, float] = {"cpu.all": 1000.0, "cpu.steal": 0.0}
        if self._random.random() < self.steal:
            # a burst that followed a pause is lost, whatever the load
            lost = max(lost, round(sent * self._random.uniform(0.001, 0.1)))
            counters = {"cpu.all": 1000.0, "cpu.steal": self._random.uniform(60.0, 300.0)}
        return LoadTrial(
            load=ask.load,
            seconds=ask.seconds,
            sent=sent,
            lost=min(lost, sent),
            broken=("simulated.loss",) if lost else (),
            short=load < ask.load * 0.99,
            disturbed=disturbed(counters, ask.seconds, DisturbanceLimits())
            or excuse(told, lost, sent / ask.seconds, self.ring),
            number=self.trials,
            shape=ask.shape,
        )

    def _pause(self, load: float, capacity: float, seconds: float) -> tuple[list[WorkerPauses], int]:
        """The pauses of a trial, and what they cost: the ring is empty before each, or always full."""
        each, lost, at = list[int](), 0, 0.0
        while self.pauses and (at := at + self._random.expovariate(self.pauses)) < seconds:
            length = self._random.uniform(*self.paused)
            each.append(round(length * 1e9))
            if load > capacity:
                lost += round(capacity * length)
            else:
                lost += max(0, math.floor(load * length) - self.ring)
        return [WorkerPauses("worker 0 of the DUT", None, lasted(each))], lost
