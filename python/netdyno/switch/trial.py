"""One trial: a workload through what is tested, counters meanwhile, and why the trial may not count."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import ExitStack
from typing import Any

from netdyno.errors import Error
from netdyno.lab.counters import Counters, CounterSource, Sampler
from netdyno.lab.network import Network
from netdyno.lab.workload import Site, Workload
from netdyno.stats.observation import Observation, Setting
from netdyno.switch import guests, shares
from netdyno.switch.guests import Machines

FEW_OVERFLOWS = 0.001
"""Share of datagrams that the receiver's socket may lose in a trial that counts."""


class Forwarder(ABC):
    """What packets of a trial pass: switches, or a chain."""

    machines: Machines = (None, None)
    """In place of client and server."""

    @abstractmethod
    def start(self) -> None:
        """Counters are counted from now on."""

    @abstractmethod
    def stop(self) -> Counters:
        """By how much each counter moved since `start`."""

    @abstractmethod
    def dead(self) -> str:
        """Which part ended, with its last words; empty: none did. Raises Error if no trial can follow."""

    def bypassed(self, counters: Mapping[str, float]) -> str:
        """That packets took another way; empty: they did not."""
        return ""

    def metrics(self, counters: Mapping[str, float]) -> Mapping[str, float]:
        """What it measures of itself, beside the workload's metrics."""
        return {}


def run(
    load: Workload,
    site: Site,
    network: Network,
    places: Mapping[str, str],
    through: Forwarder,
    setting: Setting,
    seed: int,
    path_seed: int,
    stack: ExitStack,
    started: float,
) -> Observation:
    """Serve, load once, and judge whether the trial counts. What it starts goes with `stack`.

    `places`: namespaces whose counters are told, the client's first; `path_seed`: impaired links draw by it.
    """
    load.serve(site)
    stack.callback(load.stop)
    sampler = stack.enter_context(Sampler({host: CounterSource(space) for host, space in places.items()}))
    through.start()
    drawn = network.draw_anew(path_seed)
    unasked, begin = network.unasked(), time.monotonic()
    metrics: dict[str, float] = {}
    counters: Counters = {}
    series: Mapping[str, Any] = {}
    try:
        seen = load.run(site, seed)
        if load.client_stays:
            # a generator that gets no answers counts losses: they are no machine's that is lost
            guests.must_answer(through.machines)
        metrics, why, series = shares.measured(seen), seen.wrong, seen.series
        counters |= seen.counters
    except Error as e:
        # a load that does not get through is a result of what is tested, not of the bench
        if e.code != "ND-91-25":
            raise
        why = str(e)
        guests.must_answer(through.machines)
    seconds = time.monotonic() - begin
    counters |= sampler.stop()
    # what was measured while a part was dead, or by another way, is of nothing that is tested
    if dead := through.dead():
        metrics, why = {}, dead
    else:
        counters |= through.stop()
        if metrics and (missed := through.bypassed(counters)):
            metrics, why = {}, missed
        elif metrics:
            metrics |= through.metrics(counters)
    reasons = why, receiver_lost(metrics, counters), no_room(network.unasked() - unasked)
    why = next(filter(None, reasons), "")
    return Observation(setting, metrics, counters, not why, why, started, seconds, series, path_seed=drawn)


def receiver_lost(metrics: Mapping[str, float], counters: Mapping[str, float]) -> str:
    """That a loss is of the server's socket and not of what is measured; empty: it is not."""
    overflows = counters.get("server/UdpRcvbufErrors", 0.0)
    if "loss" not in metrics or overflows <= FEW_OVERFLOWS * counters.get("server/UdpInDatagrams", 0.0):
        return ""
    return "the receiver's socket buffer overflowed: datagrams were lost that had arrived"


def no_room(packets: int) -> str:
    """That an impaired path dropped packets that it was not asked to; empty: it did not."""
    return f"the path had no room for {packets:,} packets" if packets else ""
