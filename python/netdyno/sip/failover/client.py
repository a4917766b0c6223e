"""A client that fails over: a request goes to the next server where one is silent, refuses or is unavailable.

RFC 3263 section 4.3: a server has failed where its transport reports an error, where it does not answer in
time, or where it answers 503. Requests are sent again over UDP meanwhile (RFC 3261 section 17.1.2).
"""

from __future__ import annotations

import heapq
import itertools
import random
import socket
import ssl
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from netdyno.errors import Error
from netdyno.sip.failover.links import Links
from netdyno.sip.failover.servers import Server, order
from netdyno.sip.manual import exchange
from netdyno.sip.manual.compose import Draft, branch, contact, request, via
from netdyno.sip.manual.exchange import Account
from netdyno.sip.manual.message import SipMessage, uri_of

REQUESTS = {"options": "OPTIONS", "register": "REGISTER", "call": "INVITE"}
UNAVAILABLE = 503
STALL = 0.01
"""Seconds that the client itself may be late; more is noted."""
RINGS = 32.0
"""Seconds that a call may ring: a server that told so has not failed."""
ACKS_MAX = 10_000
"""Calls whose ACK is sent again when their 200 comes again."""


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
    dropped: bool = False
    """A call that was answered, and whose BYE no server took."""

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
    request: str = "options"
    """What is asked for: one of `REQUESTS`."""
    user: str = "netdyno"
    """Who asks, and who is registered."""
    to: str | None = None
    """Who is called; none: the user."""
    account: Account | None = None
    """What challenges are answered with."""
    expires: int = 60
    """Seconds that a registration lasts."""
    hold: float = 0.0
    """Seconds from ACK to BYE."""


@dataclass
class _Transaction:
    attempt: Attempt
    server: Server
    local: str
    order: list[Server]
    message: SipMessage
    until: float
    gap: float
    challenges: int = 0
    """Challenges answered so far."""
    quiet: bool = False
    """A provisional response came, or the transport is reliable: it is not sent again."""


class Client:
    """Sends requests at a rate to the servers of a domain."""

    def __init__(
        self,
        setting: Setting,
        servers: Sequence[Server],
        seed: int = 0,
        source: str | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self.setting, self.servers, self._rng = setting, servers, random.Random(seed)
        self.attempts: list[Attempt] = []
        self.stalls: list[tuple[float, float]] = []
        """When this client was held up: from when it was due to go on, until it did."""
        self._links = Links(source, tls, setting.domain)
        self._open: dict[str, _Transaction] = {}
        self._timers: list[tuple[float, str]] = []
        self._hangups: list[tuple[float, int, _Transaction, SipMessage]] = []
        self._acks: OrderedDict[str, SipMessage] = OrderedDict()
        self._failed: dict[Server, float] = {}
        self._numbers = itertools.count()
        for server in servers:
            _check(server, source)
        self._start = time.monotonic()

    @property
    def now(self) -> float:
        """Seconds after the start."""
        return time.monotonic() - self._start

    def close(self) -> None:
        """No more."""
        self._links.close()

    def run(self, at: Sequence[tuple[float, Callable[[], None]]] = ()) -> list[Attempt]:
        """All requests, until each is answered or failed; `at`: what is done meanwhile, and when."""
        self._start = time.monotonic()
        count = max(1, round(self.setting.rate * self.setting.duration))
        events = sorted(at, key=lambda one: one[0])
        sent = 0
        while sent < count or self._open or self._hangups:
            while events and events[0][0] <= self.now:
                events.pop(0)[1]()
            while sent < count and sent / self.setting.rate <= self.now:
                self._begin(sent / self.setting.rate)
                sent += 1
            self._expire()
            due = [sent / self.setting.rate] if sent < count else []
            due += [timed[0][0] for timed in (events, self._timers, self._hangups) if timed]
            until = max(self.now, min(due, default=self.now))
            ready = list(self._links.wait(until - self.now))
            if self.now > until + STALL:
                self.stalls.append((until, self.now))
            for server, messages in ready:
                if messages is None:
                    self._refused(server)
                for data in messages or ():
                    self._take(server, SipMessage.read(data))
        return self.attempts

    def _begin(self, due: float) -> None:
        attempt = Attempt(due)
        self.attempts.append(attempt)
        setting, domain = self.setting, self.setting.domain
        sender = f"sip:{setting.user}@{domain}"
        method = REQUESTS[setting.request]
        to = f"sip:{setting.to or setting.user}@{domain}"
        draft = {
            "OPTIONS": Draft(method, f"sip:{domain}", sender, f"sip:{domain}"),
            "REGISTER": Draft(method, f"sip:{domain}", sender, sender, expires=setting.expires),
            "INVITE": Draft(method, to, sender, to, sdp=True),
        }[method]
        self._try(attempt, self._order(), lambda server, local: request(draft, server.transport, local))

    def _order(self) -> list[Server]:
        now = self.now
        return order(self.servers, self._rng, lambda server: self._failed.get(server, -1.0) > now)

    def _try(self, attempt: Attempt, way: list[Server], make: Callable[[Server, str], SipMessage]) -> None:
        """Send a request to the first of these servers."""
        ends = attempt.answered is not None
        while way:
            server, way = way[0], way[1:]
            if not ends:
                attempt.tried.append(server)
            try:
                local = self._links.local(server)
            except OSError:
                self._avoid(server)
                continue
            now, setting = self.now, self.setting
            until = now + setting.timeout
            if self._send(_Transaction(attempt, server, local, way, make(server, local), until, setting.t1)):
                return
            self._avoid(server)
        if ends:
            attempt.dropped = True
        else:
            attempt.failed = True

    def _send(self, one: _Transaction) -> bool:
        """Whether a transaction has begun."""
        one.quiet = one.server.transport != "udp"
        if not self._say(one.server, one.message):
            return False
        self._open[one.message.branch] = one
        self._wake(one)
        return True

    def _wake(self, one: _Transaction) -> None:
        at = one.until if one.quiet else min(one.until, self.now + one.gap)
        heapq.heappush(self._timers, (at, one.message.branch))

    def _say(self, server: Server, message: SipMessage) -> bool:
        """Whether it was sent."""
        for _ in range(2):
            try:
                self._links.send(server, message.data())
                return True
            except ConnectionRefusedError:
                # that was the refusal of an earlier datagram, which this call was told of; it was not sent
                self._refused(server)
            except OSError:
                self._links.drop(server)
                self._refused(server)
                return False
        return False

    def _avoid(self, server: Server) -> None:
        self._failed[server] = self.now + self.setting.avoid

    def _refused(self, server: Server) -> None:
        """Nobody listens there: all that was sent there goes to the next server."""
        self._avoid(server)
        for name in [name for name, one in self._open.items() if one.server == server]:
            self._next(name)

    def _next(self, name: str) -> None:
        """The next server gets it, with another branch and without the credentials for this one."""
        one = self._open.pop(name, None)
        if one is None:
            return
        self._avoid(one.server)
        self._try(one.attempt, one.order, partial(_moved, one.message))

    def _expire(self) -> None:
        while self._hangups and self._hangups[0][0] <= self.now:
            _, _, call, bye = heapq.heappop(self._hangups)
            others = [one for one in self._order() if one != call.server]
            self._try(call.attempt, [call.server, *others], partial(_moved, bye))
        while self._timers and self._timers[0][0] <= self.now:
            _, name = heapq.heappop(self._timers)
            one = self._open.get(name)
            if one is None:
                continue
            if one.until <= self.now:
                self._next(name)
                continue
            if not one.quiet:
                one.gap = one.gap * 2 if one.message.method == "INVITE" else min(one.gap * 2, 4.0)
                if not self._say(one.server, one.message):
                    self._next(name)
            if name in self._open:
                self._wake(one)

    def _take(self, server: Server, message: SipMessage) -> None:
        if (ack := self._acks.get(message.branch)) is not None and message.method == "INVITE":
            # its ACK was lost (RFC 3261 section 13.2.2.4)
            self._say(server, ack)
            return
        one = self._open.get(message.branch)
        if one is None or one.server != server or message.method != one.message.method:
            return
        if message.status < 200:
            if message.method == "INVITE":
                one.quiet = True
            if message.status > 100:
                one.until = self.now + RINGS
            return
        if message.method == "INVITE" and message.status >= 300:
            self._say(server, exchange.ack_failure(one.message, message))
        if message.status == UNAVAILABLE:
            self._next(message.branch)
            return
        del self._open[message.branch]
        self._failed.pop(server, None)
        if message.status in (401, 407) and one.challenges < exchange.TRIES and self.setting.account:
            again = exchange.answered(
                one.message, message, self.setting.account, one.server.transport, one.local
            )
            if again is not None:
                until = self.now + self.setting.timeout
                if not self._send(replace(one, message=again, until=until, challenges=one.challenges + 1)):
                    self._try(one.attempt, one.order, partial(_moved, again))
                return
        if message.method == "BYE":
            # 481: the server that took over knows nothing of the call, which has ended with that
            one.attempt.dropped = message.status >= 300 and message.status != 481
            return
        one.attempt.answered, one.attempt.status = self.now, message.status
        if message.method == "INVITE" and message.status < 300:
            self._answered(one, message)

    def _answered(self, one: _Transaction, answer: SipMessage) -> None:
        """A call is answered: ACK, and BYE when it has lasted."""
        transport, local = one.server.transport, one.local
        ack = exchange.in_dialog(one.message, answer, "ACK", transport, local)
        self._say(one.server, ack)
        self._acks[one.message.branch] = ack
        if len(self._acks) > ACKS_MAX:
            self._acks.popitem(last=False)
        bye = exchange.in_dialog(one.message, answer, "BYE", transport, local)
        heapq.heappush(self._hangups, (self.now + self.setting.hold, next(self._numbers), one, bye))


def _moved(message: SipMessage, server: Server, local: str) -> SipMessage:
    """A request for another server."""
    made = SipMessage(message.start, list(message.fields), message.body)
    made.put("Via", via(server.transport, local, branch()))
    for name in ("Authorization", "Proxy-Authorization"):
        made.drop(name)
    if made.get("Contact"):
        made.put("Contact", contact(uri_of(made.get("From")), server.transport, local))
    return made


def _check(server: Server, source: str | None) -> None:
    """A way leads there from the source; nothing is sent."""
    family = socket.AF_INET6 if ":" in server.address else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as one:
        try:
            if source:
                one.bind((source, 0))
            one.connect((server.address, server.port))
        except OSError as e:
            raise Error("ND-91-31", f"the server cannot be reached: {e.strerror}", at=str(server)) from e
