"""How many agents a fleet can have: costs measured here with real messages, and a simulation with them.

fleet_scale.py measure OUT.json     what an agent's messages cost a controller and a relay, here
fleet_scale.py table COSTS.json     what fleets of up to 10,000 agents would take, simulated
"""

from __future__ import annotations

import json
import math
import random
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path

SEED = 49
INTERVALS = 20
"""Seconds that are simulated."""
JITTER, NETWORK = 0.002, 0.001
"""Mean seconds by which an agent's sample is late, and that it travels; both exponential."""
SPREAD = 0.3
"""Of the service times' logarithms."""
FLEETS = [
    (100, 250),
    (250, 250),
    (1000, 1000),
    (1000, 250),
    (2500, 250),
    (5000, 250),
    (10_000, 250),
    (10_000, 100),
]
"""Agents, and agents for each relay."""


CORES = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)


@dataclass(frozen=True)
class Costs:
    """What was measured: seconds of CPU and bytes, for each sample of one second."""

    machine: str
    agent_cpu: float
    """Of the process that speaks with an agent, for a sample and its heartbeat."""
    agent_bytes: int
    relay_cpu: float
    """Of a controller, for what a relay tells of a second, and its heartbeat."""
    relay_bytes: int
    result_cpu: float
    """Of merging, for the result of one agent."""
    result_bytes: int


@dataclass(frozen=True)
class Outcome:
    """What a fleet takes."""

    agents: int
    relays: int
    cores: int
    controller_cpu: float
    """Share of a core."""
    relay_cpu: float
    """Of the busiest relay."""
    controller_bytes: float
    """A second."""
    delay_p50: float
    delay_max: float
    """Seconds from the end of an interval until its sum is told."""
    result: float
    """Seconds of merging until the result is told."""
    keeps_up: bool


def cut(agents: int, most: int) -> list[int]:
    """Agents of each relay; none: the controller speaks with all."""
    if agents <= most:
        return []
    count = math.ceil(agents / most)
    return [high - low for low, high in pairwise(agents * i // count for i in range(count + 1))]


def simulate(agents: int, most: int, cores: int, costs: Costs, seed: int = SEED) -> Outcome:
    """A fleet event by event: each process does one thing at a time, relays share cores in turn.

    The first core is the controller's alone, where there are others. A sample waits until those before it are
    served, in the order of arrival, and those of an interval before wait too: what is too slow falls behind.
    """
    chance = random.Random(seed)
    parts = cut(agents, most)

    def service(mean: float) -> float:
        return mean * math.exp(chance.gauss(-SPREAD * SPREAD / 2, SPREAD))

    def arrivals(end: float, count: int) -> list[float]:
        return sorted(
            end + chance.expovariate(1 / JITTER) + chance.expovariate(1 / NETWORK) for _ in range(count)
        )

    free = [0.0] * cores
    busy = [0.0] * (len(parts) + 1)
    """Of the controller, and of each relay."""

    def serve(core: int, process: int, arrived: float, cost: float) -> float:
        began = max(free[core], arrived)
        free[core] = began + cost
        busy[process] += cost
        return free[core]

    places = [1 + number % (cores - 1) if cores > 1 else 0 for number in range(len(parts))]
    delays = []
    for interval in range(1, INTERVALS + 1):
        end = float(interval)
        if not parts:
            for at in arrivals(end, agents):
                told = serve(0, 0, at, service(costs.agent_cpu))
        else:
            samples = sorted((at, number) for number, size in enumerate(parts) for at in arrivals(end, size))
            done = [0.0] * len(parts)
            for at, number in samples:
                done[number] = serve(places[number], number + 1, at, service(costs.agent_cpu))
            for at in sorted(done):
                told = serve(0, 0, at, service(costs.relay_cpu))
        delays.append(told - end)
    half = delays[INTERVALS // 2 :]
    delays.sort()
    return Outcome(
        agents, len(parts), cores, busy[0] / INTERVALS, max(busy[1:], default=0.0) / INTERVALS,
        len(parts) * costs.relay_bytes if parts else agents * costs.agent_bytes,
        delays[len(delays) // 2], delays[-1],
        costs.result_cpu * (_fullest(parts, places) + len(parts) if parts else agents),
        # all of a second is told within the next, also at the end
        max(half) < 1.0,
    )  # fmt: skip


def _fullest(parts: Sequence[int], places: Sequence[int]) -> int:
    """Agents whose results are merged on one core, at most."""
    return max(sum(size for size, at in zip(parts, places, strict=True) if at == core) for core in places)


def least_cores(agents: int, most: int, costs: Costs) -> Outcome:
    """With as few cores of the controller's machine as keep up; one process has use for one only."""
    parts = cut(agents, most)
    for cores in CORES if parts else (1,):
        if parts and agents * costs.agent_cpu > cores:
            continue
        found = simulate(agents, most, cores, costs)
        if found.keeps_up:
            break
    return found


def table(costs: Costs, fleets: Sequence[tuple[int, int]] = FLEETS) -> str:
    """What fleets take, as Markdown."""
    rows = [
        "| agents | relays | cores that keep up | CPU of the controller | of a relay | to the controller "
        "| sum told after, median | at most | result after |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for agents, most in fleets:
        one = least_cores(agents, most, costs)
        cores = str(one.cores) if one.keeps_up else "none"
        median, most_late = one.delay_p50 * 1e3, one.delay_max * 1e3
        rows.append(
            f"| {agents:,} | {one.relays} | {cores} | {one.controller_cpu:.0%} | {one.relay_cpu:.0%} "
            f"| {one.controller_bytes / 1e6:.2f} MB/s | {median:,.0f} ms | {most_late:,.0f} ms "
            f"| {one.result:.0f} s |"
        )
    return "\n".join(rows)


def read(path: Path) -> Costs:
    """Costs that were kept."""
    plain: Mapping[str, float] = json.loads(path.read_text())
    return Costs(**plain)  # type: ignore[arg-type]


def main(what: str, path: str) -> None:
    """Measure, or simulate with what was measured."""
    if what == "measure":
        from fleet_costs import measure

        costs = Costs(**measure())
        Path(path).write_text(json.dumps(asdict(costs), indent=1) + "\n")
    print(table(read(Path(path))))


if __name__ == "__main__":
    main(*sys.argv[1:])
