"""TCP connections that stay open through a chain while something happens to it, and what became of them."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from dataclasses import dataclass

from netdyno.switch.chain import layout, transit
from netdyno.switch.chain.lab import ChainLab
from netdyno.switch.chain.steering import CLIENT, SERVER
from netdyno.system import namespace

SIZE = 16
"""Bytes of a message: its number, in decimal."""
PAUSE = 0.005
"""Seconds between an answer and the next message."""
PATIENCE = 20.0
"""Seconds within which an answer must come; TCP sends again until then."""


@dataclass(frozen=True)
class ConnectionReport:
    """A connection after its end."""

    messages: int
    """Messages that were echoed in order."""
    longest: float
    """Longest time between a message and its echo, seconds."""
    lost: str
    """How it was lost; empty: it was not."""


class Connections:
    """So many TCP connections from client to server. Each sends a numbered message after every echo."""

    def __init__(self, lab: ChainLab, count: int, port: int) -> None:
        self._stop = threading.Event()
        address = (layout.addresses(lab.chain).server, port)
        server, client = lab.network.namespace(SERVER), lab.network.namespace(CLIENT)
        self._reports: list[ConnectionReport] = []
        self._listener = namespace.inside(server, lambda: socket.create_server(("", port), backlog=count))
        self._sockets: list[socket.socket] = []
        try:
            for _ in range(count):
                made = namespace.inside(client, lambda: socket.create_connection(address, PATIENCE))
                echo, _ = self._listener.accept()
                echo.settimeout(PATIENCE)
                self._sockets += [made, echo]
        except BaseException:
            self._close()
            raise
        echoes = [threading.Thread(target=_echo, args=(one,), daemon=True) for one in self._sockets[1::2]]
        self._threads = [threading.Thread(target=self._talk, args=(one,)) for one in self._sockets[::2]]
        for thread in (*echoes, *self._threads):
            thread.start()

    def finish(self) -> list[ConnectionReport]:
        """Have each send a last message and await its echo, then close all."""
        self._stop.set()
        for thread in self._threads:
            thread.join()
        self._close()
        return self._reports

    def _close(self) -> None:
        for one in (*self._sockets, self._listener):
            one.close()

    def _talk(self, made: socket.socket) -> None:
        count, longest, lost, last = 0, 0.0, "", False
        while not last:
            last = self._stop.wait(PAUSE)
            message, began = b"%0*d" % (SIZE, count), time.monotonic()
            try:
                made.sendall(message)
                echoed = _exactly(made)
            except OSError as e:
                lost = str(e) or type(e).__name__
                break
            if echoed != message:
                lost = f"{echoed!r} came back instead of {message!r}" if echoed else "the server closed it"
                break
            count, longest = count + 1, max(longest, time.monotonic() - began)
        self._reports.append(ConnectionReport(count, longest, lost))


def _exactly(made: socket.socket) -> bytes:
    found = b""
    while len(found) < SIZE and (part := made.recv(SIZE - len(found))):
        found += part
    return found


def _echo(made: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := made.recv(4096):
            made.sendall(data)


@dataclass(frozen=True)
class DatagramReport:
    """Datagrams that were sent one after the other by each of several senders."""

    sent: int
    lost: int
    """Without an echo within `GONE` and the time that packets take."""
    longest: float
    """Longest time until an echo, seconds."""


GONE = 3.0
"""Seconds after which a datagram without an echo is lost, beyond the time that packets take."""


class Datagrams:
    """Senders of numbered UDP datagrams. Each awaits the echo before the next: no queue can overflow."""

    def __init__(self, lab: ChainLab, port: int, count: int = 4) -> None:
        self._stop = threading.Event()
        self._address = (layout.addresses(lab.chain).server, port)
        server, client = lab.network.namespace(SERVER), lab.network.namespace(CLIENT)
        self._reports: list[DatagramReport] = []
        self._server = namespace.inside(server, _datagram_socket)
        self._server.bind(("", port))
        self._clients = [namespace.inside(client, _datagram_socket) for _ in range(count)]
        for one in self._clients:
            one.settimeout(GONE + transit.awaited(lab))
        self._echo = threading.Thread(target=self._answer)
        self._threads = [threading.Thread(target=self._talk, args=(one,)) for one in self._clients]
        for thread in (self._echo, *self._threads):
            thread.start()

    def finish(self) -> DatagramReport:
        """Stop sending, and add up what all senders saw."""
        self._stop.set()
        for thread in self._threads:
            thread.join()
        self._echo.join()
        for one in (*self._clients, self._server):
            one.close()
        found = self._reports
        return DatagramReport(
            sum(one.sent for one in found), sum(one.lost for one in found), max(one.longest for one in found)
        )

    def _answer(self) -> None:
        self._server.settimeout(0.1)
        while any(thread.is_alive() for thread in self._threads) or not self._stop.is_set():
            with contextlib.suppress(OSError):
                data, sender = self._server.recvfrom(SIZE)
                self._server.sendto(data, sender)

    def _talk(self, made: socket.socket) -> None:
        sent, lost, longest = 0, 0, 0.0
        while not self._stop.wait(PAUSE / 5):
            message, began = b"%0*d" % (SIZE, sent), time.monotonic()
            sent += 1
            try:
                made.sendto(message, self._address)
                while made.recv(SIZE) != message:
                    continue
                longest = max(longest, time.monotonic() - began)
            except OSError:
                lost += 1
        self._reports.append(DatagramReport(sent, lost, longest))


def _datagram_socket() -> socket.socket:
    return socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
