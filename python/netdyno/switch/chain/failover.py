"""A function of a chain fails while datagrams pass: how long it takes to be detected, and what rules do."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal

from netdyno.errors import Error
from netdyno.switch.chain import layout
from netdyno.switch.chain import verify as verifying
from netdyno.switch.chain.lab import ChainLab
from netdyno.switch.chain.liveness import LivenessEvent, Monitor
from netdyno.switch.chain.proof import first_fault, proven
from netdyno.switch.chain.spec import REST, Chain
from netdyno.switch.chain.steering import CLIENT, SERVER
from netdyno.switch.chain.talk import dscp_of, port_of, set_dscp
from netdyno.switch.chain.verify import Verification
from netdyno.switch.chain.vnf.base import IN
from netdyno.system import namespace

How = Literal["stop", "port"]
FLOWS, GAP = 8, 0.005
"""Senders of datagrams, and seconds between two datagrams of each."""
UNDISTURBED = 0.5
"""Seconds before the failure and after each change."""
PATIENCE = 30.0
"""Seconds beyond the detection time within which the rules must have changed: a busy machine needs them."""


@dataclass(frozen=True)
class FailoverReport:
    """A failure, what was done about it, and proof of where packets went then."""

    host: str
    how: How
    on_failure: Literal["open", "closed"]
    failure: LivenessEvent
    detected: float
    """From the failure until it was detected, seconds."""
    confirmed: float
    """From the failure until the switch had confirmed the new rules, seconds."""
    sent: int
    """Datagrams of all senders."""
    lost: int
    """Without an echo."""
    outage: float | None
    """Longest time between two datagrams of a sender that came back, seconds; None: none did after it."""
    during: Verification
    """With the failed function."""
    restored: float | None = None
    """From the repair until the switch had confirmed the whole chain's rules, seconds; None: no repair."""
    after: Verification | None = None

    @property
    def first_fault(self) -> str:
        """What did not go as it is to; empty: all did."""
        if self.failure.result != "chain cut" and self.outage is None:
            return f"{self.host} failed, and no datagram got through after that"
        return first_fault({f"with {self.host} failed": self.during, "after the repair": self.after})

    def document(self) -> dict[str, Any]:
        """As JSON. Times in seconds."""
        return {
            "wrong": self.first_fault, "host": self.host, "how": self.how, "on_failure": self.on_failure,
            "cause": self.failure.cause, "result": self.failure.result, "detected": self.detected,
            "confirmed": self.confirmed, "restored": self.restored, "sent": self.sent, "lost": self.lost,
            "outage": self.outage,
            "during": self.during.document(), "after": self.after.document() if self.after else None,
        }  # fmt: skip


def chosen(chain: Chain, name: str) -> str:
    """The host of a function or replica that is to fail. Raises Error."""
    host = chain.instances(name)[0] if name in chain.vnfs else name
    if host not in chain.hosts():
        fix = f"There are: {', '.join(chain.hosts())}"
        raise Error("ND-104-82", f"there is no function {name[:80]!r}", at="--function", fix=fix)
    if chain.vnfs[chain.hosts()[host]].on_failure is None:
        fix = "Write `on_failure: open` or `on_failure: closed` in its description"
        raise Error("ND-104-82", f"the failure of {host} changes no rules", at="--function", fix=fix)
    return host


def run(
    lab: ChainLab,
    name: str,
    host: str,
    how: How,
    told: Callable[[str], None] = lambda _: None,
) -> FailoverReport:
    """Have a function fail, prove where packets go, repair it if that can be done, and prove the whole chain.

    Raises Error if the chain does not work before, or the failure is not detected.
    """
    proven(lab, name, told)
    on_failure = lab.chain.vnfs[lab.chain.hosts()[host]].on_failure
    assert on_failure is not None, "it is chosen"
    slack = PATIENCE + lab.chain.liveness.seconds * lab.chain.liveness.misses
    with Monitor(lab) as monitor:
        datagrams = NumberedDatagrams(lab)
        try:
            datagrams.await_echo(PATIENCE)
            time.sleep(UNDISTURBED)
            began = time.monotonic()
            _fail(lab, host, how)
            event = monitor.wait(lambda one: one.host == host and one.failed, slack)
            time.sleep(UNDISTURBED)
        finally:
            sent, lost, outage = datagrams.finish()
        if event is None:
            what = f"{host} was made to fail ({how}), and that was not detected within {slack:.1f} s"
            raise Error("ND-99-43", what, at=name, fix="Its program may forward still: look at its log")
        told(f"{host}: {event.cause}, {event.result}")
        during = verifying.verify(lab)
        repaired, restored, after = time.monotonic(), None, None
        if _repair(lab, host, how):
            again = monitor.wait(lambda one: one.host == host and not one.failed, slack)
            if again is None:
                what = f"{host} was repaired, and the chain was not restored within {slack:.1f} s"
                raise Error("ND-99-43", what, at=name, fix="Its program may not forward: look at its log")
            restored, after = again.confirmed - repaired, verifying.verify(lab)
    return FailoverReport(
        host, how, on_failure, event, event.detected - began, event.confirmed - began, sent, lost, outage,
        during, restored, after,
    )  # fmt: skip


def _fail(lab: ChainLab, host: str, how: How) -> None:
    if how == "port":
        lab.vnfs[host].run("ip", "link", "set", IN, "down")
    else:
        lab.vnfs[host].fail()


def _repair(lab: ChainLab, host: str, how: How) -> bool:
    if how == "port":
        lab.vnfs[host].run("ip", "link", "set", IN, "up")
        lab.vnfs[host].repair()
        return True
    return lab.vnfs[host].repair()


class NumberedDatagrams:
    """Senders of numbered datagrams that are echoed. They wait for no echo: what is lost stops none.

    They are of one class of traffic; `late` is for how long echoes may be on their way at least, seconds:
    those that took longer are awaited for as long.
    """

    def __init__(
        self, lab: ChainLab, traffic: str = REST, flows: int = FLOWS, late: float = UNDISTURBED / 4
    ) -> None:
        known = layout.addresses(lab.chain)
        to = (known.server, port_of(lab.chain, traffic))
        self._late, self._longest = late, 0.0
        self._stop, self._ended = threading.Event(), threading.Event()
        self._sent: list[list[float]] = [[] for _ in range(flows)]
        self._back: list[set[int]] = [set() for _ in range(flows)]
        # replicas share datagrams by addresses
        sources = [(known.more[at] if known.more else "", 0) for at in range(flows)]
        self._server = namespace.inside(lab.network.namespace(SERVER), lambda: _bound(("", to[1])))
        self._clients = [
            namespace.inside(lab.network.namespace(CLIENT), lambda source=source: _bound(source))  # type: ignore[misc]
            for source in sources
        ]
        for one in self._clients:
            one.connect(to)
        for one in (*self._clients, self._server):
            set_dscp(one, dscp_of(lab.chain, traffic))
        self._threads = [threading.Thread(target=work, daemon=True) for work in (self._echo, self._talk)]
        for thread in self._threads:
            thread.start()

    def await_echo(self, seconds: float) -> None:
        """Wait until one has come back, for so long at most: how long it took is known then."""
        until = time.monotonic() + seconds
        while not self._longest and time.monotonic() < until:
            time.sleep(GAP)

    @property
    def _awaited(self) -> float:
        """Seconds that an echo may be on its way: half as long again as the longest took."""
        return self._late + 1.5 * self._longest

    def finish(self) -> tuple[int, int, float | None]:
        """Datagrams sent and lost, and the longest time between two that came back, of any sender, seconds.

        None if a sender had none that came back among its last.
        """
        self._stop.set()
        for thread in self._threads:
            thread.join()
        for one in (*self._clients, self._server):
            one.close()
        sent = sum(map(len, self._sent))
        longest: float | None = 0.0
        for times, back in zip(self._sent, self._back, strict=True):
            came = [times[number] for number in sorted(back)]
            # echoes of all that was sent were awaited
            if not came or times[-1] - came[-1] > UNDISTURBED / 2:
                longest = None
            elif longest is not None:
                gaps = [b - a for a, b in pairwise(came)]
                longest = max([longest, *gaps])
        return sent, sent - sum(map(len, self._back)), longest

    def _echo(self) -> None:
        self._server.settimeout(0.1)
        while not self._ended.is_set():
            with contextlib.suppress(OSError):
                data, sender = self._server.recvfrom(64)
                self._server.sendto(data, sender)

    def _talk(self) -> None:
        while not self._stop.wait(GAP):
            for at, made in enumerate(self._clients):
                with contextlib.suppress(OSError):
                    made.send(b"%d" % len(self._sent[at]))
                    self._sent[at].append(time.monotonic())
            self._receive()
        # echoes that are on their way
        ended = time.monotonic()
        while time.monotonic() < ended + self._awaited:
            self._receive()
            time.sleep(GAP)
        self._ended.set()

    def _receive(self) -> None:
        for at, made in enumerate(self._clients):
            with contextlib.suppress(OSError):
                while True:
                    number = int(made.recv(64))
                    self._back[at].add(number)
                    self._longest = max(self._longest, time.monotonic() - self._sent[at][number])


def _bound(address: tuple[str, int]) -> socket.socket:
    made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    try:
        made.bind(address)
        made.setblocking(False)
    except BaseException:
        made.close()
        raise
    return made
