"""The dpdk transport by itself: what one core reflects and measures, and how well."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from bed import BEYOND, CORES, GENERATOR, SERVER, Core, Skipped, folder, frames, namespace
from rounds import Sides
from testpmd import FRAME

Setup = Callable[[], contextlib.AbstractContextManager[Sides]]

CABLE = [
    {"name": "a", "device": "pair:x", "ip": "10.0.0.1"},
    {"name": "b", "device": "pair:x", "ip": "10.0.0.2"},
]
"""Two ports of ours, and a pair of rings between them."""


@contextlib.contextmanager
def loopback() -> Iterator[Sides]:
    """64-byte frames through a cable to our reflector and back, every one measured, all on one worker."""
    with namespace() as name, folder() as where:
        core = Core(name, where)

        def ours(seconds: float) -> dict[str, float]:
            model = {"stream": {"size": "18B", "rate": "50M/s", "echo": True}}
            group = {"name": "g", "target": "udp://10.0.0.2:9000", "model": model}
            ports = [CABLE[0], CABLE[1] | {"role": "reflector"}]
            wanted = frames(seconds, ports, [group])
            result, _ = core.run(wanted, allowed=BEYOND)
            return {"rate": result["groups"][0]["rates"]["messages_delivered"]}

        yield Sides(ours)
        core.close()


def one_way(streams: int, rate: str) -> dict[str, Any]:
    """64-byte frames from port a."""
    return {
        "name": "g",
        "target": "udp://10.0.0.2:9000",
        "devices": streams,
        "model": {"stream": {"echo": False}},
        "frame": {"size": {"fixed": "64B"}, "rate": {"frames": rate}},
        "port": "a",
    }


def measured(streams: int) -> Setup:
    """64-byte frames over a cable, number and delay of every one measured at the other end, one worker."""

    @contextlib.contextmanager
    def play() -> Iterator[Sides]:
        with namespace() as name, folder() as where:
            core = Core(name, where)

            def ours(seconds: float) -> dict[str, float]:
                result, _ = core.run(frames(seconds, CABLE, [one_way(streams, "100M/s")]), allowed=BEYOND)
                return {"rate": result["groups"][0]["rates"]["messages_delivered"]}

            yield Sides(ours)
            core.close()

    return play


def apart(streams: int) -> Setup:
    """The same, sent by one core and received by another: `send`, `receive`: what each takes for a frame."""

    @contextlib.contextmanager
    def play() -> Iterator[Sides]:
        if len(CORES) < 2:
            raise Skipped("two cores are needed, one for each end; there is one")
        with namespace() as name, folder() as where:
            core = Core(name, where)

            def ours(seconds: float) -> dict[str, float]:
                wanted = frames(seconds, CABLE, [one_way(streams, "100M/s")])
                ends = {SERVER: ["a.generator", "a.receiver"], GENERATOR: ["b.receiver", "b.generator"]}
                seat(wanted, ends)
                result, _ = core.run(wanted, allowed=BEYOND)
                spent = {e["name"]: e["cycles_per_packet"] for e in result["elements"]}
                return {
                    "rate": result["groups"][0]["rates"]["messages_delivered"],
                    "send": spent["a.generator"],
                    "receive": spent["b.receiver"],
                }

            yield Sides(ours)
            core.close()

    return play


@contextlib.contextmanager
def delay() -> Iterator[Sides]:
    """The median of the delay that is measured where there is next to none: over a cable in memory.

    `rate` frames a second, far below what a core can do; `delay` when one worker sends and receives, `apart`
    when one sends and another receives.
    """
    if len(CORES) < 2:
        raise Skipped("two cores are needed, one for each worker; there is one")
    with namespace() as name, folder() as where:
        core = Core(name, where)

        def ours(seconds: float) -> dict[str, float]:
            wanted = frames(seconds, CABLE, [one_way(1, "100k/s")])
            beside = core.run(wanted)[0]["groups"][0]
            ends = {SERVER: ["a.generator", "a.receiver"], GENERATOR: ["b.receiver", "b.generator"]}
            seat(wanted, ends)
            apart = core.run(wanted)[0]["groups"][0]
            return {
                "rate": beside["rates"]["messages_delivered"],
                "delay": beside["delays"]["one_way"]["p50"],
                "apart": apart["delays"]["one_way"]["p50"],
            }

        yield Sides(ours)
        core.close()


def seat(profile: dict[str, Any], workers: dict[int, list[str]]) -> None:
    """Place elements on workers, by core."""
    profile["transport"]["dpdk"]["placement"] = [
        {"core": core, "elements": elements} for core, elements in workers.items()
    ]


@contextlib.contextmanager
def split() -> Iterator[Sides]:
    """Frames out of nothing into nothing, handed on by one worker (`one`) or by two with a ring between.

    `ring` is what the ring costs: what the elements and it take for a packet on both workers, less what the
    elements take on one.
    """
    if len(CORES) < 2:
        raise Skipped("two cores are needed, one for each worker; there is one")
    with namespace() as name, folder() as where:
        core = Core(name, where)
        ports = [
            {"name": "a", "device": f"net_null0,size={FRAME}", "role": "l2fwd", "to": "b"},
            {"name": "b", "device": "net_null1,no-rx=1", "role": "l2fwd"},
        ]

        def through(seconds: float, workers: dict[int, list[str]]) -> tuple[float, float]:
            wanted = frames(seconds, ports, [])
            seat(wanted, workers)
            result, _ = core.run(wanted)
            spent = sum(e["cycles_per_packet"] for e in result["elements"])
            return result["interfaces"]["b"]["tx_packets"] / sum(result["phases"].values()), spent

        def ours(seconds: float) -> dict[str, float]:
            one, alone = through(seconds, {GENERATOR: ["b.l2fwd", "a.l2fwd"]})
            # b's sender is b's own worker's, as that is named first
            two, parted = through(seconds, {SERVER: ["b.l2fwd"], GENERATOR: ["a.l2fwd"]})
            return {"rate": two, "one": one, "ring": (parted - alone) / ticks() * 1e9}

        yield Sides(ours)
        core.close()


@contextlib.contextmanager
def impaired() -> Iterator[Sides]:
    """64-byte frames between two ring ports 200 ms apart: a million on the way at 5 Mpps.

    One core has the two ports and the path between them; the other sends and measures.
    """
    if len(CORES) < 2:
        raise Skipped("two cores are needed, one for the path and one for its ends; there is one")
    late = 0.2
    with namespace() as name, folder() as where:
        core = Core(name, where)
        path = {"role": "l2fwd", "to": "out", "impair": {"delay": {"constant": f"{late * 1000:.0f}ms"}}}
        ports: list[dict[str, Any]] = [
            CABLE[0],
            {"name": "in", "device": "pair:x"} | path,
            {"name": "out", "device": "pair:y", "role": "l2fwd"},
            {"name": "b", "device": "pair:y", "ip": "10.0.0.2"},
        ]

        def ours(seconds: float) -> dict[str, float]:
            wanted = frames(seconds, ports, [one_way(1, "5M/s")])
            wanted["transport"]["dpdk"]["memory"] = "4GiB"
            ends = ["a.generator", "a.receiver", "b.generator", "b.receiver"]
            seat(wanted, {GENERATOR: ["in.impair", "in.l2fwd", "out.l2fwd"], SERVER: ends})
            result, _ = core.run(wanted, allowed=BEYOND)
            (seen,) = (e for e in result["elements"] if e["name"] == "in.impair")
            # the first leave when they may, and the last have not left
            return {
                "rate": seen["packets_out"] / (sum(result["phases"].values()) - late),
                "cycles": seen["cycles_per_packet"],
            }

        yield Sides(ours)
        core.close()


def ticks() -> float:
    """Of the time stamp counter in a second; Linux gives twice as many MHz as BogoMIPS."""
    found = re.search(r"bogomips\s*: ([\d.]+)", Path("/proc/cpuinfo").read_text(), re.IGNORECASE)
    if found is None:
        raise Skipped("the kernel does not say how fast the time stamp counter is")
    return float(found[1]) / 2 * 1e6
