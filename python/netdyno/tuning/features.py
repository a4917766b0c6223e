"""What a running service is like, in a few numbers, from what the kernel counts: it is not touched."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from netdyno.lab import sockets
from netdyno.lab.counters import CounterSource, increases, read

Features = Mapping[str, float]
"""By name; what cannot be told is left out."""


@dataclass(frozen=True)
class Feature:
    """One number, and how far apart two of it are."""

    name: str
    unit: str
    about: str
    least: float | None = None
    """Of what is compared by ratios: below it all are alike. None: a share, compared by differences."""

    def scaled(self, value: float) -> float:
        """Where it stands, such that 1 is far: twice as much, or a quarter of the whole."""
        return 4 * value if self.least is None else math.log2(max(value, self.least))


FEATURES: tuple[Feature, ...] = (
    Feature("rtt", "s", "round trip time, median over connections", 1e-4),
    Feature("rate", "bit/s", "bits carried a second, in and out", 1e5),
    Feature("retransmits", "ratio", "segments that were sent again", 1e-4),
    Feature("rwnd_limited", "ratio", "share of the time in which the peer's buffer held the sender"),
    Feature("sndbuf_limited", "ratio", "share of the time in which our buffer held the sender"),
    Feature("connects", "/s", "connections made, either way", 0.5),
    Feature("udp", "ratio", "share of datagrams among packets"),
    Feature("flow", "B", "bytes of a connection", 1e3),
    Feature("drops", "/s", "datagrams, connections and packets that the kernel dropped", 0.1),
)
NEEDED = ("rtt", "rate")
"""What decides most: without them no service is taken for like another."""
DROPS = (
    "UdpRcvbufErrors", "UdpSndbufErrors", "TcpExtListenDrops", "TcpExtTCPBacklogDrop", "TcpExtTCPRcvQDrop",
    "IpInDiscards", "IpOutDiscards",
)  # fmt: skip
"""Drops of the namespace; those of softnet are of the whole machine."""
OCTETS = ("IpExtInOctets", "IpExtOutOctets", "Ip6InOctets", "Ip6OutOctets")
"""Bytes of IP packets that came and went."""


def features(counters: Mapping[str, float], seconds: float) -> dict[str, float]:
    """The features of a service over a time, from by how much counters moved and from its connections."""
    seconds = max(seconds, 1e-3)
    get = counters.get
    found: dict[str, float] = {}
    if "tcp.rtt_ms" in counters:
        found["rtt"] = counters["tcp.rtt_ms"] / 1e3
        found["rwnd_limited"] = get("tcp.rwnd_limited", 0.0)
        found["sndbuf_limited"] = get("tcp.sndbuf_limited", 0.0)
    sent = get("TcpOutSegs", 0.0)
    if sent > 0:
        found["retransmits"] = get("TcpRetransSegs", 0.0) / sent
    datagrams = get("UdpInDatagrams", 0.0) + get("UdpOutDatagrams", 0.0)
    packets = datagrams + sent + get("TcpInSegs", 0.0)
    if packets > 0:
        found["udp"] = datagrams / packets
    opened = get("TcpActiveOpens", 0.0) + get("TcpPassiveOpens", 0.0)
    found["connects"] = opened / seconds
    octets = sum(get(name, 0.0) for name in OCTETS)
    if octets > 0:
        # not the sum of tcp_info's delivery_rate, which is that of single bursts
        found["rate"] = 8 * octets / seconds
        # a connection that was there before and stays is one flow
        found["flow"] = octets / max(opened, get("tcp.connections", 0.0), 1.0)
    found["drops"] = sum(get(name, 0.0) for name in DROPS) / seconds
    return found


def completed(found: Features, of_path: Features) -> dict[str, float]:
    """With what no connection told, and is known of the path."""
    return {**of_path, **found}


def sample(
    namespace: str | None, seconds: float, sleep: Callable[[float], None] = time.sleep
) -> dict[str, float]:
    """The features of what runs in a namespace, looked at for some seconds; nothing is changed."""
    where = CounterSource(namespace)
    before, begin = read(where), time.monotonic()
    with sockets.SocketSampler(namespace) as glances:
        sleep(seconds)
    delta = increases(before, read(where))
    return features({**delta, **glances.summary()}, time.monotonic() - begin)


def distance(a: Features, b: Features) -> float | None:
    """How far two services are apart; None when too little is known of both."""
    shared = [f for f in FEATURES if f.name in a and f.name in b]
    if len(shared) < 4:
        return None
    return math.sqrt(
        math.fsum((f.scaled(a[f.name]) - f.scaled(b[f.name])) ** 2 for f in shared) / len(shared)
    )
