"""A bench whose answers are known: for tests, and to try a screening or a search before a machine is at hand.

It knows one TCP transfer over a path with delay, loss and a rate, as a formula: the window that the buffers
allow over the round trip, the congestion control's limit under loss, the path's rate; the least of them is
the throughput. Buffers beyond what the path holds become a queue and so a delay. Bursts of connections
overflow a short accept queue, and too much memory makes trials fail. Half of its parameters do nothing at
all.
"""

from __future__ import annotations

import json
import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from netdyno.stats.observation import Metric, Observation, Setting, Value
from netdyno.tuning.model import Access, Scale, Scope, Tunable

MSS = 1448
DOC = "https://docs.kernel.org/networking/ip-sysctl.html"


def _number(
    name: str, low: int, high: int, default: int, scale: Scale = Scale.LOG, unit: str = "", counter: str = ""
) -> Tunable:
    return Tunable(
        name, Scope.NAMESPACE, "", DOC, Access("sysctl", name), low, high,
        scale=scale, unit=unit, default=default, counters=(counter,) if counter else (),
    )  # fmt: skip


def _choice(name: str, default: Value, *choices: Value, counter: str = "") -> Tunable:
    return Tunable(
        name, Scope.NAMESPACE, "", DOC, Access("sysctl", name),
        choices=choices, scale=Scale.CHOICE, default=default, values="choice",
        counters=(counter,) if counter else (),
    )  # fmt: skip


RMEM, WMEM = "net.ipv4.tcp_rmem.max", "net.ipv4.tcp_wmem.max"
CC, QDISC, IDLE = (
    "net.ipv4.tcp_congestion_control",
    "net.core.default_qdisc",
    "net.ipv4.tcp_slow_start_after_idle",
)
QUEUE, GRO = "net.core.somaxconn", "dev.eth0.gro_flush_timeout"

ACTIVE: tuple[Tunable, ...] = (
    _number(RMEM, 4096, 64 << 20, 212_992, unit="bytes", counter="tcp.rwnd_limited"),
    _number(WMEM, 4096, 64 << 20, 212_992, unit="bytes", counter="tcp.sndbuf_limited"),
    _choice(CC, "cubic", "cubic", "reno", "bbr", counter="tcp.cwnd"),
    _choice(QDISC, "fq_codel", "fq_codel", "fq", "pfifo_fast"),
    _choice(IDLE, 1, 0, 1, counter="tcp.restarts"),
    _number(QUEUE, 128, 65_535, 4096, counter="TcpExtListenOverflows"),
    _number(GRO, 0, 200_000, 0, unit="ns", counter="napi.polls"),
)
"""What does something, at least on some paths."""
INERT: tuple[Tunable, ...] = (
    _number("net.core.netdev_max_backlog", 100, 100_000, 1000, unit="packets"),
    _number("net.core.netdev_budget", 64, 4096, 300),
    _number("net.ipv4.tcp_fin_timeout", 5, 120, 60, Scale.LINEAR, "s"),
    _number("net.ipv4.tcp_max_syn_backlog", 128, 65_535, 4096),
    _choice("net.ipv4.tcp_low_latency", 0, 0, 1),
    _number("net.ipv4.tcp_max_tw_buckets", 4096, 1 << 20, 262_144),
)
"""What does nothing here."""

METRICS = {
    m.name: m
    for m in (
        Metric("throughput", "bit/s", "higher"),
        Metric("latency_p99", "s", "lower"),
        Metric("failed", "count", "lower", zero_is_best=True),
    )
}


@dataclass(frozen=True)
class Path:
    """Where the transfer goes."""

    rtt: float = 0.030
    """Seconds."""
    loss: float = 0.002
    rate: float = 1e9
    """Bits per second."""


@dataclass
class SimulatedBench:
    """A bench with a computed response; deterministic for a seed."""

    path: Path = field(default_factory=Path)
    noise: float = 0.04
    """Standard deviation of the logarithm of what is measured."""
    burst: int = 1500
    """Connections at once."""
    memory: int = 96 << 20
    """Both buffers together; beyond it a trial fails."""
    seed: int = 1
    tunables: Sequence[Tunable] = ACTIVE + INERT
    breaks: float = 0.0
    """Share of trials that fail for no reason of the setting."""
    measured: int = field(default=0, init=False)

    @property
    def metrics(self) -> Mapping[str, Metric]:
        """What it measures."""
        return METRICS

    @property
    def baseline(self) -> dict[str, Value]:
        """What everything is to begin with."""
        return {t.name: t.default for t in self.tunables if t.default is not None}

    def truth(self, setting: Setting) -> dict[str, float]:
        """What it would measure without noise."""
        now: dict[str, Value] = {**self.baseline, **setting}
        p, packet = self.path, MSS * 8.0
        # half of a receive buffer is for what the packets are wrapped in
        window = min(int(now[RMEM]) / 2, int(now[WMEM]) / 1.5) * 8
        limits = {
            # Mathis et al., 1997, with what cubic gains on reno at such round trips
            "reno": 1.22 * packet / (p.rtt * math.sqrt(p.loss)) if p.loss else math.inf,
            "cubic": 1.40 * packet / (p.rtt * math.sqrt(p.loss)) if p.loss else math.inf,
            "bbr": p.rate * (0.95 if now[QDISC] == "fq" else 0.88) if p.loss < 0.15 else 0.0,
        }
        coalesced = int(now[GRO]) / 200_000
        throughput = min(window / p.rtt, limits[str(now[CC])], p.rate * (0.90 + 0.08 * coalesced))
        # what is sent beyond what the path holds waits in a queue
        standing = max(0.0, window / p.rate - p.rtt) if str(now[CC]) != "bbr" else 0.0
        queue = min(standing, 0.25) * (0.3 if now[QDISC] != "pfifo_fast" else 1.0)
        latency = p.rtt * (1.0 if now[IDLE] == 0 else 1.6) + queue + int(now[GRO]) * 60e-9
        failed = float(max(0, self.burst - int(now[QUEUE])))
        return {"throughput": throughput, "latency_p99": latency, "failed": failed}

    def measure(self, setting: Setting, seed: int) -> Observation:
        """One trial."""
        self.measured += 1
        name = json.dumps([self.seed, seed, sorted(setting.items())])
        draw = random.Random(name)
        now = {**self.baseline, **setting}
        if int(now[RMEM]) + int(now[WMEM]) > self.memory:
            return Observation(setting, {}, {}, valid=False, why="out of memory for sockets")
        if draw.random() < self.breaks:
            return Observation(setting, {}, {}, valid=False, why="another program had the processor")
        true = self.truth(setting)
        seen = {
            "throughput": true["throughput"] * math.exp(draw.gauss(0, self.noise)),
            "latency_p99": true["latency_p99"] * math.exp(draw.gauss(0, 1.5 * self.noise)),
            "failed": true["failed"],
        }
        return Observation(setting, seen, self._counters(now, true, draw), seconds=1.0)

    def _counters(
        self, now: Mapping[str, Value], true: Mapping[str, float], draw: random.Random
    ) -> dict[str, float]:
        window = true["throughput"] * self.path.rtt / 8
        limited = {
            name: min(1.0, window / (int(now[name]) / part)) for name, part in ((RMEM, 2), (WMEM, 1.5))
        }
        return {
            "TcpExtListenOverflows": true["failed"],
            "tcp.rtt_ms": self.path.rtt * 1e3 * math.exp(draw.gauss(0, self.noise)),
            "tcp.cwnd": window / MSS * math.exp(draw.gauss(0, self.noise)),
            "IpExtOutOctets": true["throughput"] / 8 * math.exp(draw.gauss(0, self.noise)),
            "tcp.rwnd_limited": max(0.0, limited[RMEM] - abs(draw.gauss(0, self.noise))),
            "tcp.sndbuf_limited": max(0.0, limited[WMEM] - abs(draw.gauss(0, self.noise))),
            "tcp.restarts": 40.0 * (now[IDLE] == 1),
            "napi.polls": 1e5 / (1 + int(now[GRO]) / 1e4) * math.exp(draw.gauss(0, self.noise)),
            "TcpRetransSegs": true["throughput"] / MSS / 8 * self.path.loss,
            "TcpOutSegs": true["throughput"] / MSS / 8,
        }
