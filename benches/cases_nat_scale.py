"""The NAT with very many sessions: how fast they begin, and what their end costs."""

from __future__ import annotations

import contextlib
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from bed import BEYOND, CORES, SERVER, Core, Skipped, folder, namespace, rss_of
from cases_nat import PORTS, QUEUES, Crossing, address, between, crossing, load, translating
from cases_testpmd import LONG, at_bursts
from kernel_nat import APART, HERE, kernel_nat
from rounds import Peer, Sides, UnusableError
from testpmd import Testpmd

SUBSCRIBERS = 62_500
"""One worker has 65,534 at most."""
SHORT = 2.0
"""Seconds in which fewer sessions begin than there may be."""
EACH_EARLY, EACH_NEW = 16, 224
"""Sessions of a subscriber."""
EACH_OF_MANY = 160
MANY = SUBSCRIBERS * EACH_OF_MANY
"""Ten million."""
EARLY = 1_000_000
"""Of them, those that begin before what the process has in memory is looked at."""
WAVES, EVERY = 16, 2.0
"""In which sessions end, and seconds between them."""
KNOWN, PASSING = 64_000, SUBSCRIBERS * WAVES
"""Sessions that go on, and those that end meanwhile."""
SYN = [{"ethernet": {}}, {"ipv4": {}}, {"tcp": {"flags": "S"}}]
ONE_CORE = "two cores are needed, one for the NAT and one for its ends; there is one"

Setup = Callable[[], contextlib.AbstractContextManager[Sides]]


def nat(sessions: int, **idle: str) -> tuple[dict[str, Any], list[str]]:
    """A NAT with room for these sessions of all subscribers, and idle times."""
    elements, edges = translating(sessions)
    for name in ("nat", "conntrack"):
        elements[name]["most_subscribers"] = SUBSCRIBERS + 1_000
    elements["conntrack"] |= {"ports_per_block": 512, "timeouts": idle}
    return elements, edges


def in_turn(
    name: str,
    each: int,
    *,
    syn: bool = False,
    rate: str = "200M/s",
    echo: bool = False,
    first: int = 10_000,
    **more: Any,
) -> dict[str, Any]:
    """A frame of each flow of each subscriber, and again: first one of every subscriber, then the next."""
    protocol = "tcp" if syn else "udp"
    sources = {"increment": {"from": "10.0.1.0", "count": SUBSCRIBERS}}
    ports = {"increment": {"from": first, "count": each}}
    frame = {
        "size": {"fixed": "64B"}, "rate": {"frames": rate}, "measured": False,
        "vary": [
            {"field": "ipv4.source", "change": sources},
            {"field": f"{protocol}.source_port", "change": ports, "each": SUBSCRIBERS},
        ],
    }  # fmt: skip
    layers = {"layers": SYN} if syn else {}
    return {
        "name": name, "target": "udp://198.51.100.9:53", "port": "a", "frame": frame | layers | more,
        "model": {"stream": {"echo": False}},
    }  # fmt: skip


def once(group: dict[str, Any], count: int) -> dict[str, Any]:
    """So many frames of it, and no more."""
    return group | {"model": {"stream": {"echo": False, "count": count}}, "load": {"closed": {"flows": 1}}}


def setup(*, syn: bool) -> Setup:
    """New sessions a second, when every packet is the first of a flow."""

    @contextlib.contextmanager
    def play() -> Iterator[Sides]:
        if len(CORES) < 2:
            raise Skipped(ONE_CORE)
        with contextlib.ExitStack() as made:
            name, where = made.enter_context(namespace()), made.enter_context(folder())
            core = Core(name, where)

            def ours(seconds: float) -> dict[str, float]:
                # others touch all of the tables before: the kernel clears memory at its first use
                early = once(
                    in_turn("early", EACH_EARLY, first=40_000, rate="500k/s"), SUBSCRIBERS * EACH_EARLY
                )
                group = in_turn("new", EACH_NEW, syn=syn, after="3s")
                wanted = between(
                    min(seconds, SHORT), [early, group], nat(SUBSCRIBERS * (EACH_NEW + EACH_EARLY))
                )
                wanted["phases"]["warmup"] = "3s"
                result, _ = core.run(wanted, allowed=BEYOND)
                sent, out = (result["interfaces"][port]["tx_packets"] for port in ("a", "c"))
                if out > SUBSCRIBERS * EACH_NEW or out < 0.99 * sent:
                    raise UnusableError(f"{sent:,} first packets were sent, {out:,} came through")
                stages = [e for e in result["elements"] if e["name"] == "conntrack"]
                return {
                    "rate": result["groups"][1]["rates"]["messages_sent"],
                    "cycles": sum(e["cycles_per_packet"] for e in stages),
                }

            peers = ()
            if not syn:
                kernel = made.enter_context(kernel_nat())
                peers = (Peer("kernel", {name: at(kernel.setup, name) for name in (APART, HERE)}),)
            yield Sides(ours, peers)
            core.close()

    def at(measure: Callable[[float, str], float], name: str) -> Callable[[float], dict[str, float]]:
        return lambda seconds: {"rate": measure(seconds, name)}

    return play


class Apart(Crossing):
    """The same, of which the NAT is a graph of its own that is asked meanwhile."""

    @contextlib.contextmanager
    def running(self, made: tuple[dict[str, Any], list[str]]) -> Iterator[Callable[[], dict[str, Any]]]:
        """The NAT, for as long as it is needed: what it says of itself."""
        self.fresh()
        elements, edges = made
        ports = {
            port["name"]: {"device": device, "ip": port["ip"]}
            for port, device in zip(PORTS[1:3], self.inner, strict=True)
        }
        document = {
            "ports": ports, "elements": elements, "edges": edges,
            "placement": [{"core": SERVER, "elements": [*elements, *QUEUES]}],
        }  # fmt: skip
        graph = self.dut.client.call("graph.run", graph=document)["graph"]
        try:
            yield lambda: self.dut.client.call("nat.status", graph=graph)["workers"][0]
        finally:
            self.dut.client.call("graph.stop", graph=graph)

    def profile(self, seconds: float, *groups: dict[str, Any]) -> dict[str, Any]:
        """What the ends do: they send these groups."""
        made = between(seconds, list(groups), ({}, []))
        dpdk = made["transport"]["dpdk"]
        outer = zip((PORTS[0], PORTS[3]), self.outer, strict=True)
        dpdk["ports"] = [port | {"device": device} for port, device in outer]
        dpdk["placement"] = dpdk["placement"][:1]
        return made


@contextlib.contextmanager
def apart() -> Iterator[Apart]:
    """Both processes."""
    with crossing() as both:
        yield Apart(both.ends, both.dut, both.where)


@contextlib.contextmanager
def expiry() -> Iterator[Sides]:
    """What known flows get through while a million sessions end, in waves with time between them.

    `kept` is its ratio to what they get just before and after each wave, so that the machine is as fast for
    both; `lasted` is how long the end of a wave took. The sessions are SYNs that nobody answers, one of each
    subscriber in a wave.
    """
    with apart() as both:

        def ours(_: float) -> dict[str, float]:
            known = load(LONG, KNOWN, ({}, []))["groups"][0] | {"name": "known"}
            passing = [
                once(
                    in_turn(
                        f"wave-{n}", 1, first=10_000 + n, syn=True, rate="2M/s",
                        after=f"{1000 + n * round(EVERY * 1000)}ms", priority=7,
                    ),
                    SUBSCRIBERS,
                )
                for n in range(WAVES)
            ]  # fmt: skip
            lasting = WAVES * EVERY
            # where the table is nearly full they would end at once
            room = (KNOWN + PASSING) * 5 // 4
            with both.running(nat(room, tcp_opening=f"{round(lasting) + 2}s")) as status:
                seen = []

                def look() -> float:
                    end = time.monotonic() + 2 * lasting + 8
                    while time.monotonic() < end:
                        now = status()
                        seen.append((time.monotonic(), now["sessions"], now["forwarded_up"]))
                        time.sleep(0.01)
                    return 0.0

                both.ends.during(both.profile(LONG, known, *passing), look, allowed=BEYOND)
            return while_they_end(seen)

        yield Sides(ours)


Sample = tuple[float, int, int]
"""When, how many sessions there are, and how many packets were forwarded."""


def while_they_end(seen: Sequence[Sample]) -> dict[str, float]:
    """What was forwarded while each wave of sessions ended, and for as long before and after it at most."""
    most = max(sessions for _, sessions, _ in seen)
    if most != KNOWN + PASSING:
        raise UnusableError(f"of {KNOWN + PASSING:,} sessions {most:,} began")
    last = max(i for i, (_, sessions, _) in enumerate(seen) if sessions == most)
    ending, waves = seen[last:], []
    for n in range(WAVES):
        before = [one for one in ending if one[1] >= most - n * SUBSCRIBERS]
        after = [one for one in ending if one[1] <= most - (n + 1) * SUBSCRIBERS]
        if not after:
            raise UnusableError(f"not long enough: wave {n + 1} did not end")
        waves.append((before[-1][0], after[0][0]))

    def rate(begin: float, end: float) -> float:
        within = [one for one in seen if begin <= one[0] <= end]
        if len(within) < 2:
            raise UnusableError("the NAT did not say what it forwards")
        (began, _, so_far), (ended, _, then) = within[0], within[-1]
        return (then - so_far) / (ended - began)

    during = [rate(begin, end) for begin, end in waves]
    long = [end - begin for begin, end in waves]
    # no longer than nothing else ends
    since = [seen[0][0], *(end for _, end in waves[:-1])]
    until = [*(begin for begin, _ in waves[1:]), seen[-1][0]]
    beside = [
        (rate(max(begin - its, quiet), begin) + rate(end, min(end + its, busy))) / 2
        for (begin, end), its, quiet, busy in zip(waves, long, since, until, strict=True)
    ]
    return {
        "rate": statistics.fmean(during),
        "kept": sum(during) / sum(beside),
        "lasted": statistics.fmean(long),
    }


def settled(look: Callable[[], int]) -> int:
    """What stays the same for half a second."""
    before, end = look(), time.monotonic() + 30.0
    while time.monotonic() < end:
        time.sleep(0.5)
        now = look()
        if now == before:
            return now
        before = now
    raise UnusableError("its tables take memory for more than 30 s")


@contextlib.contextmanager
def ten_million() -> Iterator[Sides]:
    """Ten million sessions that begin, are used in random order, and end; beside it testpmd's macswap.

    `begun`: sessions a second that begin, offered at 3 M/s; `lasted`: from the first that ends to the last;
    `grown`: what the process has more in memory then than before the first began.
    """
    with apart() as both:

        def used(seconds: float) -> float:
            group = load(seconds, MANY, ({}, []))["groups"][0]
            change = {"random": {"from": "10.0.1.0", "to": address(0x0A000100 + SUBSCRIBERS - 1)}}
            ports = {"random": {"from": 10_000, "to": 10_000 + EACH_OF_MANY - 1}}
            group["frame"]["vary"] = [
                {"field": "ipv4.source", "change": change},
                {"field": "udp.source_port", "change": ports},
            ]
            made = both.profile(seconds, group)
            near = made["transport"]["dpdk"]["ports"][0]
            # who swaps addresses only answers no ARP
            del near["gateway"]
            near["peer_mac"] = "02:00:00:00:00:02"
            result, _ = both.ends.run(made, allowed=BEYOND)
            return float(result["interfaces"]["d"]["rx_packets"] / sum(result["phases"].values()))

        def ours(seconds: float) -> dict[str, float]:
            with both.running(nat(MANY, udp="120s")) as status:
                # its tables take their memory first, and then packets have theirs
                settled(lambda: rss_of(both.dut.pid))
                early = once(in_turn("all", EACH_OF_MANY, rate="1M/s"), EARLY)
                both.ends.run(both.profile(EARLY / 1e6 + 1.0, early), allowed=BEYOND)
                before = rss_of(both.dut.pid)
                making = once(in_turn("all", EACH_OF_MANY, rate="3M/s"), MANY)
                seen = [(time.monotonic(), 0)]

                def look() -> float:
                    while seen[-1][1] < MANY and time.monotonic() < seen[0][0] + 30.0:
                        time.sleep(0.02)
                        seen.append((time.monotonic(), status()["sessions"]))
                    return 0.0

                both.ends.during(both.profile(LONG, making), look, allowed=BEYOND)
                first = next((one for one in seen if one[1] > EARLY), seen[0])
                if seen[-1][1] < MANY:
                    raise UnusableError(f"of {MANY:,} sessions {seen[-1][1]:,} began in 30 s")
                begun = (MANY - first[1]) / (seen[-1][0] - first[0])
                rate = used(seconds)
                end, ending = time.monotonic() + 240.0, 0.0
                while (left := status()["sessions"]) > 0:
                    ending = ending or (time.monotonic() if left < MANY else 0.0)
                    if time.monotonic() > end:
                        raise UnusableError(f"{left:,} sessions are left after 240 s")
                    time.sleep(0.05)
                grown = rss_of(both.dut.pid) - before
                return {
                    "rate": rate,
                    "begun": begun,
                    "lasted": time.monotonic() - ending,
                    "grown": float(grown),
                }

        def macswap(seconds: float, burst: int) -> dict[str, float]:
            both.fresh()
            with Testpmd(SERVER, both.inner, "--forward-mode=macswap", burst=burst) as testpmd:
                testpmd.say("start")
                return {"rate": used(seconds)}

        yield Sides(ours, (at_bursts(macswap),))
