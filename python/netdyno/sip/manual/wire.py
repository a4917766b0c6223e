"""The connection to a SIP server: UDP, TCP or TLS, one message at a time, with a deadline."""

from __future__ import annotations

import socket
import ssl
import time
from collections import deque
from pathlib import Path

from netdyno.errors import Error
from netdyno.sip.ladder.framing import START, Framer
from netdyno.sip.uri import Server

DATAGRAM = 65_535
PORTS = {"udp": 5060, "tcp": 5060, "tls": 5061}


class Wire:
    """A socket that is connected to the server."""

    def __init__(
        self,
        server: Server,
        timeout: float,
        ca: Path | None = None,
        insecure: bool = False,
        source: str | None = None,
    ) -> None:
        self.transport = server.transport
        self.host, port = server.host.strip("[]"), server.port or PORTS[server.transport]
        self._address: tuple[object, ...] = ()
        kind = socket.SOCK_DGRAM if server.transport == "udp" else socket.SOCK_STREAM
        self._framer, self._ready = Framer(), deque[bytes]()
        at = f"{server.host}:{port}"
        try:
            family, _, _, _, address = socket.getaddrinfo(self.host, port, type=kind)[0]
        except OSError as e:
            raise Error("ND-92-03", f"{server.host} cannot be resolved: {e}", at="URI") from e
        self._address = address
        self.socket = socket.socket(family, kind)
        try:
            self.socket.settimeout(timeout)
            if source:
                self.socket.bind((source, 0))
            self.socket.connect(address)
            if server.transport == "tls":
                self.socket = _context(ca, insecure).wrap_socket(self.socket, server_hostname=self.host)
        except ssl.SSLError as e:
            self.socket.close()
            fix = "Give the CA's certificate with --cacert, or --insecure for a test server"
            raise Error("ND-92-04", f"TLS with the server failed: {e.reason or e}", at=at, fix=fix) from e
        except OSError as e:
            self.socket.close()
            what = f"the server cannot be reached over {server.transport}: {e.strerror or e}"
            raise Error("ND-91-31", what, at=at, fix="Check address, port and transport") from e

    @property
    def local(self) -> str:
        """Our address and port, as in URIs."""
        return _party(self.socket.getsockname())

    @property
    def remote(self) -> str:
        """The server's."""
        return _party(self._address)

    @property
    def reliable(self) -> bool:
        """Whether nothing has to be sent again."""
        return self.transport != "udp"

    def send(self, data: bytes) -> None:
        """One message."""
        self.socket.settimeout(5.0)
        try:
            self.socket.sendall(data)
        except ConnectionRefusedError:
            # the refusal of an earlier datagram: this one was not sent
            self.socket.sendall(data)

    def receive(self, until: float) -> bytes | None:
        """The next message, or none by then."""
        while not self._ready:
            left = until - time.monotonic()
            if left <= 0:
                return None
            self.socket.settimeout(left)
            try:
                data = self.socket.recv(DATAGRAM)
            except TimeoutError:
                return None
            except ConnectionRefusedError:
                # nobody listens there now; it is sent again in time (RFC 3261 section 8.1.3.1)
                continue
            if self.reliable:
                if not data:
                    raise ConnectionError("the server closed the connection")
                self._ready.extend(self._framer.messages(data))
                if self._framer.dead:
                    raise ConnectionError("the server sent what is no SIP")
            elif START.match(data):
                self._ready.append(data)
        return self._ready.popleft()

    def close(self) -> None:
        """No more."""
        self.socket.close()


def _party(address: tuple[object, ...]) -> str:
    host, port = str(address[0]), address[1]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _context(ca: Path | None, insecure: bool) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=str(ca) if ca else None)
    except (OSError, ssl.SSLError) as e:
        raise Error("ND-104-20", f"the CA certificate cannot be read: {e}", at="--cacert") from e
    if insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context
