"""The cases of the NAT by their names."""

from __future__ import annotations

import cases_nat
import cases_nat_kernel
import cases_nat_scale
import cases_nat_vpp
import cases_nat_workers
from case import AS_GOOD, CYCLES, Case, less, rate
from judge import Goal, Metric

CASES: dict[str, Case] = {
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
}
