"""Probes the paths of a running chain, and moves its classes as the policy says.

A host at the client's switch sends a numbered frame into each path every `interval`. The far switch sends it
back by the port that it came in by, through any tunnel of the path both times. The kernel's time stamp of the
answer counts, so that a busy program delays none.
"""

from __future__ import annotations

import contextlib
import select
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from netdyno.switch.chain.capture import SO_TIMESTAMPNS, nanoseconds
from netdyno.switch.chain.lab import ChainLab
from netdyno.switch.chain.policy import Health, State, choose
from netdyno.switch.chain.steering import PROBE_TYPE, probe_address
from netdyno.switch.tunnel import PROBER
from netdyno.system import namespace

_FORM = struct.Struct("!BIQ")
"""Of a probe: the number of its path, its own, and when it was sent, nanoseconds."""
SOURCE = bytes.fromhex("026e64000300")


@dataclass(frozen=True)
class PathChange:
    """A path that became better or worse. Times: the monotonic clock, s."""

    path: str
    state: State
    why: str
    at: float


@dataclass(frozen=True)
class Move:
    """A class that was moved to another path."""

    traffic: str
    source: str
    to: str
    decided: float
    confirmed: float
    """When the switches had confirmed the new rules."""


class PathMonitor:
    """Watches all paths, and programs the chain. It begins when it is entered."""

    def __init__(self, lab: ChainLab) -> None:
        assert lab.chain.wan is not None, "it has paths"
        self.lab, self.wan = lab, lab.chain.wan
        self.changes: list[PathChange] = []
        self.moves: list[Move] = []
        self._health = {name: Health(self.wan) for name in self.wan.paths}
        self._condition = threading.Condition()
        self._moving = threading.Lock()
        self._error: BaseException | None = None
        self._stop = threading.Event()
        # rules take time to write, in which paths are probed
        self._threads = [threading.Thread(target=self._guarded, args=(of,), daemon=True)
                         for of in (self._probe, self._follow)]  # fmt: skip

    def __enter__(self) -> PathMonitor:
        for one in self._threads:
            one.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        with self._condition:
            self._condition.notify_all()
        for one in self._threads:
            one.join()

    def states(self) -> dict[str, State]:
        """Of all paths, now."""
        return {name: one.state for name, one in self._health.items()}

    def said(self) -> Mapping[str, str]:
        """Of each path, why it is as it is."""
        return {name: one.why for name, one in self._health.items()}

    def wait(self, wanted: Callable[[], bool], seconds: float) -> bool:
        """Until something is so; whether it is, in time. Raises what stopped the monitor."""
        with self._condition:
            self._condition.wait_for(lambda: self._error or wanted(), seconds)
            if self._error:
                raise self._error
            return wanted()

    @contextlib.contextmanager
    def still(self) -> Iterator[None]:
        """No class is moved meanwhile; paths are probed."""
        with self._moving:
            yield

    # ------------------------------------------------------------------------------ the threads

    def _guarded(self, work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as e:  # noqa: BLE001 - handed to who waits
            with self._condition:
                self._error = e
                self._condition.notify_all()

    def _probe(self) -> None:
        with namespace.inside(self.lab.network.namespace(PROBER), _open) as made:
            self._watch(made)

    def _follow(self) -> None:
        while not self._stop.is_set():
            with self._moving:
                self._move()
            with self._condition:
                self._condition.wait_for(lambda: self._stop.is_set() or self._wanted() != self.lab.by, 0.1)

    def _watch(self, made: socket.socket) -> None:
        lines = self.lab.chain.lines()
        head = [
            bytes.fromhex(probe_address(one).replace(":", "")) + SOURCE + struct.pack("!H", PROBE_TYPE)
            for one in lines
        ]
        number, due = 0, time.monotonic()
        while not self._stop.is_set():
            while (left := due - time.monotonic()) > 0:
                if select.select([made], [], [], left)[0]:
                    self._receive(made, [one.name for one in lines])
            self._receive(made, [one.name for one in lines])
            self._judge()
            number, due = number + 1, max(due + self.wan.seconds, time.monotonic())
            for line, first in zip(lines, head, strict=True):
                frame = first + _FORM.pack(line.number, number, time.time_ns())
                # a queue that is full for a moment takes none, and then none was sent
                with contextlib.suppress(BlockingIOError):
                    made.send(frame.ljust(60, b"\0"))
                    self._health[line.name].sent(number, time.monotonic())

    def _receive(self, made: socket.socket, names: list[str]) -> None:
        while True:
            try:
                frame, ancillary, _, about = made.recvmsg(256, 64)
            except BlockingIOError:
                return
            if about[2] == socket.PACKET_OUTGOING or frame[6:12] != SOURCE or len(frame) < 14 + _FORM.size:
                continue
            line, number, sent = _FORM.unpack_from(frame, 14)
            stamp = next((data for _, kind, data in ancillary if kind == SO_TIMESTAMPNS), None)
            if stamp is not None and line < len(names):
                self._health[names[line]].answered(number, (nanoseconds(stamp) - sent) / 1e9)

    def _judge(self) -> None:
        now = time.monotonic()
        changed = [
            PathChange(name, one.state, one.why, now) for name, one in self._health.items() if one.judge(now)
        ]
        if changed:
            with self._condition:
                self.changes += changed
                self._condition.notify_all()

    def _wanted(self) -> dict[str, str]:
        """Paths of all classes by the policy; those that they have until all paths are known."""
        now, states = dict(self.lab.by), self.states()
        if not all(one.known for one in self._health.values()):
            return now
        return {traffic: choose(self.lab.chain.order(traffic), path, states) for traffic, path in now.items()}

    def _move(self) -> None:
        before, wanted, now = dict(self.lab.by), self._wanted(), time.monotonic()
        if wanted == before:
            return
        self.lab.take(wanted)
        confirmed = time.monotonic()
        with self._condition:
            self.moves += [
                Move(traffic, before[traffic], to, now, confirmed)
                for traffic, to in wanted.items()
                if to != before[traffic]
            ]
            self._condition.notify_all()


def _open() -> socket.socket:
    made = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
    try:
        made.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
        made.bind(("eth0", PROBE_TYPE))
        made.setblocking(False)
    except BaseException:
        made.close()
        raise
    return made
