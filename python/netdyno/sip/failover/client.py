"""A client that fails over: a request goes to the next server where one is silent, refuses or is unavailable.

RFC 3263 section 4.3: a server has failed where its transport reports an error, where it does not answer in
time, or where it answers 503. Requests are sent again over UDP meanwhile (RFC 3261 section 17.1.2).
"""

from __future__ import annotations

import heapq
import random
import selectors
import socket
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from netdyno.errors import Error
from netdyno.sip.failover.servers import Server, order
from netdyno.sip.manual.compose import Draft, branch, request, via
from netdyno.sip.manual.message import SipMessage

DATAGRAM = 65_535
UNAVAILABLE = 503
STALL = 0.01
"""Seconds that the client itself may be late; more is noted."""


@dataclass
class Attempt:
    """One request of a user, over all servers that it was sent to."""

    due: float
    """Seconds after the start."""
    tried: list[Server] = field(default_factory=list)
    answered: float | None = None
    """When a final response came that is no 503, seconds after the start."""
    status: int = 0
    failed: bool = False
    """No server is left to try."""

    @property
    def served(self) -> bool:
        """Whether it was answered with 2xx."""
        return 200 <= self.status < 300 and self.answered is not None


@dataclass(frozen=True)
class Setting:
    """How a client asks."""

    domain: str
    rate: float
    """Requests per second."""
    duration: float
    """Seconds."""
    timeout: float
    """Seconds until a silent server is given up and the next is tried."""
    avoid: float
    """Seconds in which a server that failed is tried last."""
    t1: float = 0.5


@dataclass
class _Transaction:
    attempt: Attempt
    server: Server
    order: list[Server]
    data: bytes
    until: float
    gap: float


class Client:
    """Sends requests at a rate to the servers of a domain."""

    def __init__(
        self, setting: Setting, servers: Sequence[Server], seed: int = 0, source: str | None = None
    ) -> None:
        self.setting, self.servers, self._rng = setting, servers, random.Random(seed)
        self.attempts: list[Attempt] = []
        self.stalls: list[tuple[float, float]] = []
        """When this client was held up: from when it was due to go on, until it did."""
        self._selector = selectors.DefaultSelector()
        self._sockets: dict[Server, socket.socket] = {}
        self._open: dict[str, _Transaction] = {}
        self._timers: list[tuple[float, str]] = []
        self._failed: dict[Server, float] = {}
        self._start = time.monotonic()
        for server in servers:
            family = socket.AF_INET6 if ":" in server.address else socket.AF_INET
            one = socket.socket(family, socket.SOCK_DGRAM)
            self._sockets[server] = one
            try:
                if source:
                    one.bind((source, 0))
                one.connect((server.address, server.port))
            except OSError as e:
                self.close()
                raise Error("ND-91-31", f"the server cannot be reached: {e.strerror}", at=str(server)) from e
            one.setblocking(False)
            self._selector.register(one, selectors.EVENT_READ, server)

    @property
    def now(self) -> float:
        """Seconds after the start."""
        return time.monotonic() - self._start

    def close(self) -> None:
        """No more."""
        self._selector.close()
        for one in self._sockets.values():
            one.close()

    def run(self, at: Sequence[tuple[float, Callable[[], None]]] = ()) -> list[Attempt]:
        """All requests, until each is answered or failed; `at`: what is done meanwhile, and when."""
        self._start = time.monotonic()
        count = max(1, round(self.setting.rate * self.setting.duration))
        events = sorted(at, key=lambda one: one[0])
        sent = 0
        while sent < count or self._open:
            while events and events[0][0] <= self.now:
                events.pop(0)[1]()
            while sent < count and sent / self.setting.rate <= self.now:
                self._begin(sent / self.setting.rate)
                sent += 1
            self._expire()
            due = [sent / self.setting.rate] if sent < count else []
            due += [events[0][0]] if events else []
            due += [self._timers[0][0]] if self._timers else []
            until = max(self.now, min(due, default=self.now))
            ready = self._selector.select(until - self.now)
            if self.now > until + STALL:
                self.stalls.append((until, self.now))
            for key, _ in ready:
                self._read(key.data)
        return self.attempts

    def _begin(self, due: float) -> None:
        attempt = Attempt(due)
        self.attempts.append(attempt)
        now = self.now
        way = order(self.servers, self._rng, lambda server: self._failed.get(server, -1.0) > now)
        self._try(attempt, way)

    def _try(self, attempt: Attempt, way: list[Server]) -> None:
        """Send it to the first of these."""
        while way:
            server, way = way[0], way[1:]
            attempt.tried.append(server)
            local = self._sockets[server].getsockname()
            here = f"[{local[0]}]:{local[1]}" if ":" in local[0] else f"{local[0]}:{local[1]}"
            domain = self.setting.domain
            draft = Draft("OPTIONS", f"sip:{domain}", f"sip:netdyno@{domain}", f"sip:{domain}")
            made, name = request(draft, "udp", here), branch()
            made.put("Via", via("udp", here, name))
            now = self.now
            one = _Transaction(attempt, server, way, made.data(), now + self.setting.timeout, self.setting.t1)
            if self._say(one):
                self._open[name] = one
                heapq.heappush(self._timers, (min(one.until, now + one.gap), name))
                return
            self._failed[server] = now + self.setting.avoid
        attempt.failed = True

    def _say(self, one: _Transaction) -> bool:
        """Whether it was sent."""
        sock = self._sockets[one.server]
        for _ in range(2):
            try:
                sock.send(one.data)
                return True
            except ConnectionRefusedError:
                # that was the refusal of an earlier datagram, which this call was told of; it was not sent
                self._refused(one.server)
            except OSError:
                return False
        return False

    def _refused(self, server: Server) -> None:
        """Nobody listens there: all that was sent there goes to the next server."""
        self._failed[server] = self.now + self.setting.avoid
        for name in [name for name, one in self._open.items() if one.server == server]:
            self._next(name)

    def _next(self, name: str) -> None:
        one = self._open.pop(name, None)
        if one:
            self._failed[one.server] = self.now + self.setting.avoid
            self._try(one.attempt, one.order)

    def _expire(self) -> None:
        while self._timers and self._timers[0][0] <= self.now:
            _, name = heapq.heappop(self._timers)
            one = self._open.get(name)
            if one is None:
                continue
            if one.until <= self.now:
                self._next(name)
                continue
            one.gap = min(one.gap * 2, 4.0)
            if self._say(one) and name in self._open:
                heapq.heappush(self._timers, (min(one.until, self.now + one.gap), name))
            elif name in self._open:
                self._next(name)

    def _read(self, server: Server) -> None:
        while True:
            try:
                data = self._sockets[server].recv(DATAGRAM)
            except BlockingIOError:
                return
            except ConnectionRefusedError:
                self._refused(server)
                continue
            except OSError:
                return
            message = SipMessage.read(data)
            one = self._open.get(message.branch)
            if one is None or one.server != server or message.method != "OPTIONS" or message.status < 200:
                continue
            if message.status == UNAVAILABLE:
                self._next(message.branch)
                continue
            del self._open[message.branch]
            one.attempt.answered, one.attempt.status = self.now, message.status
            self._failed.pop(server, None)
