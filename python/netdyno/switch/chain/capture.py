"""Captures at all ports of a chain at once: frames that hosts send and receive, with the kernel's time."""

from __future__ import annotations

import select
import socket
import struct
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import NamedTuple

from netdyno.switch.chain.sight import SIGN, Key, Sighting, content, encapsulation, key, server_port, unread
from netdyno.switch.chain.steering import Port
from netdyno.switch.tunnel import unwrapped
from netdyno.system import namespace

SO_TIMESTAMPNS = 35
SOL_PACKET, PACKET_AUXDATA = 263, 8
TP_STATUS_VLAN_VALID, TP_STATUS_VLAN_TPID_VALID = 0x10, 0x40
ETH_P_ALL = 3
BUFFER = 1 << 20
THREADS = 32
"""That open and close sockets: the kernel takes 16 ms for each to end, most of it waiting."""
MOST = 200_000
"""Sightings that are kept at most."""


class Origin(NamedTuple):
    """Where a packet was seen first."""

    at: int
    port: Port
    sends: bool
    about: tuple[int, int, int] | None
    """Its protocol and ports there."""
    signed: bool = False
    """Whether it has the mark of a conversation."""


class Captures:
    """A socket at every port, from its making to its closing."""

    def __init__(
        self,
        ports: Sequence[Port],
        space: Callable[[str], str],
        tunnelled: Collection[Port] = (),
        copied: Mapping[str, Collection[Port]] | None = None,
        far: Mapping[Port, tuple[str, str]] | None = None,
    ) -> None:
        """`copied`: ports of which interfaces show copies, by what is behind the name of the interface.
        `far`: of ports that are captured at the other end of their link, its host and interface."""
        self._far = dict(far or {})
        self.seen: dict[Key, list[Sighting]] = defaultdict(list)
        self.senders: dict[Key, tuple[int, str, tuple[int, int, int] | None]] = {}
        """Of each packet, when and by which host it was sent first, and its protocol and ports there."""
        self.frames: dict[tuple[Key, Port], bytes] = {}
        """Of each packet, as it was at each port that sent it first."""
        self.every: dict[Key, list[Sighting]] = defaultdict(list)
        """As `seen`, of all time since its making."""
        self.origins: dict[Key, Origin] = {}
        """Where each packet was sent first, of all time."""
        self.unread: list[Sighting] = []
        """Frames with a mark of a conversation, in headers that are not read."""
        self.exact = True
        """Whether each packet is to be what was sent, and as often."""
        self.last = time.monotonic()
        self.lock = threading.Lock()
        self._count = self._kept = 0
        self._received: dict[Key, tuple[int, int, int] | None] = {}
        self._tunnelled = frozenset(tunnelled)
        self._sockets: dict[int, tuple[socket.socket, Port, bool | None]] = {}
        self._poll = select.epoll()
        self._stop, self._stopped = socket.socketpair()
        try:
            places: list[tuple[Port, str, bool | None]] = [(port, port.interface, None) for port in ports]
            for more, those in (copied or {}).items():
                places = [one for one in places if more or one[0] not in those]
                places += [(port, f"{port.interface}{more}", bool(more)) for port in those]
            with ThreadPoolExecutor(THREADS) as pool:
                for (port, _, sends), made in zip(
                    places, pool.map(partial(_opened, space), map(self._place, places)), strict=True
                ):
                    self._sockets[made.fileno()] = (made, port, sends)
                    self._poll.register(made.fileno(), select.EPOLLIN)
            self._poll.register(self._stopped.fileno(), select.EPOLLIN)
        except BaseException:
            self._release()
            raise
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _place(self, place: tuple[Port, str, bool | None]) -> tuple[str, str]:
        """Host and interface of a capture."""
        port, interface, _ = place
        return self._far.get(port, (port.host, interface))

    def of(self, one: Key) -> list[Sighting]:
        """Where a packet was seen until now."""
        with self.lock:
            return list(self.seen.get(one, ()))

    def sent_by(self, host: str) -> dict[Key, tuple[int, int, int] | None]:
        """Packets that a host was the first to send, with protocol and ports."""
        with self.lock:
            return {one: about for one, (_, by, about) in self.senders.items() if by == host}

    def sent_at(self, port: Port) -> dict[Key, tuple[int, int, int] | None]:
        """Packets that left by a port of a host, with protocol and ports where they were sent first."""
        with self.lock:
            return {one: self.senders[one][2] for one, seen in self.seen.items()
                    if any(s.sends and s.port == port for s in seen)}  # fmt: skip

    def new(self) -> dict[Key, Origin]:
        """Packets that are seen for the first time: where they were sent first, or received if nobody sent
        them."""
        with self.lock:
            found = {}
            for one, seen in self.seen.items():
                if len(self.every[one]) == len(seen):
                    first = min(seen, key=lambda s: s.at)
                    origin = self.origins.get(one)
                    if origin is None:
                        origin = Origin(first.at, first.port, False, self._received.get(one))
                    signed = first.content is not None and SIGN in first.content.payload
                    found[one] = origin._replace(signed=signed)
            return found

    def clear(self) -> None:
        """Forget what was seen, but for `every` and `origins`."""
        with self.lock:
            self.seen.clear()
            self.senders.clear()
            self.frames.clear()
            self.unread.clear()
            self._count = 0
            self.last = time.monotonic()

    def quiet(self, seconds: float, most: float) -> None:
        """Wait until nothing was seen for so long, or as long as is allowed."""
        until = time.monotonic() + most
        while time.monotonic() < min(until, self.last + seconds):
            time.sleep(0.01)

    def close(self) -> None:
        """End it."""
        self._stop.send(b"x")
        self._thread.join(5.0)
        self._release()

    def _release(self) -> None:
        self._poll.close()
        with ThreadPoolExecutor(THREADS) as pool:
            list(pool.map(socket.socket.close, [one for one, *_ in self._sockets.values()]))
        self._stop.close()
        self._stopped.close()

    def _read(self) -> None:
        while True:
            for number, _ in self._poll.poll():
                if number not in self._sockets:
                    return
                self._one(*self._sockets[number])

    def _one(self, made: socket.socket, port: Port, copy: bool | None) -> None:
        for _ in range(256):
            try:
                frame, ancillary, _, about = made.recvmsg(2048, 128)
            except (BlockingIOError, OSError):
                return
            kept = {(level, kind): data for level, kind, data in ancillary}
            # the kernel has taken the tag off
            frame = frame[:12] + vlan_tag(kept.get((SOL_PACKET, PACKET_AUXDATA), b"")) + frame[12:]
            outer, inner = "", frame
            if port in self._tunnelled:
                if (found := unwrapped(frame)) is None:
                    continue
                outer, inner = str(found[0]), found[1]
            known = key(inner)
            if known is None and not unread(inner):
                continue
            stamp = kept.get((socket.SOL_SOCKET, SO_TIMESTAMPNS))
            at = nanoseconds(stamp) if stamp else time.time_ns()
            outgoing = about[2] == socket.PACKET_OUTGOING
            if copy is not None and outgoing:
                continue
            sends = outgoing != (port in self._far) if copy is None else copy
            with self.lock:
                if self._count >= MOST:
                    continue
                self._count += 1
                self.last = time.monotonic()
                if known is None:
                    self.unread.append(Sighting(at, port, sends))
                    continue
                self._keep(
                    known, Sighting(at, port, sends, encapsulation(inner), outer, content(inner)), inner
                )
                if sends and copy is None:
                    self.frames.setdefault((known, port), frame)

    def _keep(self, known: Key, one: Sighting, inner: bytes) -> None:
        self.seen[known].append(one)
        if self._kept < MOST:
            self._kept += 1
            self.every[known].append(one)
        if not one.sends:
            if known not in self._received and known not in self.origins:
                self._received[known] = server_port(inner)
            return
        # sockets are read in no order of time
        if known not in self.senders or one.at < self.senders[known][0]:
            self.senders[known] = (one.at, one.port.host, server_port(inner))
        if known not in self.origins or one.at < self.origins[known].at:
            self.origins[known] = Origin(one.at, one.port, True, server_port(inner))


def _opened(space: Callable[[str], str], place: tuple[str, str]) -> socket.socket:
    return namespace.inside(space(place[0]), lambda: _open(place[1]))


def _open(interface: str) -> socket.socket:
    # without a protocol until it is bound: the kernel would wait for all its processors to forget the first
    made = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
    try:
        made.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
        made.setsockopt(SOL_PACKET, PACKET_AUXDATA, 1)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, BUFFER)
        made.bind((interface, ETH_P_ALL))
        made.setblocking(False)
    except BaseException:
        made.close()
        raise
    return made


def vlan_tag(data: bytes) -> bytes:
    """The VLAN tag of `struct tpacket_auxdata` as on the wire; empty: it has none."""
    if len(data) < 18 or not struct.unpack_from("I", data)[0] & TP_STATUS_VLAN_VALID:
        return b""
    tci, kind = struct.unpack_from("HH", data.ljust(20, b"\0"), 16)
    known = struct.unpack_from("I", data)[0] & TP_STATUS_VLAN_TPID_VALID
    return struct.pack("!HH", kind if known else 0x8100, tci)


def nanoseconds(data: bytes) -> int:
    """A time stamp of the kernel."""
    seconds, rest = struct.unpack("ll", data[: struct.calcsize("ll")])
    return int(seconds * 1_000_000_000 + rest)
