"""The largest packets that client and server send, both ways: what drops packets by their size is named."""

from __future__ import annotations

import contextlib
import secrets
import socket
import time
from collections.abc import Iterator
from dataclasses import replace

from netdyno.switch.chain import layout
from netdyno.switch.chain.lab import ChainLab
from netdyno.switch.chain.sight import TUNNEL, Fault
from netdyno.switch.chain.steering import CLIENT, SERVER, Direction
from netdyno.switch.chain.talk import PROTOCOLS, Talk
from netdyno.switch.chain.transit import QUIET
from netdyno.switch.tunnel import IP_MTU_DISCOVER, PROBE, SIDES

_DISCOVER = {4: (socket.IPPROTO_IP, IP_MTU_DISCOVER), 6: (socket.IPPROTO_IPV6, 23)}
"""IP_MTU_DISCOVER and IPV6_MTU_DISCOVER (Linux): datagrams have DF, whatever a router said before."""
_HEAD = {4: 28, 6: 48}
"""Bytes of the headers of IP and UDP."""
_AT_ONCE = 8
"""Sizes that are tried at once."""
_PAUSE = 0.003
"""Seconds between them: TCP makes one segment of what it has to send at once."""
_LEAST = 200
"""Size at which the search begins, bytes."""


class Largest(Talk):
    """A datagram of the largest size with DF, or one full segment of TCP, each way after a small one."""

    size = 0
    """Bytes of the packet."""

    def _datagrams(self, client: socket.socket, server: socket.socket, to: tuple[str, int]) -> None:
        for one in (client, server):
            one.setsockopt(*_DISCOVER[self.version], PROBE)
        room = self.size - _HEAD[self.version]
        there, back = ((self.mark + secrets.token_hex(4).encode() + way).ljust(room, b".")
                       for way in (b" there", b" back"))  # fmt: skip
        reply = self._met(client, server, to, self.mark + secrets.token_hex(4).encode())
        self._waits = SERVER, f"datagram of {self.size:,} bytes"
        client.sendto(there, to)
        reply(back)
        _expect(server, there)
        self._waits = CLIENT, f"datagram of {self.size:,} bytes"
        _expect(client, back)

    def _message(self, made: socket.socket) -> bytes:
        return self.mark.ljust(made.getsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG), b".")


class _Sizes(Largest):
    """Packets of several sizes in one direction, from the least on."""

    def __init__(self, of: Talk, way: Direction) -> None:
        super().__init__(of.protocol, of.port, version=of.version)
        self.dscp, self.patience = of.dscp, of.patience
        self._way = way
        self.sizes: list[int] = []
        self.most = 0
        """The largest that came when it was had last."""

    def up_to(self, lab: ChainLab, largest: int) -> int:
        """The largest size that passes, below one that does not; 0: it is not known."""
        low, high, self.size = _LEAST, largest, largest
        while high - low > 1:
            self.sizes = list(range(low, high, -(-(high - low) // _AT_ONCE)))
            self.most = 0
            self.run(lab)
            if self.most < low:
                return 0
            high = next((one for one in self.sizes if one > self.most), high)
            low = self.most
        return low

    def _datagrams(self, client: socket.socket, server: socket.socket, to: tuple[str, int]) -> None:
        for one in (client, server):
            one.setsockopt(*_DISCOVER[self.version], PROBE)
        began = time.monotonic()
        reply = self._met(client, server, to, self.mark + secrets.token_hex(4).encode())
        reply(self.mark)
        client.recv(2048)
        wait = QUIET + 2 * (time.monotonic() - began)
        head = _HEAD[self.version]
        for size in self.sizes * 2:
            data = self.mark.ljust(size - head, b".")
            if self._way == "forward":
                client.sendto(data, to)
            else:
                reply(data)
        for data in _all(server if self._way == "forward" else client, wait):
            self.most = max(self.most, len(data) + head)

    def _stream(self, client: socket.socket, server: socket.socket, to: tuple[str, int]) -> None:
        server.listen(1)
        began = time.monotonic()
        client.connect(to)
        accepted, _ = server.accept()
        with accepted:
            wait = QUIET + 2 * (time.monotonic() - began)
            sender, receiver = (client, accepted) if self._way == "forward" else (accepted, client)
            head = self.size - sender.getsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG)
            sender.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for size in self.sizes:
                sender.sendall(bytes(size - head))
                time.sleep(_PAUSE)
            came = sum(map(len, _all(receiver, wait)))
        # what comes behind a lost segment waits for it
        for size in self.sizes:
            came -= size - head
            if came < 0:
                break
            self.most = size


def largest(lab: ChainLab, of: Talk) -> Largest | None:
    """The conversation that tries the sizes of another; None: it has none that could be followed."""
    if of.protocol not in PROTOCOLS or not of.answered or of.relays:
        return None
    made = Largest(of.protocol, of.port, version=of.version)
    made.dscp, made.size = of.dscp, layout.host_mtu(lab.chain)
    return made


def explained(lab: ChainLab, of: Largest, way: Direction, fault: Fault) -> Fault:
    """A loss of the largest packet, with the largest that passes. What a tunnel loses is told of that."""
    if fault.certain:
        return fault
    most = _Sizes(of, way).up_to(lab, of.size)
    passes = f"up to {most:,} bytes pass" if most else "no size is known to pass"
    what = f"hosts send packets of up to {of.size:,} bytes, and {passes}: of the largest, {fault.what}"
    rule = fault.rule
    if lab.chain.lines() and rule and (rule.line or rule.source.host in SIDES):
        return replace(fault, what=what, rule=None, host=TUNNEL)
    return replace(fault, what=what)


def _expect(made: socket.socket, wanted: bytes) -> None:
    while made.recv(4096) != wanted:
        continue


def _all(made: socket.socket, wait: float) -> Iterator[bytes]:
    """What comes until nothing comes for so long."""
    made.settimeout(wait)
    with contextlib.suppress(TimeoutError):
        while data := made.recv(4096):
            yield data
