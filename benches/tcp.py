"""The cases of TCP over DPDK ports by their names."""

from __future__ import annotations

import cases_tcp
from case import Case, less, rate
from judge import Goal

CASES: dict[str, Case] = {
    "tcp-http": Case(cases_tcp.against_wrk, rate("requests/s", Goal(least=5, ratio=True))),
    "tcp-512": Case(
        cases_tcp.exchanges({"http": {"path": "/349"}}, cases_tcp.packets),
        rate("packets/s", Goal(least=8e6), Goal(least=10, ratio=True)),
    ),
    "tcp-8950": Case(
        cases_tcp.exchanges({"http": {"path": "/8787"}}, cases_tcp.bits),
        rate("bit/s", Goal(least=40e9)),
    ),
    "tcp-connect": Case(
        cases_tcp.exchanges({"http": {"keep_alive": False}}, cases_tcp.messages),
        rate("connections/s", Goal(least=1e6)),
    ),
    "tcp-mqtt": Case(
        cases_tcp.exchanges(
            {"mqtt": {"qos": 1, "count": 0, "interval": "0s", "size": "64B"}}, cases_tcp.messages
        ),
        rate("acked/s", Goal(least=1.5e6), Goal(least=10, ratio=True)),
    ),
    "tcp-delay": Case(
        cases_tcp.delay,
        {"p50": less("µs", Goal(most=5)), "p99": less("µs", Goal(most=50))} | rate("requests/s"),
    ),
}
