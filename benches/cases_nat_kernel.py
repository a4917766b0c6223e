"""The NAT against the Linux kernel's, each with the ports that are best for it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

from bed import CORES, Core, Skipped, folder, namespace
from cases_nat import passed, translating
from kernel_nat import APART, HERE, kernel_nat
from rounds import Peer, Sides

Setup = Callable[[], contextlib.AbstractContextManager[Sides]]


def against_kernel(flows: int) -> Setup:
    """64-byte UDP of so many flows in random order: ours over cables, the kernel's made by XDP."""

    @contextlib.contextmanager
    def play() -> Iterator[Sides]:
        if len(CORES) < 2:
            raise Skipped("two cores are needed, one for the NAT and one for its ends; there is one")
        with kernel_nat() as kernel, namespace() as name, folder() as where:
            core = Core(name, where)

            def ours(seconds: float) -> dict[str, float]:
                return passed(core, seconds, flows, translating(flows))

            def on(place: str) -> Callable[[float], dict[str, float]]:
                return lambda seconds: {"rate": kernel.rate(seconds, place, flows)}

            yield Sides(ours, (Peer("kernel", {place: on(place) for place in (APART, HERE)}),))
            core.close()

    return play
