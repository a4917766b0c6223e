"""Connections: a burst at a server that does not accept, one after the other, and amid half-open ones."""

from __future__ import annotations

import contextlib
import errno
import ipaddress
import random
import select
import signal
import socket
import struct
import time
from collections.abc import Iterator
from typing import Literal

from pydantic import Field

from netdyno.errors import Error
from netdyno.lab.counters import program_output
from netdyno.lab.dut.base import Settings
from netdyno.lab.dut.nginx import Nginx
from netdyno.lab.workload.base import Site, Workload, WorkloadResult, metric_table
from netdyno.stats.observation import Metric
from netdyno.system import namespace
from netdyno.system.process import find

PORT = 8080
BACKLOG = 65535
"""What our own listening sockets ask for."""


class BurstOptions(Settings):
    """Settings of a burst of connects."""

    connections: int = Field(default=1000, ge=1, le=16000)
    """At once."""
    server: Literal["listener", "nginx"] = "listener"
    """A listening socket of ours, or nginx, whose processes are stopped while it accepts nothing."""
    backlog: int | None = Field(default=None, ge=1)
    """What the server asks for with listen(2); default 65535, and nginx its own 511."""
    stall: float = Field(default=0.8, gt=0, le=60)
    """Seconds for which the server accepts nothing. Less than the second after which clients try again."""


class RateOptions(Settings):
    """Settings of connects one after the other."""

    seconds: float = Field(default=3.2, gt=0, le=3600)
    """How long."""


class HalfOpenOptions(Settings):
    """Settings of connects amid half-open ones."""

    half_open: int = Field(default=1500, ge=0, le=60000)
    """Connections that are begun, from addresses of our own, and never completed."""
    connections: int = Field(default=50, ge=1, le=4000)
    """Of clients that mean it."""
    wait: float = Field(default=0.8, gt=0, le=60)
    """Seconds that they have; less than the second after which they try again."""


class _Listening(Workload):
    def open(self, site: Site, stack: contextlib.ExitStack) -> None:
        """Listen."""
        self.listener = stack.enter_context(listen(site))


class ConnectBurst(Workload):
    """Many at once, at a server that is busy with something else."""

    name = "connect-burst"
    about = "connects at once, while the server accepts nothing for a while"
    Options = BurstOptions
    metrics = metric_table(Metric("failed", "", "lower", zero_is_best=True))

    def open(self, site: Site, stack: contextlib.ExitStack) -> None:
        """Listen, and accept nothing."""
        o = self.options
        self._nginx: Nginx | None = None
        self._drained = 0
        if o.server == "listener":
            self._listener = stack.enter_context(listen(site, o.backlog or BACKLOG))
            return
        asked = {} if o.backlog is None else {"backlog": o.backlog}
        self._nginx = Nginx(site.site_of("nginx"), {"port": PORT, **asked})
        stack.callback(self._nginx.teardown)
        self._nginx.setup()

    def run(self, site: Site, seed: int) -> WorkloadResult:
        """Connect, wait, and count whom the server has; who was not let in by then does not try again."""
        o = self.options
        before = self._accepted()
        until = time.monotonic() + o.stall
        with self._stalled():
            clients = begin(site, o.connections)
            try:
                # from the last one on: a client that gets no CPU begins late, and has as long as the others
                connected(clients, o.stall)
                time.sleep(max(0.0, until - time.monotonic()))
            finally:
                close(clients)
        return WorkloadResult({"failed": float(o.connections - self._accepted() + before)})

    @contextlib.contextmanager
    def _stalled(self) -> Iterator[None]:
        if self._nginx is None:
            yield
            return
        process = self._nginx.process
        assert process is not None, "it was set up"
        process.send_all(signal.SIGSTOP)
        try:
            yield
        finally:
            process.send_all(signal.SIGCONT)

    def _accepted(self) -> int:
        """All so far, with those that wait to be."""
        if self._nginx is None:
            self._drained += drain(self._listener)
            return self._drained
        # accepted in their order: the connection that asks how many they were comes last, once there is room
        time.sleep(0.05)
        return int(self._nginx.counters()["accepts"])


class ConnectRate(_Listening):
    """One after the other, each closed by the client, which has to remember it for a minute."""

    name = "connect-rate"
    about = "connects one after the other, closed by the client at once"
    Options = RateOptions
    metrics = metric_table(Metric("connects", "", "higher"))

    def run(self, site: Site, seed: int) -> WorkloadResult:
        """Connect and close until the time is over."""
        self.listener.setblocking(True)
        self.listener.settimeout(2.0)
        until = time.monotonic() + self.options.seconds

        def one() -> bool:
            with socket.socket() as client:
                # closing below waits for nobody; the server's end closes after ours, which keeps its port
                client.settimeout(2.0)
                try:
                    client.connect((site.address, PORT))
                except OSError as e:
                    if e.errno != errno.EADDRNOTAVAIL:
                        raise
                    return False
                server, _ = self.listener.accept()
                client.shutdown(socket.SHUT_WR)
                with server:
                    server.settimeout(2.0)
                    server.recv(1)
            return True

        def loop() -> int:
            done = 0
            while time.monotonic() < until:
                if one():
                    done += 1
                else:
                    time.sleep(0.01)
            return done

        return WorkloadResult({"connects": float(namespace.inside(site.client, loop))})


class HalfOpen(_Listening):
    """Clients that mean it, while others leave theirs half open."""

    name = "half-open"
    about = "connects, while many others were begun and never completed"
    Options = HalfOpenOptions
    NET = ipaddress.IPv4Network("198.19.0.0/16")
    """Whom the others seem to be: addresses for benchmarks (RFC 2544), routed to where they are dropped."""
    metrics = metric_table(Metric("failed", "", "lower", zero_is_best=True))

    def open(self, site: Site, stack: contextlib.ExitStack) -> None:
        """Listen, and know a way to the others."""
        if site.server is None or site.client is None:
            what = "half-open connections are only begun between namespaces of our own"
            raise Error("ND-104-31", what, at=self.name, fix="Use a bench of namespaces")
        super().open(site, stack)
        gateway = _address(site)
        # without a way to them the server would take each attempt back at once
        program_output(
            find("ip", "iproute2"), "-n", site.server, "route", "replace", str(self.NET), "via", gateway
        )

    def run(self, site: Site, seed: int) -> WorkloadResult:
        """Begin and leave, then connect."""
        o = self.options
        namespace.inside(site.client, lambda: flood(site.address, o.half_open, seed))
        time.sleep(0.05)
        clients = begin(site, o.connections)
        try:
            done = connected(clients, o.wait)
        finally:
            close(clients)
            drain(self.listener)
        return WorkloadResult({"failed": float(o.connections - done)})


def listen(site: Site, backlog: int = BACKLOG) -> socket.socket:
    """A listening socket of the server."""

    def make() -> socket.socket:
        made = socket.socket()
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind((site.address, PORT))
        made.listen(backlog)
        return made

    return namespace.inside(site.server, make)


def begin(site: Site, count: int) -> list[socket.socket]:
    """Begin connects without waiting for any."""

    def start() -> list[socket.socket]:
        made: list[socket.socket] = []
        try:
            for _ in range(count):
                one = socket.socket(socket.AF_INET, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
                made.append(one)
                error = one.connect_ex((site.address, PORT))
                if error not in (0, errno.EINPROGRESS):
                    break
        except OSError as e:
            close(made)
            what = f"{len(made)} sockets are all that could be made: {e.strerror}"
            raise Error("ND-92-01", what, fix="Allow more open files: ulimit -n") from e
        return made

    return namespace.inside(site.client, start)


def connected(clients: list[socket.socket], wait: float) -> int:
    """How many connects succeed within a time."""
    until = time.monotonic() + wait
    with contextlib.closing(select.epoll()) as poll:
        waiting = {one.fileno(): one for one in clients}
        for number in waiting:
            poll.register(number, select.EPOLLOUT)
        done = 0
        while waiting and (left := until - time.monotonic()) > 0:
            for number, _ in poll.poll(left):
                poll.unregister(number)
                one = waiting.pop(number)
                done += one.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == 0
        return done


def drain(listener: socket.socket) -> int:
    """Accept all that wait to be; how many they were."""
    listener.setblocking(False)
    taken = 0
    with contextlib.suppress(BlockingIOError):
        while True:
            listener.accept()[0].close()
            taken += 1
    return taken


def close(clients: list[socket.socket]) -> None:
    """End connections at once, leaving nothing to remember (SO_LINGER 0 resets)."""
    for one in clients:
        with contextlib.suppress(OSError):
            one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        one.close()


def flood(address: str, count: int, seed: int) -> None:
    """Begin so many connections from as many addresses, and complete none."""
    draw = random.Random(seed)
    to = socket.inet_aton(address)
    with socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW) as raw:
        for n in range(count):
            source = socket.inet_aton(str(HalfOpen.NET[1 + n % (HalfOpen.NET.num_addresses - 2)]))
            raw.sendto(syn(source, to, draw.randrange(1024, 65536), PORT, draw.getrandbits(32)), (address, 0))


def syn(source: bytes, to: bytes, sport: int, dport: int, number: int) -> bytes:
    """An IPv4 packet that begins a connection (RFC 9293 section 3.1); the kernel fills in IP's checksum."""
    options = struct.pack("!BBH", 2, 4, 1460)
    head = struct.pack("!HHIIBBHHH", sport, dport, number, 0, (5 + 1) << 4, 0x02, 64240, 0, 0) + options
    pseudo = source + to + struct.pack("!BBH", 0, socket.IPPROTO_TCP, len(head))
    check = checksum(pseudo + head)
    head = head[:16] + struct.pack("!H", check) + head[18:]
    ip = struct.pack(
        "!BBHHHBBH4s4s", 0x45, 0, 20 + len(head), 0, 0x4000, 64, socket.IPPROTO_TCP, 0, source, to
    )
    return ip + head


def checksum(data: bytes) -> int:
    """The Internet checksum (RFC 1071)."""
    total: int = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def _address(site: Site) -> str:
    """The client's address, as the server sees it."""

    def own_address() -> str:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.connect((site.address, 9))
            return str(probe.getsockname()[0])

    return namespace.inside(site.client, own_address)
