"""Which behaviour is tried with which protocol, and the right outcome of each."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from failing import dialects
from failing.behaviour import Behaviour, Healthy
from failing.carriers import Icmp, Running, Tcp, Udp
from failing.certified import Certified, Expired, OtherName, SelfSigned
from failing.closing_within import ClosingWithin
from failing.flipping import Flipping
from failing.for_others import OtherAddress, OtherClient, OtherEcho, OtherIdentifier
from failing.freezing import Freezing, FreezingInPart
from failing.garbage import Garbage
from failing.gone_and_back import GoneAndBack
from failing.half_closing import HalfClosing
from failing.lying import (
    ChunkTooLong,
    ChunkTooShort,
    ContentToHead,
    RemainingLength,
    TooLong,
    TooShort,
    Truncating,
)
from failing.nobody import Blackhole, Closed, NoRoute, Nowhere, Swallowed
from failing.refusing import RefusingClients, ServerError
from failing.resetting import Resetting
from failing.silent import Silent
from failing.slow import Late, Slow
from failing.twice import Twice
from failing.unaccepting import FullQueue, Unaccepting


@dataclass(frozen=True)
class Protocol:
    """How a group of devices speaks to a server."""

    name: str
    scheme: str
    model: Mapping[str, Any]
    dialect: dialects.Dialect
    carrier: type[Running] = Tcp
    url: tuple[str, ...] | None = None
    """Options that make the same of a URL; None: there is no such form, and an errors threshold judges."""
    confirmed: bool = True
    """Each message asks for an answer."""
    datagrams: bool = False
    """Each message stands for itself, and no connection is waited for."""


def _mqtt(name: str, qos: int, interval: str = "0s", version: str = "3.1.1") -> Protocol:
    model = {"mqtt": {"qos": qos, "interval": interval, "version": version}}
    url = ("--qos", str(qos), "--interval", interval) if version == "3.1.1" else None
    return Protocol(name, "mqtt", model, dialects.mqtt, url=url, confirmed=qos > 0)


ASK = [{"repeat": {"count": 0, "steps": [{"send": "ask {seq}\\n"}, {"expect": "ok\\n"}]}}]

HTTP = Protocol("HTTP", "http", {"http": {}}, dialects.http, url=())
HTTP_CLOSE = Protocol("HTTP (a connection each)", "http", {"http": {"keep_alive": False}}, dialects.http)
HTTP_PIPELINED = Protocol("HTTP (pipelined)", "http", {"http": {"pipelining": 4}}, dialects.http)
HTTP_POST = Protocol("HTTP (POST)", "http", {"http": {"method": "POST"}}, dialects.http)
HTTP_HEAD = Protocol("HTTP (HEAD)", "http", {"http": {"method": "HEAD"}}, dialects.http)
HTTPS = Protocol("HTTPS", "https", {"http": {}}, dialects.http, url=())
MQTT0 = _mqtt("MQTT QoS 0", 0, "50ms")
MQTT1 = _mqtt("MQTT QoS 1", 1)
MQTT2 = _mqtt("MQTT QoS 2", 2)
MQTT5 = _mqtt("MQTT 5.0 QoS 1", 1, version="5.0")
MQTTS = Protocol("MQTT over TLS", "mqtts", {"mqtt": {"interval": "0s"}}, dialects.mqtt, url=())
SCRIPT = Protocol(
    "script over TCP",
    "tcp",
    {"script": {"steps": ASK, "timeout": "60s"}},
    dialects.line,
)
UDP = Protocol(
    "UDP stream", "udp", {"stream": {"rate": "50/s", "timeout": "10s"}}, dialects.echo, Udp, ("--rate", "50/s"),
    datagrams=True,
)  # fmt: skip
SINK = Protocol(
    "UDP stream (`echo: false`)", "udp", {"stream": {"rate": "50/s", "echo": False}}, dialects.echo, Udp,
    confirmed=False, datagrams=True,
)  # fmt: skip
PING = Protocol(
    "ping", "ping", {"ping": {"interval": "20ms", "timeout": "10s"}}, dialects.icmp, Icmp, ("--interval", "20ms"),
    datagrams=True,
)  # fmt: skip

COAP = Protocol("CoAP", "coap", {"coap": {"interval": "50ms"}}, dialects.coap, Udp, datagrams=True)

FAST = {"reconnect": {"fixed": {"delay": "100ms"}}}


@dataclass(frozen=True)
class Case:
    """A behaviour and a protocol, and what a run of four devices against it must say."""

    server: Callable[[], Behaviour]
    protocol: Protocol
    shows: tuple[str, ...] = ()
    """Kinds of failures that are counted; others are not, but for those that may be."""
    may: tuple[str, ...] = ()
    """Kinds and counters that depend on who is first."""
    delivers: bool = True
    """Some messages are delivered."""
    counts: tuple[str, ...] = ()
    """Counters above zero that a good server leaves at zero."""
    check: str = ""
    """The built-in check that fails."""
    model: Mapping[str, Any] = field(default_factory=dict)
    """More parameters of the model."""
    carrier: type[Running] | None = None
    """In place of the protocol's."""
    note: str = ""
    """What a reader of the table should know."""

    @property
    def name(self) -> str:
        """Of its group: two cases are never alike."""
        more = " reconnect" if self.model else ""
        words = re.findall(r"\w+", f"{self.protocol.name}{more} {self.server().says}")
        return "-".join(words)[:60].rstrip("-")

    @property
    def exact(self) -> bool:
        """Each failure is that of a message, and none of a connection: sent = delivered + failed."""
        return (
            set(self.shows) <= {"unanswered"} and not self.may and (self.delivers or self.protocol.datagrams)
        )

    @property
    def bare(self) -> str:
        """The verdict where the profile has no thresholds: built-in checks can fail a run, and never pass it."""
        return "fail" if self.check else "none"

    @property
    def judged(self) -> str:
        """The verdict with `errors` (and, for a URL, `loss`) at most 0."""
        return "fail" if self.check or self.shows else "pass"


def _each(server: Callable[[], Behaviour], *protocols: Protocol, **more: Any) -> list[Case]:
    return [Case(server, protocol, **more) for protocol in protocols]


def _nothing(server: Callable[[], Behaviour], kinds: str, *protocols: Protocol, **more: Any) -> list[Case]:
    """Nothing is delivered, which no run can pass."""
    shows = tuple(kinds.split())
    return _each(server, *protocols, shows=shows, delivers=False, check="delivery", **more)


AGAIN = "an idle connection may be closed at any time: a GET is sent once more, and counted as `retried`"
UNCONFIRMED = "nothing asks for an answer: only the connection could fail"

CASES = [
    *_each(Healthy, HTTP, HTTP_CLOSE, HTTP_PIPELINED, MQTT1, MQTT2, MQTT5, SCRIPT, UDP, PING, COAP),
    *_each(Healthy, MQTT0, SINK, delivers=False),
    *_each(Certified, HTTPS, MQTTS),
    # ---- no answers
    *_nothing(Silent, "unanswered", HTTP, HTTP_CLOSE, HTTP_PIPELINED, MQTT1, MQTT2, MQTT5, SCRIPT, UDP, PING, COAP),
    *_nothing(Silent, "unanswered", MQTT0, note="the CONNECT asks for a CONNACK"),
    Case(Silent, SINK, delivers=False, note=UNCONFIRMED),
    *_nothing(Unaccepting, "unanswered", HTTP, MQTT1, SCRIPT, carrier=FullQueue),
    *_each(Freezing, HTTP, HTTP_CLOSE, HTTP_PIPELINED, MQTT1, MQTT2, MQTT5, SCRIPT, UDP, PING, COAP,
           shows=("unanswered",), check="stalls"),
    Case(Freezing, MQTT0, delivers=False, note=UNCONFIRMED),
    *_each(FreezingInPart, HTTP, MQTT1, SCRIPT, UDP, shows=("unanswered",), check="stalls"),
    *_nothing(Late, "unanswered", HTTP, MQTT1, SCRIPT, UDP, PING),
    # ---- connections that end
    *_each(Resetting, MQTT1, MQTT2, MQTT5, SCRIPT, HTTP_POST, shows=("reset",)),
    *_each(Resetting, HTTP, note=AGAIN),
    Case(Resetting, HTTP_PIPELINED, ("reset", "unanswered")),
    Case(Resetting, MQTT0, ("reset",), delivers=False),
    *_each(HalfClosing, HTTP_POST, MQTT1, SCRIPT, shows=("closed",)),
    *_each(HalfClosing, HTTP, note=AGAIN),
    *_each(ClosingWithin, HTTP, MQTT1, SCRIPT, shows=("closed",)),
    *_each(GoneAndBack, MQTT1, SCRIPT, HTTP_POST, shows=("reset",), may=("refused", "closed")),
    Case(GoneAndBack, MQTT1, ("reset",), ("refused", "closed"), model=FAST),
    # ---- lies
    *_nothing(TooLong, "unanswered", HTTP),
    *_each(TooShort, HTTP, shows=("protocol",)),
    *_each(ContentToHead, HTTP_HEAD, shows=("protocol",)),
    *_nothing(ChunkTooLong, "unanswered", HTTP),
    *_nothing(ChunkTooShort, "protocol", HTTP),
    *_nothing(RemainingLength, "protocol", MQTT1, MQTT2, MQTT5),
    *_nothing(partial(RemainingLength, "acknowledges with too long a remaining length", length=b"\x04"),
              "unanswered", MQTT1),
    *_nothing(partial(RemainingLength, "acknowledges with a remaining length of 256 MiB", length=b"\xff\xff\xff\x7f"),
              "protocol", MQTT1),
    *_nothing(Truncating, "unanswered", UDP, counts=("corrupted",)),
    # ---- answers that are not the right ones
    *_nothing(OtherIdentifier, "protocol", MQTT1, MQTT2, MQTT5),
    *_nothing(OtherClient, "unanswered", UDP, counts=("corrupted",)),
    *_nothing(OtherAddress, "unanswered", UDP, PING, COAP),
    *_nothing(OtherEcho, "unanswered", PING),
    *_nothing(partial(OtherEcho, "answers pings with another sequence number", at=6),
              "unanswered", PING, may=("corrupted",)),
    *_each(partial(Twice, datagrams=True), UDP, PING, COAP, counts=("duplicates",),
           note="each arrived; copies are counted apart"),
    *_each(Twice, HTTP, MQTT1, shows=("protocol",)),
    Case(Twice, SCRIPT, note="the second answer is taken for that of the next message: a script sees what it expects"),
    *_nothing(Flipping, "unanswered", UDP, counts=("corrupted",)),
    *_nothing(partial(Flipping, icmp=True), "unanswered", PING, counts=("corrupted",)),
    *_nothing(Flipping, "unanswered", SCRIPT),
    *_nothing(Flipping, "protocol", MQTT1),
    Case(Flipping, HTTP, note="bodies of responses are not compared"),
    *_nothing(Garbage, "protocol", HTTP, MQTT1, MQTT5),
    *_nothing(Garbage, "unanswered", SCRIPT),
    *_nothing(Garbage, "unanswered", UDP, COAP, counts=("corrupted",)),
    # ---- servers that say no
    *_nothing(ServerError, "rejected", HTTP),
    *_nothing(RefusingClients, "rejected", MQTT1, MQTT5),
    *_nothing(SelfSigned, "tls", HTTPS, MQTTS),
    *_nothing(Expired, "tls", HTTPS),
    *_nothing(OtherName, "tls", HTTPS),
    *_nothing(Closed, "refused", HTTP, MQTT1, SCRIPT, carrier=Nowhere),
    *_nothing(Closed, "refused", UDP, COAP, carrier=Nowhere, may=("unanswered",)),
    *_nothing(NoRoute, "unreachable", HTTP, MQTT1, carrier=Nowhere),
    *_nothing(NoRoute, "unreachable", UDP, PING, COAP, carrier=Nowhere, may=("unanswered",)),
    *_nothing(Blackhole, "unreachable", HTTP, carrier=Nowhere),
    *_nothing(Blackhole, "unreachable", UDP, PING, COAP, carrier=Nowhere, may=("unanswered",)),
    *_nothing(Swallowed, "unanswered", HTTP, UDP, PING, COAP, carrier=Nowhere),
    # ---- right, but late
    *_each(Slow, HTTP, MQTT1, SCRIPT, UDP, PING, COAP, note="not a failure: a threshold on the delay judges it"),
]  # fmt: skip


def _first(*servers: type[Behaviour]) -> list[Case]:
    """The first case of each."""
    return [next(case for case in CASES if isinstance(case.server(), kind)) for kind in servers]


URLS = [
    *(case for case in CASES if type(case.server()) in (Behaviour, Silent) and case.protocol.url is not None),
    *_first(
        Freezing,
        Resetting,
        GoneAndBack,
        ServerError,
        SelfSigned,
        Twice,
        Flipping,
        Closed,
        NoRoute,
        Swallowed,
    ),
]
"""Cases that are also run from a URL, each by itself."""

BARE = _first(
    Behaviour,
    Silent,
    Unaccepting,
    Freezing,
    Resetting,
    Twice,
    SelfSigned,
    Closed,
    Swallowed,
)
"""Cases that are also run from a profile without thresholds, each by itself."""


def _over_dpdk(case: Case) -> Case:
    """What shows no signature of ours is counted where frames are dropped, and with no group. Stalls are not measured."""
    if case.check == "stalls":
        return replace(case, check="")
    if isinstance(case.server(), (Garbage, OtherClient)):
        return replace(case, counts=(), may=(*case.may, *case.counts))
    return case


DPDK = [_over_dpdk(case) for case in CASES if case.protocol is UDP and not isinstance(case.server(), NoRoute)]
"""Cases that are run over DPDK too, from a port at the near end of the cable to the kernel at the far one."""
