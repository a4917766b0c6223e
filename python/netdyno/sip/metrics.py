"""Counters of the SIP server for Prometheus."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

LABELS = {
    "requests": "method",
    "forwarded": "method",
    "responses": "status",
    "answers": "status",
    "connections": "transport",
    "connections_given_up": "cause",
    "tls_failures": "cause",
    "websocket_failures": "cause",
}
HELP = {
    "requests": "Requests received, by method",
    "responses": "Responses sent, by status",
    "forwarded": "Requests sent on, by method",
    "answers": "Responses received to requests sent on, by status",
    "connections": "Connections that clients opened, by transport",
    "connections_given_up": "Connections that the server refused or closed, by cause",
    "datagrams_dropped_here": "Datagrams that the server's own receive queue had no room for",
    "tls_failures": "Connections whose TLS failed, by cause",
    "websocket_failures": "Connections whose WebSocket handshake or frames failed, by cause",
    "bindings": "Bindings of users to contacts now",
}


class ServerMetrics(Collector):
    """The last counters, as `netdyno_sip_server_…`."""

    def __init__(self) -> None:
        self._counters: Mapping[str, Any] = {}

    def update(self, counters: Mapping[str, Any]) -> None:
        """Counters of the last second."""
        self._counters = counters

    def collect(self) -> Iterator[Metric]:
        """As Prometheus reads them."""
        for name, value in self._counters.items():
            full, about = f"netdyno_sip_server_{name}", HELP.get(name, name.replace("_", " ").capitalize())
            if name == "bindings":
                yield GaugeMetricFamily(full, about, value)
            elif name in LABELS:
                family = CounterMetricFamily(full, about, labels=[LABELS[name]])
                for label, count in value.items():
                    family.add_metric([label], count)
                yield family
            else:
                yield CounterMetricFamily(full, about, value)
