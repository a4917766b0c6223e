"""Every case by its name, with what is measured in it and what is aimed at."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import cases_dpdk
import cases_impair
import cases_nat
import cases_nat_kernel
import cases_nat_scale
import cases_nat_vpp
import cases_nat_workers
import cases_sip
import cases_sockets
import cases_testpmd
from judge import Goal, Metric
from rounds import Sides


@dataclass(frozen=True)
class Case:
    """One comparison: `setup` makes what all sides need and yields them."""

    setup: Callable[[], contextlib.AbstractContextManager[Sides]]
    metrics: Mapping[str, Metric]


AS_GOOD = (Goal(least=1.0, ratio=True),)


def rate(unit: str, *goals: Goal) -> dict[str, Metric]:
    """The figure that every case has."""
    return {"rate": Metric(unit, goals=goals)}


def cost(unit: str, *goals: Goal) -> dict[str, Metric]:
    """Generator CPU for each operation."""
    return {"cpu": Metric(unit, lower=True, goals=goals)}


def less(unit: str, *goals: Goal) -> Metric:
    """A figure of which less is better."""
    return Metric(unit, lower=True, goals=goals)


CYCLES = less("cycles/packet")
"""What the elements of a run spend on a packet; two builds are compared by it, too."""
BUILD = "other build"
"""The name of the peer that is a build of ours."""
EXACT = Goal(most=0, exact=True)

CASES: dict[str, Case] = {
    "sip-call": Case(
        cases_sip.shared,
        rate("calls/s", Goal(least=4.5, ratio=True))
        | cost("µs/call", Goal(least=4.5, ratio=True))
        | {"uas": less("µs/call", Goal(least=4.5, ratio=True))},
    ),
    "sip-call-own": Case(
        cases_sip.own, rate("calls/s", Goal(least=2, ratio=True)) | cost("µs/call", Goal(least=2, ratio=True))
    ),
    "sip-register": Case(
        cases_sip.registrations, rate("registrations/s") | cost("µs/registration", Goal(most=5))
    ),
    "sip-registered": Case(cases_sip.registered, {"memory": less("bytes/user", Goal(most=300))}),
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
    "nat-1k": Case(
        cases_nat.upstream(1_000), rate("frames/s", Goal(least=0.7, ratio=True)) | {"cycles": CYCLES}
    ),
    "nat-64k": Case(cases_nat.upstream(64_000), rate("frames/s") | {"cycles": CYCLES}),
    "nat-1m": Case(cases_nat.upstream(1_000_000), rate("frames/s") | {"cycles": CYCLES}),
    "nat-memif-1k": Case(cases_nat.over_memif(1_000), rate("frames/s", *AS_GOOD)),
    "nat-memif-64k": Case(cases_nat.over_memif(64_000), rate("frames/s", Goal(least=0.7, ratio=True))),
    "nat-memif-1m": Case(cases_nat.over_memif(1_000_000), rate("frames/s", Goal(least=0.5, ratio=True))),
    "nat-vpp-1k": Case(cases_nat_vpp.known(1_000), rate("frames/s", *AS_GOOD)),
    "nat-vpp-64k": Case(cases_nat_vpp.known(64_000), rate("frames/s", *AS_GOOD)),
    "nat-vpp-1m": Case(cases_nat_vpp.known(1_000_000), rate("frames/s", *AS_GOOD)),
    "nat-vpp-setup": Case(cases_nat_vpp.setup, rate("sessions/s", *AS_GOOD)),
    "nat-kernel": Case(
        cases_nat_kernel.against_kernel(1_000),
        rate("frames/s", Goal(least=25, ratio=True)) | {"cycles": CYCLES},
    ),
    "nat-kernel-1m": Case(
        cases_nat_kernel.against_kernel(1_000_000),
        rate("frames/s", Goal(least=12, ratio=True)) | {"cycles": CYCLES},
    ),
    "nat-setup": Case(
        cases_nat_scale.setup(syn=False),
        rate("sessions/s", Goal(least=4e6), Goal(least=8, ratio=True)) | {"cycles": CYCLES},
    ),
    "nat-setup-syn": Case(
        cases_nat_scale.setup(syn=True), rate("sessions/s", Goal(least=4e6)) | {"cycles": CYCLES}
    ),
    "nat-expiry": Case(
        cases_nat_scale.expiry,
        rate("frames/s")
        | {"kept": Metric("× before and after", goals=(Goal(least=0.95),)), "lasted": less("s")},
    ),
    "nat-10m": Case(
        cases_nat_scale.ten_million,
        rate("frames/s", Goal(least=0.45, ratio=True))
        | {"begun": Metric("sessions/s"), "lasted": less("s"), "grown": less("B", Goal(most=16 << 20))},
    ),
    "nat-workers": Case(
        cases_nat_workers.two_workers,
        rate("frames/s")
        | {name: Metric("frames/s") for name in ("mixed", "pipeline", "one", "apart")}
        | {"scale": Metric("× one worker", goals=(Goal(least=1.8),)), "handed": less("cycles/frame")},
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
}
