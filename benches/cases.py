"""Every case by its name: those of the platform here, those of a system in a file of its own."""

from __future__ import annotations

import cases_chain
import cases_dpdk
import cases_impair
import cases_sockets
import cases_testpmd
import nat
import sip
import tcp
from case import AS_GOOD, EXACT, Case, cost, less, rate
from judge import Goal, Metric

CASES: dict[str, Case] = {
    "http": Case(cases_sockets.http, rate("requests/s", *AS_GOOD) | cost("µs/request", *AS_GOOD)),
    "mqtt": Case(cases_sockets.mqtt, rate("acked/s") | cost("µs/acked message", *AS_GOOD)),
    "mqtt-idle": Case(
        cases_sockets.mqtt_idle,
        {
            "memory": less("bytes/device"),
            "devices": Metric("devices", goals=(Goal(least=cases_sockets.IDLE),)),
        },
    ),
    "udp-64": Case(cases_sockets.udp(64), rate("packets/s", *AS_GOOD) | cost("µs/packet")),
    "udp-1400": Case(cases_sockets.udp(1400), rate("packets/s", *AS_GOOD) | cost("µs/packet")),
    "dpdk-send-null": Case(
        cases_testpmd.send_null(signed=False), rate("frames/s", Goal(least=1.5, ratio=True))
    ),
    "dpdk-send-null-signed": Case(cases_testpmd.send_null(signed=True), rate("frames/s")),
    "dpdk-send-memif": Case(cases_testpmd.send_across(cases_testpmd.send_memif), rate("frames/s", *AS_GOOD)),
    "dpdk-send-vhost": Case(cases_testpmd.send_across(cases_testpmd.send_vhost), rate("frames/s", *AS_GOOD)),
    "dpdk-io": Case(cases_testpmd.forward_null("io"), rate("frames/s", *AS_GOOD)),
    "dpdk-io-ring": Case(cases_testpmd.forward_ring("io"), rate("frames/s", *AS_GOOD)),
    "dpdk-io-memif": Case(cases_testpmd.forward_memif("io"), rate("frames/s", *AS_GOOD)),
    "chain-memif": Case(cases_chain.memif, rate("frames/s", *AS_GOOD) | cost("µs/frame")),
    "chain-vhost": Case(cases_chain.vhost, rate("frames/s", *AS_GOOD) | cost("µs/frame")),
    "dpdk-macswap": Case(cases_testpmd.forward_null("macswap"), rate("frames/s", *AS_GOOD)),
    "dpdk-macswap-ring": Case(cases_testpmd.forward_ring("macswap"), rate("frames/s", *AS_GOOD)),
    "dpdk-macswap-memif": Case(cases_testpmd.forward_memif("macswap"), rate("frames/s", *AS_GOOD)),
    "dpdk-measured-1": Case(cases_dpdk.measured(1), rate("frames/s", Goal(least=25e6))),
    "dpdk-measured-1000": Case(cases_dpdk.measured(1000), rate("frames/s", Goal(least=20e6))),
    "dpdk-measured-apart": Case(
        cases_dpdk.apart(1000),
        rate("frames/s") | {"send": less("cycles/frame"), "receive": less("cycles/frame")},
    ),
    "dpdk-loopback": Case(cases_dpdk.loopback, rate("packets/s")),
    "dpdk-delay": Case(
        cases_dpdk.delay, rate("frames/s") | {"delay": less("ns", Goal(most=1000)), "apart": less("ns")}
    ),
    "dpdk-split": Case(
        cases_dpdk.split, rate("frames/s") | {"one": Metric("frames/s"), "ring": less("ns/frame")}
    ),
    "dpdk-impair": Case(
        cases_dpdk.impaired, rate("frames/s", Goal(least=4e6)) | {"cycles": less("cycles/frame")}
    ),
    "impair-plain": Case(
        cases_impair.plain,
        rate("Gbit/s", Goal(least=0.6, ratio=True), Goal(least=25)) | {"shared": Metric("Gbit/s")},
    ),
    "impair-10ms": Case(
        cases_impair.late,
        rate("Gbit/s", Goal(least=15))
        | {
            "at": Metric("Gbit/s"),
            "p50": less("µs", Goal(most=50)),
            "p99": less("µs", Goal(most=300)),
            "shared50": less("µs"),
            "shared99": less("µs"),
        },
    ),
    "impair-loss": Case(
        cases_impair.lossy,
        rate("Gbit/s", Goal(least=0.75, most=1.25, ratio=True))
        | {
            "cubic": Metric("Gbit/s"),
            "lost": less("packets"),
            "resent": less("packets"),
            "missed": less("packets", EXACT),
        },
    ),
    **nat.CASES,
    **sip.CASES,
    **tcp.CASES,
}
