"""Several datagrams of one flow at once: where one overtakes another, at a function or on the way to it."""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import socket
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise

from netdyno.switch.chain.lab import ChainLab
from netdyno.switch.chain.sight import Fault, Key, Sighting
from netdyno.switch.chain.steering import CLIENT, SERVER, Step
from netdyno.switch.chain.strays import asks_for
from netdyno.switch.chain.talk import Talk

MANY = 8
"""Datagrams at once."""
_NUMBER = re.compile(rb" number (\d+)$")
_ORDERS = ("reorder", "overtaking")
"""Ways of a bad path that change the order of packets."""


class Burst(Talk):
    """So many numbered datagrams of a flow each way, after one. On a lossy path, some of so many are lost."""

    def run(self, lab: ChainLab) -> None:
        """Have it; what is lost is told of other conversations."""
        super().run(lab)
        self.failed = None

    def _datagrams(self, client: socket.socket, server: socket.socket, to: tuple[str, int]) -> None:
        mark = self.mark + secrets.token_hex(4).encode()
        reply = self._met(client, server, to, mark)
        # a switch in the kernel asks for the rules of a flow once each way, and packets behind wait there
        reply(mark + b" met")
        client.settimeout(self.patience)
        client.recv(2048)
        _send_at_once(lambda data: client.sendto(data, to), mark + b" there")
        _send_at_once(reply, mark + b" back")
        for end, host in ((server, SERVER), (client, CLIENT)):
            self._waits = host, f"{MANY} datagrams that were sent at once"
            until = time.monotonic() + self.patience
            came: set[bytes] = set()
            while len(came) < MANY:
                end.settimeout(max(0.001, until - time.monotonic()))
                came.add(end.recv(2048))

    def disordered(self, steps: Sequence[Step], seen: Mapping[Key, Sequence[Sighting]]) -> Fault | None:
        """RFC 4737 section 3: a packet is reordered if one that was sent later came before."""
        return overtaken(steps, seen)


def overtaken(steps: Sequence[Step], seen: Mapping[Key, Sequence[Sighting]]) -> Fault | None:
    """The first point of a path at which numbered datagrams are in another order than they were sent in."""
    known = {int(found[1]): places for one, places in seen.items() if (found := _number(one))}
    for before, step in pairwise(one for one in steps if not one.copy):
        order = _order(before, known), _order(step, known)
        sent, came = ([one for one in of if one in order[0] and one in order[1]] for of in order)
        for first, then in zip(sent, came, strict=True):
            if first != then:
                what = f"{step} datagram {then} of a flow before datagram {first} (RFC 4737)"
                return Fault(what, step.rule, "" if step.rule else before.port.host)
    return None


def _number(one: Key) -> re.Match[bytes] | None:
    return _NUMBER.search(one[1]) if len(one) == 2 and isinstance(one[1], bytes) else None


def _order(step: Step, known: Mapping[int, Sequence[Sighting]]) -> list[int]:
    """Numbers of datagrams by the time at which they were at a point first."""
    times = {
        number: min((one.at for one in places if (one.port, one.sends) == (step.port, step.sends)), default=0)
        for number, places in known.items()
    }
    return sorted((number for number, at in times.items() if at), key=times.__getitem__)


def burst(lab: ChainLab, of: Talk) -> Burst | None:
    """The conversation that tries the order of datagrams of another's class; None: there is none to keep."""
    if of.protocol != "udp" or not of.answered or of.relays or asks_for(lab, _ORDERS):
        return None
    made = Burst(of.protocol, of.port, version=of.version)
    made.dscp, made.may_lose = of.dscp, True
    return made


def _send_at_once(send: Callable[[bytes], object], mark: bytes) -> None:
    with _one_processor():
        for number in range(1, MANY + 1):
            send(mark + b" number %d" % number)


@contextlib.contextmanager
def _one_processor() -> Iterator[None]:
    """Have this thread stay where it is: each processor has a queue of its own for what it sends."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(before)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)
