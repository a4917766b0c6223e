"""ab and wrk against nginx."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Mapping
from typing import ClassVar

from pydantic import Field

from netdyno.lab.dut.base import Settings
from netdyno.lab.dut.nginx import Nginx
from netdyno.lab.workload.base import Site, Workload, WorkloadResult, metric_table, run_generator, unreadable
from netdyno.stats.observation import Metric
from netdyno.system.process import find

INDEX = 612
"""Bytes of nginx's own index page, which the paper asks for."""


class WebOptions(Settings):
    """Settings of the web server."""

    backlog: int | None = Field(default=None, ge=1)
    """Connections that may wait at the server to be accepted; default nginx's own 511."""
    workers: int = Field(default=1, ge=1, le=1024)
    """Processes of the server."""
    size: int = Field(default=INDEX, ge=0, le=1 << 30)
    """Bytes of the page."""


class AbOptions(WebOptions):
    """Settings of ab."""

    requests: int = Field(default=2000, ge=1)
    """Requests in all, each on a connection of its own."""
    concurrency: int = Field(default=100, ge=1, le=20000)
    """At once."""


class WrkOptions(WebOptions):
    """Settings of wrk."""

    seconds: float = Field(default=5, gt=0, le=3600)
    """How long."""
    threads: int = Field(default=1, ge=1, le=1024)
    """Threads of the client."""
    connections: int = Field(default=50, ge=1, le=100000)
    """Connections at once, kept open."""


PER_REQUEST = (
    Metric("latency_mean", "ms", "lower"),
    Metric("latency_p99", "ms", "lower"),
    Metric("latency_max", "ms", "lower"),
    Metric("failed", "", "lower", zero_is_best=True),
)
"""What both clients say of requests."""


class _Web(Workload):
    def open(self, site: Site, stack: contextlib.ExitStack) -> None:
        """Start nginx."""
        o = self.options
        options = {"backlog": o.backlog, "worker_processes": o.workers, "sizes": (o.size,)}
        server = Nginx(site.site_of("nginx"), {k: v for k, v in options.items() if v is not None})
        stack.callback(server.teardown)
        server.setup()

    def url(self, site: Site) -> str:
        """The page to ask for."""
        return f"http://{site.address}:80/{self.options.size}"


class Ab(_Web):
    """Apache's bench: a connection for each request."""

    name = "ab"
    about = "requests to nginx, each on a new connection, closed loop (ab)"
    Options = AbOptions
    programs: ClassVar[Mapping[str, str]] = {"ab": "apache2-utils", "nginx": "nginx"}
    metrics = metric_table(
        Metric("requests", "/s", "higher"),
        *PER_REQUEST,
    )

    def run(self, site: Site, seed: int) -> WorkloadResult:
        """Ask."""
        o = self.options
        # -r: a reset connection is a failed request, not the end
        command = [find("ab", "apache2-utils"), "-r", "-n", str(o.requests), "-c",
                   str(min(o.concurrency, o.requests)), "-s", "30", self.url(site)]  # fmt: skip
        return WorkloadResult(ab(run_generator(site, command, 60 + o.requests / 50)))


class Wrk(_Web):
    """wrk: connections that stay open."""

    name = "wrk"
    about = "requests to nginx on connections that stay open, closed loop (wrk)"
    Options = WrkOptions
    programs: ClassVar[Mapping[str, str]] = {"wrk": "wrk", "nginx": "nginx"}
    metrics = metric_table(
        Metric("requests", "/s", "higher"),
        Metric("transfer", "B/s", "higher"),
        *PER_REQUEST,
    )

    def run(self, site: Site, seed: int) -> WorkloadResult:
        """Ask."""
        o = self.options
        threads = min(o.threads, o.connections)
        command = [find("wrk", "wrk"), f"-t{threads}", f"-c{o.connections}",
                   f"-d{max(1, round(o.seconds))}s", "--latency", self.url(site)]  # fmt: skip
        return WorkloadResult(wrk(run_generator(site, command, o.seconds + 30)))


N = r"(\d+(?:\.\d+)?)(?![\d.])"


def ab(text: str) -> dict[str, float]:
    """What ab printed."""

    def find_one(pattern: str) -> float:
        found = re.search(pattern, text, re.MULTILINE)
        if not found:
            raise unreadable("ab", text)
        return float(found[1])

    return {
        "requests": find_one(rf"^Requests per second:\s+{N}"),
        "latency_mean": find_one(rf"^Time per request:\s+{N} \[ms\] \(mean\)"),
        "latency_p99": find_one(r"^\s+99%\s+(\d{1,15})"),
        "latency_max": find_one(r"^\s*100%\s+(\d{1,15})"),
        "failed": find_one(r"^Failed requests:\s+(\d{1,15})"),
    }


_TIME = {"us": 1e-3, "ms": 1.0, "s": 1e3, "m": 60e3, "h": 3600e3}
_SIZE = {"": 1.0, "K": 1024.0, "M": 1024.0**2, "G": 1024.0**3, "T": 1024.0**4}


def wrk(text: str) -> dict[str, float]:
    """What `wrk --latency` printed."""
    latency = re.search(rf"^\s+Latency\s+{N}(\w+)\s+[\d.]+\w+\s+{N}(\w+)", text, re.MULTILINE)
    p99 = re.search(rf"^\s+99%\s+{N}(\w+)", text, re.MULTILINE)
    rate = re.search(rf"^Requests/sec:\s+{N}", text, re.MULTILINE)
    transfer = re.search(rf"^Transfer/sec:\s+{N}([KMGT]?)B", text, re.MULTILINE)
    errors = re.search(r"Socket errors: connect (\d+), read (\d+), write (\d+), timeout (\d+)", text)
    status = re.search(r"Non-2xx or 3xx responses: (\d+)", text)
    units = {one for one in (latency and latency[2], latency and latency[4], p99 and p99[2]) if one}
    if not (latency and p99 and rate and transfer) or not units <= _TIME.keys():
        raise unreadable("wrk", text)
    failed = sum(int(one) for one in errors.groups()) if errors else 0
    return {
        "requests": float(rate[1]),
        "transfer": float(transfer[1]) * _SIZE[transfer[2]],
        "latency_mean": float(latency[1]) * _TIME[latency[2]],
        "latency_p99": float(p99[1]) * _TIME[p99[2]],
        "latency_max": float(latency[3]) * _TIME[latency[4]],
        "failed": float(failed + (int(status[1]) if status else 0)),
    }
