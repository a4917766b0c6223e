"""Counters of `netdyno serve` for Prometheus."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

GAUGES = frozenset(
    {
        "open_connections",
        "retained_messages",
        "open_observations",
        "datagrams_lost",
        "delay_variation_p50_ns",
        "delay_variation_p99_ns",
        "delay_variation_max_ns",
    }
)
"""Counters that also go down."""


class ServerMetrics(Collector):
    """The last counters, as `netdyno_PROTOCOL_server_…`."""

    def __init__(self, protocol: str) -> None:
        self._protocol = protocol
        self._counters: Mapping[str, int] = {}

    def update(self, counters: Mapping[str, int]) -> None:
        """Counters of the last second."""
        self._counters = counters

    def collect(self) -> Iterator[Metric]:
        """As Prometheus reads them."""
        for name, value in self._counters.items():
            family = GaugeMetricFamily if name in GAUGES else CounterMetricFamily
            about = name.replace("_", " ").capitalize()
            yield family(f"netdyno_{self._protocol}_server_{name}", about, value)
