"""Datagrams by our own generator: at a rate, and the highest rate without loss (RFC 2544).

They are reflected by a server, which a virtual machine can run, too. Over DPDK ports of both sides they go
one way, as frames from the client's port to the server's.
"""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from pydantic import Field

from netdyno.core.wire import TrialResult
from netdyno.errors import Error
from netdyno.lab.dut.base import Dut, Settings
from netdyno.lab.dut.counting_server import CountingServer
from netdyno.lab.dut.reflector import Reflector
from netdyno.lab.workload import core
from netdyno.lab.workload.base import Site, WorkloadResult, metric_table
from netdyno.lab.workload.core import Core
from netdyno.stats.observation import Metric

PORT = 8083
HEADERS = 46
"""Bytes of a frame around a datagram: Ethernet with FCS, IPv4, UDP."""
LEAST_FRAME = 64
AT_MOST = "at_most"
"""Counter of a search: 1 if the rate at which it began holds, so that the highest may be above it."""


class StreamOpen(Core):
    """Datagrams at a rate."""

    name = "stream"
    delay = "round_trip"
    about = "datagrams at a rate to our own reflector and back, open loop; one way between two DPDK ports"
    needs_ports = (("udp", PORT),)
    over_ports = True

    def dut(self, site: Site) -> Dut:
        """Our reflector."""
        return self._reflector(site)

    def in_machine(self, site: Site) -> CountingServer:
        """The same."""
        return self._reflector(site)

    def _reflector(self, site: Site) -> Reflector:
        return Reflector(site.site_of("reflector"), {"udp": PORT, "tcp": PORT})

    def serving(self, site: Site, stack: contextlib.ExitStack) -> Mapping[str, str]:
        """A reflector; none where both ports are the generator's."""
        if len(site.ports) > 1:
            return {"udp": f"udp://{site.address}:{PORT}"}
        return super().serving(site, stack)

    def round_trip(self, address: str) -> float:
        """Seconds to the reflector and back, of a datagram as the load's are."""
        begun = time.monotonic()
        with socket.socket(type=socket.SOCK_DGRAM) as probe:
            probe.settimeout(core.ECHO)
            while (now := time.monotonic()) - begun < core.PATIENCE:
                with contextlib.suppress(OSError):
                    probe.sendto(f"{now}".encode().ljust(self.options.size), (address, PORT))
                    sent = float(probe.recv(65_535))
                    return time.monotonic() - sent
        return 0.0

    @property
    def rates(self) -> float:
        """Datagrams a second."""
        return float(self.options.rate)

    def run(self, site: Site, seed: int) -> WorkloadResult:
        """One run of the profile."""
        return self.result(self.trial(self.profile(seed)))

    def result(self, trial: TrialResult) -> WorkloadResult:
        """Its metrics. Raises Error if nothing came through."""
        return self.answered(core.result_of_trial(trial, "one_way" if len(self._ports) > 1 else self.delay))

    def at(self, rate: float, seed: int) -> dict[str, Any]:
        """The profile at a rate."""
        o = self.options
        group: dict[str, Any] = {"name": "load", "devices": o.devices, "target": self._urls["udp"]}
        if len(self._ports) > 1:
            size = max(LEAST_FRAME, o.size + HEADERS)
            group["model"] = {"stream": {"echo": False}}
            group["frame"] = {"size": {"fixed": f"{size}B"}, "rate": {"frames": f"{rate}/s"}}
        else:
            stream = {
                "size": f"{o.size}B", "rate": f"{rate / o.devices}/s", "count": 0, "echo": True,
                "timeout": f"{1 + self._round_trip:.3f}s",
            }  # fmt: skip
            group |= {"load": {"closed": {}}, "model": {"stream": stream}}
        return self.over_its_ports({"name": self.name, "seed": seed % (1 << 32)}, group)

    def profile(self, seed: int) -> dict[str, Any]:
        """At the rate of its options."""
        return self.at(self.rates, seed)

    def group(self, urls: Mapping[str, str]) -> dict[str, Any]:
        """Its group at that rate."""
        (group,) = self.profile(0)["groups"]
        return dict(group)


class SearchOptions(Settings):
    """Settings of a search for the highest rate."""

    most: float = Field(default=20_000, gt=0, le=100_000_000)
    """Datagrams a second at which the search begins: the highest rate that it can find."""
    size: int = Field(default=64, ge=18, le=8950)
    """Payload bytes of a datagram; its frame has 46 more with FCS, so that 18 is a frame of 64 bytes."""
    loss: float = Field(default=0, ge=0, lt=1)
    """Share of datagrams that may be lost."""
    resolution: float = Field(default=0.05, gt=0.0001, lt=1)
    """The search ends when the highest rate is known to this share of `most`."""
    seconds: float = Field(default=2, gt=0, le=3600)
    """How long each rate is measured; RFC 2544 section 24 asks for 60."""
    devices: int = Field(default=10, ge=1, le=1_000_000)
    """Streams that share the rate."""


class StreamSearch(StreamOpen):
    """The highest rate without loss, and the delay at it."""

    name = "rfc2544"
    about = (
        "the highest rate of datagrams without loss, by bisection (RFC 2544, with shorter trials), and the "
        "delay at that rate; throughput is that of payload"
    )
    Options = SearchOptions
    metrics = metric_table(
        Metric("throughput", "bit/s", "higher"),
        Metric("delay_p50", "ms", "lower"),
        Metric("delay_p99", "ms", "lower"),
        Metric("generator_limited", "", "lower", zero_is_best=True),
    )
    _kept: ClassVar[tuple[str, ...]] = ("delay_p50", "delay_p99")

    @property
    def rates(self) -> float:
        """Where it begins."""
        return float(self.options.most)

    def run(self, site: Site, seed: int) -> WorkloadResult:
        """Bisect; a rate that the generator could not offer does not hold, and is told."""
        o = self.options
        limited: dict[float, str] = {}

        def tried(rate: float) -> WorkloadResult | None:
            try:
                found = self.result(self.trial(self.at(rate, seed)))
            except Error as e:
                if e.code != "ND-91-25":
                    raise
                return None
            if found.wrong:
                limited[rate] = found.wrong
            return found if not found.wrong and found.metrics.get("loss", 1.0) <= o.loss else None

        best, rate, fails = bisect(o.most, o.resolution, tried)
        if best is None:
            why = limited.get(fails, f"more than {o.loss:.2%} of the datagrams are lost at each rate")
            what = f"no rate holds down to {fails:,.0f} datagrams a second: {why}"
            raise Error(
                "ND-91-25", what, at=self.label, fix="Begin lower with --set most=, or allow --set loss="
            )
        kept = {name: best.metrics[name] for name in self._kept if name in best.metrics}
        metrics = {
            "throughput": rate * o.size * 8, **kept, "generator_limited": float(fails in limited),
        }  # fmt: skip
        counted = {"rate": rate, "loss": best.metrics.get("loss", 0.0), AT_MOST: float(rate >= o.most)}
        return WorkloadResult(metrics, counted)


def bisect(
    most: float, resolution: float, tried: Callable[[float], WorkloadResult | None]
) -> tuple[WorkloadResult | None, float, float]:
    """The result at the highest rate that holds, that rate, and the lowest that does not (0: none)."""
    if (found := tried(most)) is not None:
        return found, most, 0.0
    best: WorkloadResult | None = None
    low, high = 0.0, most
    while high - low > most * resolution:
        rate = (low + high) / 2
        if (found := tried(rate)) is not None:
            best, low = found, rate
        else:
            high = rate
    return best, low, high
