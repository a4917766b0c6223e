"""Connections to the servers of a domain: a UDP socket, or a connection over TCP or TLS, without blocking."""

from __future__ import annotations

import errno
import selectors
import socket
import ssl
from collections.abc import Iterator
from dataclasses import dataclass, field

from netdyno.errors import Error
from netdyno.sip.failover.servers import Server
from netdyno.sip.ladder.framing import Framer

DATAGRAM = 65_535
BACKLOG_MAX = 1 << 20
"""Bytes that wait for a server which reads nothing; with more it has failed."""


@dataclass
class _Link:
    socket: socket.socket
    connecting: bool = False
    shaking: bool = False
    """Over TLS: its handshake is not over."""
    unsent: bytearray = field(default_factory=bytearray)
    framer: Framer = field(default_factory=Framer)


class Links:
    """What is sent to servers, and what comes from them. A connection opens with the first message.

    Over TLS servers show a certificate for `domain` (RFC 5922 section 7.2).
    """

    def __init__(
        self, source: str | None = None, tls: ssl.SSLContext | None = None, domain: str | None = None
    ) -> None:
        self._source, self._tls, self._domain = source, tls or ssl.create_default_context(), domain
        self._selector = selectors.DefaultSelector()
        self._links: dict[Server, _Link] = {}

    def close(self) -> None:
        """No more."""
        for server in list(self._links):
            self.drop(server)
        self._selector.close()

    def drop(self, server: Server) -> None:
        """Close what leads there."""
        if (link := self._links.pop(server, None)) is not None:
            self._selector.unregister(link.socket)
            link.socket.close()

    def local(self, server: Server) -> str:
        """Our address and port on the way there, as in Via. OSError: it cannot be opened."""
        host, port = self._open(server).socket.getsockname()[:2]
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"

    def send(self, server: Server, data: bytes) -> None:
        """One message. OSError: the server has failed."""
        link = self._open(server)
        if server.transport == "udp":
            link.socket.send(data)
            return
        if len(link.unsent) + len(data) > BACKLOG_MAX:
            raise OSError(errno.ENOBUFS, "it reads nothing")
        link.unsent += data
        self._flush(server, link)

    def wait(self, seconds: float) -> Iterator[tuple[Server, list[bytes] | None]]:
        """Messages that came meanwhile; none in place of a list: the server refuses, or has closed."""
        for key, mask in self._selector.select(seconds):
            server: Server = key.data
            link = self._links.get(server)
            if link is None or link.socket is not key.fileobj:
                continue
            try:
                yield server, self._ready(server, link, mask)
            except OSError:
                if server.transport != "udp":
                    self.drop(server)
                yield server, None

    def _open(self, server: Server) -> _Link:
        if (link := self._links.get(server)) is not None:
            return link
        family = socket.AF_INET6 if ":" in server.address else socket.AF_INET
        datagrams = server.transport == "udp"
        one = socket.socket(family, socket.SOCK_DGRAM if datagrams else socket.SOCK_STREAM)
        link = _Link(one, connecting=not datagrams)
        try:
            one.setblocking(False)
            if self._source:
                one.bind((self._source, 0))
            result = one.connect_ex((server.address, server.port))
            if result not in (0, errno.EINPROGRESS):
                raise OSError(result, errno.errorcode.get(result, "it cannot be reached"))
            if server.transport == "tls":
                link.shaking = True
        except OSError:
            one.close()
            raise
        mask = selectors.EVENT_READ if datagrams else selectors.EVENT_READ | selectors.EVENT_WRITE
        self._selector.register(one, mask, server)
        self._links[server] = link
        return link

    def _flush(self, server: Server, link: _Link) -> None:
        if link.connecting or link.shaking:
            return
        try:
            while link.unsent:
                del link.unsent[: link.socket.send(link.unsent)]
        except (BlockingIOError, ssl.SSLWantWriteError, ssl.SSLWantReadError):
            pass
        mask = selectors.EVENT_READ | (selectors.EVENT_WRITE if link.unsent else 0)
        self._selector.modify(link.socket, mask, server)

    def _ready(self, server: Server, link: _Link, mask: int) -> list[bytes]:
        if server.transport == "udp":
            return _datagrams(link.socket)
        if link.connecting:
            if refused := link.socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
                raise OSError(refused, "it refuses")
            link.connecting = False
            if link.shaking:
                self._wrap(server, link)
        if link.shaking and not self._shake(server, link):
            return []
        if mask & selectors.EVENT_WRITE:
            self._flush(server, link)
        found: list[bytes] = []
        while mask & selectors.EVENT_READ:
            try:
                data = link.socket.recv(DATAGRAM)
            except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
                break
            if not data or link.framer.dead:
                raise ConnectionError("it closed, or sent what is no SIP")
            found.extend(link.framer.messages(data))
        return found

    def _wrap(self, server: Server, link: _Link) -> None:
        """Begin TLS on a connection that is up."""
        self._selector.unregister(link.socket)
        try:
            link.socket = self._tls.wrap_socket(
                link.socket, do_handshake_on_connect=False, server_hostname=self._domain
            )
        finally:
            mask = selectors.EVENT_READ | selectors.EVENT_WRITE
            self._selector.register(link.socket, mask, server)

    def _shake(self, server: Server, link: _Link) -> bool:
        """Whether the TLS handshake is over. OSError: it failed."""
        assert isinstance(link.socket, ssl.SSLSocket)
        mask = selectors.EVENT_READ
        try:
            link.socket.do_handshake()
            link.shaking = False
            self._flush(server, link)
            return True
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLCertVerificationError as e:
            # no outage: nobody trusts this server, however long they wait
            fix = f"Give the CA's certificate with --cacert; it must be for {self._domain} (RFC 5922)"
            raise Error(
                "ND-92-04", f"TLS with the server failed: {e.verify_message}", at=str(server), fix=fix
            ) from e
        except ssl.SSLWantWriteError:
            mask |= selectors.EVENT_WRITE
        self._selector.modify(link.socket, mask, server)
        return False


def _datagrams(one: socket.socket) -> list[bytes]:
    found: list[bytes] = []
    while True:
        try:
            found.append(one.recv(DATAGRAM))
        except BlockingIOError:
            return found
        except OSError:
            # a refusal is told once: what came before it is read first
            if not found:
                raise
            return found
