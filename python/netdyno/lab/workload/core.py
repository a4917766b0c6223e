"""Our own models through the daemon, open loop: requests come when they come, and waiting is measured too."""

from __future__ import annotations

import contextlib
import logging
import secrets
import socket
import time
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, ClassVar
from urllib.parse import urlsplit

from pydantic import Field

from netdyno import paths
from netdyno.core import models
from netdyno.core.daemon import PROGRAM, Daemon, program
from netdyno.core.wire import TrialResult
from netdyno.errors import Error
from netdyno.lab.dut.base import Dut, Settings
from netdyno.lab.dut.counting_server import CountingServer
from netdyno.lab.dut.mosquitto import Mosquitto
from netdyno.lab.dut.nginx import Nginx
from netdyno.lab.dut.service import HttpService, MqttService
from netdyno.lab.workload.base import Site, Workload, WorkloadResult, metric_table
from netdyno.lab.workload.iperf3 import listens
from netdyno.stats.metric import GroupMetric as Name
from netdyno.stats.observation import Metric
from netdyno.system import namespace

WARMUP, DRAIN = 0.5, 2.0
"""Seconds. What is sent last has the round trip of its way and the rest to be answered (RFC 2544 section 23
waits two seconds for links without delay)."""
ECHO, PATIENCE = 0.5, 20.0
"""Seconds after which a probe of the round trip is sent again, and in which one is answered at all."""
SHARED = ("net_virtio_user", "net_memif")
"""Devices that a switch connects to."""
CONNECT = 3.0
"""Seconds of warm-up where a process has to come to a port that shares memory with it."""


class OpenOptions(Settings):
    """Settings of open-loop load."""

    rate: float = Field(default=500, gt=0, le=10_000_000)
    """Flows, or datagrams, a second."""
    seconds: float = Field(default=5, gt=0, le=3600)
    """How long it is measured."""
    size: int = Field(default=64, ge=16, le=8950)
    """Bytes of an answer, a message or a datagram."""
    devices: int = Field(default=200, ge=1, le=1_000_000)
    """Who sends them."""


class Core(Workload):
    """A load of one group by our daemon."""

    Options: ClassVar[type[Settings]] = OpenOptions
    in_guests = True
    client_stays = True
    from_fleet = True
    _fleet: Callable[[Callable[[str], None]], Any] | None = None
    _ports: Sequence[Mapping[str, Any]] = ()
    _round_trip: float = 0.0
    """Seconds, before the first load."""
    trips: ClassVar[int] = 1
    """Round trips that a flow takes to its last answer."""
    delay: ClassVar[str]
    """Which delay of the model is told."""
    metrics = metric_table(
        Metric("delivered", "/s", "higher"),
        Metric("delay_p50", "ms", "lower"),
        Metric("delay_p99", "ms", "lower"),
        Metric("loss", "ratio", "lower", zero_is_best=True),
        Metric("failed", "", "lower", zero_is_best=True),
    )

    @abstractmethod
    def dut(self, site: Site) -> Dut:
        """What it loads."""

    @abstractmethod
    def in_machine(self, site: Site) -> CountingServer:
        """What it loads where the server is a machine: a command of our daemon."""

    @classmethod
    def in_machines(cls) -> list[str]:
        """Our daemon, which serves there."""
        return [str(program())]

    @classmethod
    def on_other_machines(cls) -> list[str]:
        """The same, by its name."""
        return [PROGRAM]

    @abstractmethod
    def group(self, urls: Mapping[str, str]) -> dict[str, Any]:
        """The group of the profile."""

    def open(self, site: Site, stack: contextlib.ExitStack) -> None:
        """Start the server and a daemon on the client."""
        self._ports = site.ports
        self._urls = self.serving(site, stack)
        self._fleet = site.fleet
        if site.fleet:
            return
        where = paths.runtime() / f"nd-load-{secrets.token_hex(6)}.sock"
        log = site.folder / "load.jsonl"
        self._daemon = Daemon(where, log, namespace=site.client, notes=site.notes)
        stack.callback(self._daemon.stop)
        if not site.ports:
            self._round_trip = namespace.inside(site.client, lambda: self._probed(site.address))

    def serving(self, site: Site, stack: contextlib.ExitStack) -> Mapping[str, str]:
        """Start the server, in its namespace or machine; its URLs by scheme."""
        if guest := site.guests[1]:
            made = self.in_machine(site)
            tcp = next(port for kind, port in made.ports() if kind == socket.SOCK_STREAM)
            guest.serve(made.command(), lambda text: listens(text, tcp), stack)
            return made.urls()
        dut = self.dut(site)
        stack.callback(dut.teardown)
        dut.setup()
        return dut.urls()

    @property
    def drain(self) -> float:
        """Seconds in which what was sent last is awaited."""
        return DRAIN + self.trips * self._round_trip

    def _probed(self, address: str) -> float:
        first = self.round_trip(address)
        # the first may have waited for ARP, too
        return min(first, self.round_trip(address)) if first > ECHO else first

    def round_trip(self, address: str) -> float:
        """Seconds to the server and back: of a connection that is made."""
        port, begun = urlsplit(self.group(self._urls)["target"]).port, time.monotonic()
        # one that is refused or takes too long shows in the load
        with contextlib.suppress(OSError), socket.create_connection((address, port or 80), PATIENCE):
            return time.monotonic() - begun
        return 0.0

    def run(self, site: Site, seed: int) -> WorkloadResult:
        """One run of the profile. Raises Error if nothing came through."""
        return self.answered(result_of_trial(self.trial(self.profile(seed)), self.delay))

    def answered(self, found: WorkloadResult) -> WorkloadResult:
        """What was measured. Raises Error if nothing was delivered, and not for the generator's sake."""
        if not found.wrong and not found.metrics.get("delivered"):
            raise Error(
                "ND-91-25", "nothing came through", at=self.label, fix="See where packets are dropped"
            )
        return found

    @contextlib.contextmanager
    def _connected(self) -> Iterator[Any]:
        if self._fleet is None:
            with self._daemon.connect() as client:
                yield client
            return
        hosts = self._fleet(logging.getLogger(__name__).info)
        try:
            models.learn(hosts.call("core.describe"))
            yield hosts
        finally:
            hosts.close()

    def trial(self, profile: Mapping[str, Any]) -> TrialResult:
        """One run of a profile."""
        with self._connected() as client:
            client.acquire()
            client.call("run.load", profile=profile, timeout=60.0)
            events = client.subscribe()
            client.call("run.start")
            until = time.monotonic() + self.options.seconds + CONNECT + 2 * self.drain + 30
            while not client.status().ended:
                events.next(0.2)
                if time.monotonic() > until:
                    raise Error("ND-91-22", "the run does not end", at=self.label, fix="See the daemon's log")
            status = client.status()
            if status.state == "failed":
                known = status.error if isinstance(status.error, Mapping) else {"what": status.error}
                raise Error.of(known)
            result: TrialResult = client.result()
            # the next trial may come before the daemon has noticed that we hung up
            client.release()
            return result

    def profile(self, seed: int) -> dict[str, Any]:
        """What is run."""
        o = self.options
        group = {"name": "load", "devices": o.devices, **self.group(self._urls)}
        return self.over_its_ports({"name": self.name, "seed": seed % (1 << 32)}, group)

    def over_its_ports(self, made: dict[str, Any], group: dict[str, Any]) -> dict[str, Any]:
        """The profile of one group, from the DPDK ports that it has, if any."""
        warmup = WARMUP
        if self._ports:
            made["transport"] = {"dpdk": {"ports": list(self._ports)}}
            group["port"] = self._ports[0]["name"]
            if any(one["device"].startswith(SHARED) for one in self._ports):
                warmup = CONNECT
        # a flow of the warm-up sends its last message so much later
        warmup += self.trips * self._round_trip
        return {**made, "phases": phases(self.options.seconds, warmup, self.drain), "groups": [group]}


class HttpOpen(Core):
    """Requests at a rate, each on a connection of its own."""

    name = "http"
    about = "requests to nginx at a rate, each on a new connection, open loop"
    delay = "response"
    trips = 2
    programs: ClassVar[Mapping[str, str]] = {"nginx": "nginx"}

    def dut(self, site: Site) -> Dut:
        """nginx."""
        return Nginx(site.site_of("nginx"), {"sizes": (self.options.size,)})

    def in_machine(self, site: Site) -> CountingServer:
        """Our HTTP server."""
        return HttpService(site.site_of("http"), {"size": self.options.size})

    def group(self, urls: Mapping[str, str]) -> dict[str, Any]:
        """One request a flow."""
        model = {"http": {"path": f"/{self.options.size}", "requests": 1}}
        return {"target": urls["http"], "model": model, "load": {"open": {"rate": f"{self.options.rate}/s"}}}


class MqttOpen(Core):
    """Sensors that connect, publish and leave, at a rate."""

    name = "mqtt"
    about = "sensors that connect to Mosquitto, publish three times and leave, at a rate, open loop"
    delay = "publish"
    trips = 5
    programs: ClassVar[Mapping[str, str]] = {"mosquitto": "mosquitto"}

    def dut(self, site: Site) -> Dut:
        """Mosquitto."""
        return Mosquitto(site.site_of("mosquitto"))

    def in_machine(self, site: Site) -> CountingServer:
        """Our broker."""
        return MqttService(site.site_of("mqtt"))

    def group(self, urls: Mapping[str, str]) -> dict[str, Any]:
        """Three messages a flow."""
        model = {"mqtt": {"qos": 1, "count": 3, "size": f"{self.options.size}B"}}
        return {"target": urls["mqtt"], "model": model, "load": {"open": {"rate": f"{self.options.rate}/s"}}}


def phases(seconds: float, warmup: float = WARMUP, drain: float = DRAIN) -> dict[str, str]:
    """Of a profile."""
    return {"warmup": f"{round(warmup, 3)}s", "measure": f"{seconds}s", "drain": f"{round(drain, 3)}s"}


def result_of_trial(trial: TrialResult, delay: str) -> WorkloadResult:
    """The metrics of a trial of one group; it does not count if the generator did not do its part."""

    def value(name: str) -> float | None:
        return Name.parse(f"load.{name}").of(trial)

    metrics = {
        "delivered": value("messages_delivered.rate"),
        "loss": value("loss"),
        "failed": value("errors"),
    }
    for stat in ("p50", "p99"):
        found = value(f"delay.{delay}.{stat}")
        metrics[f"delay_{stat}"] = found / 1e6 if found is not None else None
    wrong = "; ".join(one.what or one.code for one in trial.validity.reasons)
    return WorkloadResult({k: v for k, v in metrics.items() if v is not None}, wrong=wrong)
