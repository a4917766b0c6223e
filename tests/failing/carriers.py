"""What carries messages: TCP, UDP and ICMP sockets, in any network namespace."""

from __future__ import annotations

import contextlib
import ctypes
import heapq
import itertools
import os
import socket
import ssl
import struct
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from failing.behaviour import Behaviour
from failing.dialects import Dialect

PAUSE = 0.2
"""Before each answer over TCP: hundreds of loops that only wait for answers run beside each other in one program,
and where they ask for more than it can do, the last to be heard may have waited for longer than a run."""
CLONE_NEWNET = 0x40000000
SO_RCVBUFFORCE = 33


@contextlib.contextmanager
def inside(namespace: str | None) -> Iterator[None]:
    """Sockets that this thread makes are of this network namespace."""
    if namespace is None:
        yield
        return
    libc = ctypes.CDLL(None, use_errno=True)
    before = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
    there = os.open(Path("/run/netns") / namespace, os.O_RDONLY)
    try:
        if libc.setns(there, CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), f"setns to {namespace}")
        yield
    finally:
        libc.setns(before, CLONE_NEWNET)
        os.close(there)
        os.close(before)


class Running:
    """A server that runs until it is left."""

    port = 0
    tls: ssl.SSLContext | None = None
    authority: Path | None = None
    """File of who signed its certificate."""

    def __init__(
        self,
        behaviour: Behaviour,
        dialect: Dialect,
        address: str,
        namespace: str | None = None,
    ):
        self.behaviour, self.dialect, self.address, self.namespace = (
            behaviour,
            dialect,
            address,
            namespace,
        )
        self.messages = 0
        """Messages of the load that came."""
        self.faults: list[Exception] = []
        """What went wrong with the server itself."""
        self._over = threading.Event()
        self._threads: list[threading.Thread] = []

    def __enter__(self) -> Running:
        with inside(self.namespace):
            self.open()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self.shut()
        for thread in self._threads:
            thread.join(10)

    def open(self) -> None:
        """Make the sockets and begin."""

    def shut(self) -> None:
        """Wake up what waits on them."""

    def thread(self, work: Any, *arguments: Any) -> None:
        """Have something done beside."""

        def guarded() -> None:
            try:
                work(*arguments)
            # clients break off as they like, and the sockets are shut under us at the end
            except (ConnectionError, ssl.SSLError, TimeoutError):
                pass
            except Exception as e:
                if not self._over.is_set():
                    self.faults.append(e)

        one = threading.Thread(target=guarded, daemon=True)
        self._threads.append(one)
        one.start()

    def over(self, seconds: float) -> bool:
        """Whether the end came within this time."""
        return self._over.wait(seconds)


# ---- connections


class Connection:
    """A client's connection."""

    def __init__(self, server: Tcp, sock: socket.socket, number: int):
        self.server, self.sock, self.number, self.messages = server, sock, number, 0
        self.ended = False

    def send(self, data: bytes) -> None:
        """Send it."""
        if data and not self.ended:
            self.sock.sendall(data)

    def later(self, seconds: float, data: bytes) -> None:
        """Send it after a while."""

        def work() -> None:
            if not self.server.over(seconds):
                # the client may be gone
                with contextlib.suppress(OSError):
                    self.send(data)

        self.server.thread(work)

    def close(self) -> None:
        """Close in good order."""
        self.ended = True
        with contextlib.suppress(OSError):
            self.sock.shutdown(socket.SHUT_RDWR)

    def half_close(self) -> None:
        """Close our way only."""
        with contextlib.suppress(OSError):
            self.sock.shutdown(socket.SHUT_WR)

    def reset(self) -> None:
        """Break it off: a socket closed without lingering sends RST."""
        self.ended = True
        with contextlib.suppress(OSError):
            self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            # a reader that waits in the kernel holds the socket: the RST leaves when its thread closes it
            self.sock.shutdown(socket.SHUT_RD)

    def vanish(self, seconds: float) -> None:
        """Break off all connections of the server."""
        self.server.vanish(seconds)


class Tcp(Running):
    """A server of connections, a thread each."""

    def open(self) -> None:
        """Listen."""
        self.connections: list[Connection] = []
        self.number = 0
        self.listen(0)

    def listen(self, port: int) -> None:
        """Listen on this port, or any."""
        self.listener = socket.create_server((self.address, port), backlog=64)
        self.port = self.listener.getsockname()[1]
        self.thread(self._accept, self.listener)

    def _accept(self, listener: socket.socket) -> None:
        with listener, contextlib.suppress(OSError):
            while True:
                sock, _ = listener.accept()
                self.number += 1
                self.thread(self._serve, sock, self.number)

    def _serve(self, sock: socket.socket, number: int) -> None:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if self.tls:
            sock = self.tls.wrap_socket(sock, server_side=True)
        one = Connection(self, sock, number)
        self.connections.append(one)
        with sock:
            self.behaviour.accepted(one)
            data = b""
            while not one.ended and (more := sock.recv(65536)):
                data += more
                while not one.ended and (found := self.dialect(data)):
                    message, used = found
                    data = data[used:]
                    if message.greeting:
                        self.behaviour.greeted(one, message)
                    else:
                        time.sleep(PAUSE)
                        self.messages += 1
                        one.messages += 1
                        self.behaviour.answer(one, message)

    def shut(self) -> None:
        """Close all."""
        with contextlib.suppress(OSError):
            self.listener.shutdown(socket.SHUT_RDWR)
        for one in self.connections:
            one.close()

    def vanish(self, seconds: float) -> None:
        """Break everything off, and listen again after a while."""
        self.listener.shutdown(socket.SHUT_RDWR)
        for one in self.connections:
            one.reset()

        def back() -> None:
            if not self.over(seconds):
                with inside(self.namespace):
                    self.listen(self.port)

        self.thread(back)


# ---- datagrams


class Later:
    """What is done after a while, by one thread for all: a thread each would be thousands, and none of them on time."""

    def __init__(self) -> None:
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = itertools.count()
        self._changed = threading.Condition()
        self._begun = False

    def put(self, seconds: float, what: Callable[[], None]) -> None:
        """Do it then."""
        with self._changed:
            heapq.heappush(self._due, (time.monotonic() + seconds, next(self._numbers), what))
            self._changed.notify()
            if not self._begun:
                self._begun = True
                threading.Thread(target=self._work, daemon=True).start()

    def _work(self) -> None:
        while True:
            with self._changed:
                while not self._due or self._due[0][0] > time.monotonic():
                    self._changed.wait(self._due[0][0] - time.monotonic() if self._due else None)
                what = heapq.heappop(self._due)[2]
            what()


LATER = Later()


class Sender:
    """Where datagrams come from."""

    def __init__(self, server: Udp, address: Any, number: int):
        self.server, self.address, self.number, self.messages = (
            server,
            address,
            number,
            0,
        )

    def send(self, data: bytes, *, elsewhere: bool = False) -> None:
        """Send it, from our address or from another one."""
        with contextlib.suppress(OSError):
            (self.server.other if elsewhere else self.server.sock).sendto(data, self.address)

    def later(self, seconds: float, data: bytes) -> None:
        """Send it after a while."""
        LATER.put(seconds, lambda: self.send(data))

    def close(self) -> None:
        """There is no connection."""

    half_close = reset = close

    def vanish(self, seconds: float) -> None:
        """There is none to break off."""


def roomy(one: socket.socket, address: str) -> socket.socket:
    """Bound, with room for all that a run sends: where the server gets no CPU for seconds, nothing is lost but by its doing."""
    one.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 16 << 20)
    one.bind((address, 0))
    return one


class Udp(Running):
    """A server of datagrams."""

    sock: socket.socket
    other: socket.socket
    """The same host by another address or port."""

    def open(self) -> None:
        """Listen."""
        self.sock, self.other = self._socket(), self._socket()
        self.port = self.sock.getsockname()[1]
        self.thread(self._serve)

    def _socket(self) -> socket.socket:
        return roomy(socket.socket(socket.AF_INET, socket.SOCK_DGRAM), self.address)

    def message(self, data: bytes) -> bytes:
        """What of a packet is the message."""
        return data

    def _serve(self) -> None:
        self.senders: dict[Any, Sender] = {}
        self.sock.settimeout(0.2)
        with self.sock, self.other:
            while not self._over.is_set():
                try:
                    data, address = self.sock.recvfrom(65536)
                except TimeoutError:
                    continue
                found = self.dialect(self.message(data))
                if found is None:
                    continue
                sender = self.senders.setdefault(address, Sender(self, address, len(self.senders) + 1))
                self.messages += 1
                sender.messages += 1
                self.behaviour.answer(sender, found[0])


class Icmp(Udp):
    """A host that answers pings itself; its kernel must not (`net.ipv4.icmp_echo_ignore_all`)."""

    def open(self) -> None:
        """Hear what comes to the address."""
        self.sock, self.other = self._raw(self.address), self._raw("")
        self.thread(self._serve)

    @staticmethod
    def _raw(address: str) -> socket.socket:
        return roomy(socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP), address)

    def message(self, data: bytes) -> bytes:
        """What is behind the IPv4 header."""
        return data[(data[0] & 15) * 4 :]
