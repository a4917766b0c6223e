"""The carrier-grade NAT against VPP's, over memif with the same ends, flows and cores."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

from bed import need
from cases_nat import PORTS, Crossing, between, crossing, load, translating
from cases_nat_scale import EACH_NEW, SHORT, SUBSCRIBERS, in_turn, nat
from rounds import Peer, Round, Sides, UnusableError
from vpp import Nat, Vpp

Setup = Callable[[], contextlib.AbstractContextManager[Sides]]

NEW = 6_000_000
"""Sessions that VPP has room for where each packet is a new one: more than begin in a round (checked)."""
EARLIER = 3.0
"""Seconds that tables have to take their memory, before the first session begins."""


def peer(both: Crossing, sessions: int, measure: Callable[[float], float]) -> Peer:
    """VPP in the place of our NAT, on its main thread or on a worker of its own."""
    need("vpp")
    inside, outside = (port["ip"] for port in PORTS[1:3])
    wanted = Nat(
        inside, outside, router="203.0.113.1", beyond="198.51.100.0/24",
        pool=("198.18.0.0", "198.18.3.255"), sessions=sessions,
    )  # fmt: skip

    def at(*, worker: bool) -> Round:
        def play(seconds: float) -> dict[str, float]:
            both.fresh()
            with Vpp(both.where, wanted, both.paths, worker=worker):
                return {"rate": measure(seconds)}

        return play

    return Peer("VPP", {"main thread": at(worker=False), "a worker": at(worker=True)})


def known(flows: int) -> Setup:
    """Packets of so many flows that both know, in random order."""

    def offered(seconds: float) -> dict[str, Any]:
        return load(seconds, flows, ({}, []))

    @contextlib.contextmanager
    def play() -> Iterator[Sides]:
        with crossing() as both:

            def ours(seconds: float) -> dict[str, float]:
                return {"rate": both.ours(offered(seconds), translating(flows))}

            theirs = peer(both, max(2 * flows, 65_536), lambda seconds: both.across(offered(seconds)))
            yield Sides(ours, (theirs,))

    return play


@contextlib.contextmanager
def setup() -> Iterator[Sides]:
    """New sessions a second, when every packet is the first of a flow."""
    room = SUBSCRIBERS * EACH_NEW

    def offered(seconds: float) -> dict[str, Any]:
        made = between(seconds, [in_turn("new", EACH_NEW, after=f"{EARLIER}s")], ({}, []))
        made["phases"]["warmup"] = f"{EARLIER}s"
        return made

    def each_new(rate: float, seconds: float, most: int) -> float:
        if rate * seconds > most:
            raise UnusableError(f"{rate * seconds:,.0f} packets came through, and {most:,} sessions may be")
        return rate

    with crossing() as both:

        def ours(seconds: float) -> dict[str, float]:
            seconds = min(seconds, SHORT)
            return {"rate": each_new(both.ours(offered(seconds), nat(room), seconds), seconds, room)}

        def theirs(seconds: float) -> float:
            seconds = min(seconds, SHORT)
            return each_new(both.across(offered(seconds), seconds), seconds, NEW)

        yield Sides(ours, (peer(both, NEW, theirs),))
