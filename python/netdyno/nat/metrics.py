"""Prometheus metrics of a NAT that runs: what its daemon says when it is asked."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from netdyno.errors import Error
from netdyno.nat.counters import counters
from netdyno.nat.reasons import KINDS, PORTS
from netdyno.nat.running import Running
from netdyno.system.interrupt import interrupted

GAUGES = (
    ("sessions", "sessions", "Sessions there are"),
    ("most_sessions", "sessions_limit", "Sessions there may be"),
    ("subscribers", "subscribers", "Subscribers there are"),
    ("most_subscribers", "subscribers_limit", "Subscribers there may be"),
    ("addresses", "pool_addresses", "Addresses of the pool, of which workers may share some"),
    ("blocks", "port_blocks", "Port blocks of the pool"),
    ("blocks_free", "port_blocks_free", "Free port blocks"),
    ("memory_bytes", "table_memory_bytes", "Memory that the tables take when full"),
)
"""Keys of `nat.status`, and what they are called."""
COUNTERS = (
    ("slow", "slow_path_packets", "Packets that were not of a known session"),
    ("log_lost", "log_lost_records", "Records that did not reach a collector"),
    (
        "log_suppressed",
        "log_suppressed_refusals",
        "Refusals that were not logged, being too many in a second",
    ),
)
REASONS = PORTS | KINDS
WAYS = {"rx": "receive", "tx": "transmit"}


class NatCollector(Collector):
    """Asks a NAT each time that somebody wants its metrics."""

    def __init__(self, name: str, connected: Callable[[str], AbstractContextManager[Running]]) -> None:
        self._name = name
        self._connected = connected

    def describe(self) -> Iterable[Metric]:
        """Nothing is asked when it is registered."""
        return ()

    def collect(self) -> Iterator[Metric]:
        """All metrics now. Of a NAT that does not answer, only that."""
        up = GaugeMetricFamily("netdyno_nat_up", "Whether the NAT answers", labels=["nat"])
        try:
            with self._connected(self._name) as nat:
                shape, stats = nat.call("graph.describe"), nat.call("graph.stats")
                status = nat.call("nat.status")
        except Error as e:
            if e.code == interrupted().code:
                raise
            up.add_metric([self._name], 0)
            yield up
            return
        up.add_metric([self._name], 1)
        yield up
        yield from metrics(self._name, shape, stats, status["workers"])
        if status.get("pair"):
            yield from _pair(self._name, status["pair"])


def registry(name: str, connected: Callable[[str], AbstractContextManager[Running]]) -> CollectorRegistry:
    """What is scraped of a NAT."""
    made = CollectorRegistry()
    made.register(NatCollector(name, connected))
    return made


def text(made: CollectorRegistry) -> str:
    """All metrics in Prometheus' text format."""
    return generate_latest(made).decode()


def metrics(
    name: str, shape: Mapping[str, Any], stats: Mapping[str, Any], workers: Sequence[Mapping[str, Any]]
) -> Iterator[Metric]:
    """Those of a NAT that answered."""
    uptime = GaugeMetricFamily("netdyno_nat_uptime_seconds", "Time since the start", labels=["nat"])
    uptime.add_metric([name], float(stats["status"]["elapsed"]))
    yield uptime
    yield from _trackers(name, workers)
    now = counters(shape, stats, workers)
    drops = CounterMetricFamily(
        "netdyno_nat_dropped_packets", "Packets dropped, by element and reason",
        labels=["nat", "element", "reason"],
    )  # fmt: skip
    for stage in now.stages:
        # those that there may be are there from the beginning, so that a rate can be told of the first
        for reason, count in (dict.fromkeys(REASONS.get(stage.kind, ()), 0) | dict(stage.drops)).items():
            drops.add_metric([name, stage.element, reason], count)
    yield drops
    labels = ["nat", "port", "direction"]
    packets = CounterMetricFamily("netdyno_nat_port_packets", "Packets of a port", labels=labels)
    passed = CounterMetricFamily("netdyno_nat_port_bytes", "Bytes of a port, without FCS", labels=labels)
    for stage in now.stages:
        port, _, way = stage.element.rpartition(".")
        if stage.kind in WAYS and port:
            where = [name, port, WAYS[way]]
            packets.add_metric(where, stage.packets_out if way == "rx" else stage.packets_in)
            passed.add_metric(where, stage.bytes or 0)
    yield packets
    yield passed
    lost = GaugeMetricFamily("netdyno_nat_ports_lost", "Optional ports that are gone", labels=["nat"])
    lost.add_metric([name], len(now.lost))
    yield lost
    cycles = CounterMetricFamily(
        "netdyno_nat_worker_cycles", "Cycles of a worker while awake", labels=["nat", "worker", "state"]
    )
    for one in stats["workers"]:
        for state in ("busy", "idle"):
            cycles.add_metric([name, str(one["worker"]), state], one[f"{state}_cycles"])
    yield cycles
    yield from _pauses(name, stats["workers"])


def _pauses(name: str, workers: Sequence[Mapping[str, Any]]) -> Iterator[Metric]:
    """How often and how long workers had no CPU."""
    labels = ["nat", "worker"]
    pauses = CounterMetricFamily(
        "netdyno_nat_worker_pauses",
        "Times that a worker wanted a CPU and had none for 0.1 ms or longer",
        labels=labels,
    )
    paused = CounterMetricFamily(
        "netdyno_nat_worker_paused_seconds", "Seconds that a worker had no CPU in such pauses", labels=labels
    )
    for one in workers:
        where = [name, str(one["worker"])]
        pauses.add_metric(where, one["pauses"]["count"])
        paused.add_metric(where, one["pauses"]["ns"] / 1e9)
    yield pauses
    yield paused


def _pair(name: str, pair: Mapping[str, Any]) -> Iterator[Metric]:
    """What a NAT is in its pair."""
    last = pair["takeover"] or {}
    for called, about, value in (
        ("active", "Whether this NAT of a pair translates", pair["role"] == "active"),
        ("synced", "Whether the standby of the pair knows all sessions", pair["synced"]),
        ("lag_seconds", "Age of the last change when the standby took it in", pair["lag_ms"] / 1e3),
        ("takeover_seconds", "The last takeover, from when it was noticed until packets were translated",
         last.get("took_ms", 0.0) / 1e3),
    ):  # fmt: skip
        gauge = GaugeMetricFamily(f"netdyno_nat_pair_{called}", about, labels=["nat"])
        gauge.add_metric([name], float(value))
        yield gauge
    for called, about, value in (
        ("takeovers", "Times that this NAT took over", pair["takeovers"]),
        ("lost_updates", "Changes that found no room, and were told of by the next sweep", pair["lost"]),
    ):
        counter = CounterMetricFamily(f"netdyno_nat_pair_{called}", about, labels=["nat"])
        counter.add_metric([name], value)
        yield counter


def _trackers(name: str, workers: Sequence[Mapping[str, Any]]) -> Iterator[Metric]:
    """Gauges and counters of each NAT worker: by its name, as its drops, and which replica it is."""
    labels = ["nat", "element", "replica"]
    for key, called, about in GAUGES:
        gauge = GaugeMetricFamily(f"netdyno_nat_{called}", about, labels=labels)
        for one in workers:
            gauge.add_metric(_tracker_labels(name, one), one[key])
        yield gauge
    for key, called, about in COUNTERS:
        counter = CounterMetricFamily(f"netdyno_nat_{called}", about, labels=labels)
        for one in workers:
            counter.add_metric(_tracker_labels(name, one), one[key])
        yield counter
    pcp = CounterMetricFamily(
        "netdyno_nat_pcp_answers", "Requests of PCP answered, by result", labels=[*labels, "result"]
    )
    for one in workers:
        for result, count in one.get("pcp", {}).items():
            pcp.add_metric([*_tracker_labels(name, one), result], count)
    yield pcp
    forwarded = CounterMetricFamily(
        "netdyno_nat_forwarded_packets", "Packets forwarded; up is away from subscribers",
        labels=[*labels, "direction"],
    )  # fmt: skip
    for one in workers:
        for way in ("up", "down"):
            forwarded.add_metric([*_tracker_labels(name, one), way], one[f"forwarded_{way}"])
    yield forwarded


def _tracker_labels(nat: str, one: Mapping[str, Any]) -> list[str]:
    """Labels of a tracker: a lone one is the replica 0."""
    element, _, replica = str(one["element"]).partition("#")
    return [nat, element, replica or "0"]
