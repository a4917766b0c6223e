"""The connection to a SIP server: UDP or a stream or WebSocket, one message at a time, with a deadline."""

from __future__ import annotations

import secrets
import socket
import ssl
import time
from collections import deque
from contextlib import ExitStack
from pathlib import Path

from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidStatus
from websockets.sync.client import ClientConnection, connect
from websockets.typing import Subprotocol

from netdyno.errors import Error
from netdyno.sip.ladder.framing import START, Framer
from netdyno.sip.uri import SECURE, Server

DATAGRAM = 65_535
PORTS = {"udp": 5060, "tcp": 5060, "tls": 5061, "ws": 80, "wss": 443, "sctp": 5060}
WORDS = 120
"""Characters of the server's words that are shown."""


Address = tuple[str, int]


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
        protocol = socket.IPPROTO_SCTP if server.transport == "sctp" else 0
        self.socket = socket.socket(family, kind, protocol)
        try:
            self.socket.settimeout(timeout)
            if source:
                self.socket.bind((source, 0))
            self.socket.connect(address)
            if server.transport in SECURE:
                self.socket = tls_context(ca, insecure).wrap_socket(self.socket, server_hostname=self.host)
        except ssl.SSLError as e:
            self.socket.close()
            fix = "Give the CA's certificate with --cacert, or --insecure for a test server"
            raise Error("ND-92-04", f"TLS with the server failed: {e.reason or e}", at=at, fix=fix) from e
        except OSError as e:
            self.socket.close()
            what = f"the server cannot be reached over {server.transport}: {e.strerror or e}"
            raise Error("ND-91-31", what, at=at, fix="Check address, port and transport") from e
        self._stack = ExitStack()
        self._websocket: ClientConnection | None = None
        if server.transport in ("ws", "wss"):
            self._websocket = _websocket(self.socket, server, at, timeout, self._stack)
        self._others: set[Address] = set()
        self.stranger: Address | None = None
        """Who sent the last message, if not the server."""
        self._name = f"{secrets.token_hex(6)}.invalid"

    @property
    def local(self) -> str:
        """Our address and port, as in URIs; over WebSocket a name without address (RFC 7118 section 5.2)."""
        return self._name if self._websocket else party(self.socket.getsockname())

    @property
    def remote(self) -> str:
        """The server's."""
        return party(self._address)

    @property
    def reliable(self) -> bool:
        """Whether nothing has to be sent again."""
        return self.transport != "udp"

    def send(self, data: bytes, to: Address | None = None) -> None:
        """One message; over UDP perhaps to another than the server, whose messages are received then, too."""
        if self._websocket:
            try:
                # RFC 7118 section 5.1: text where it is UTF-8
                self._websocket.send(data.decode() if _is_text(data) else data)
            except ConnectionClosed as e:
                raise ConnectionError(_closed(e)) from e
            return
        self.socket.settimeout(5.0)
        if to and not self._others:
            self._disconnect()
        if self._others or to:
            self._others |= {to} if to else set()
            self.socket.sendto(data, to or self._address)
            return
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
            if self._websocket:
                return self._message(self._websocket, left)
            self.socket.settimeout(left)
            try:
                if self.reliable:
                    data, source = self.socket.recv(DATAGRAM), None
                else:
                    data, source = self.socket.recvfrom(DATAGRAM)
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
            elif START.match(data) and self._admits(source):
                self._ready.append(data)
        return self._ready.popleft()

    def _disconnect(self) -> None:
        """Exchange datagrams with others too, from the same address and port."""
        local = self.socket.getsockname()
        self.socket.close()
        self.socket = socket.socket(self.socket.family, socket.SOCK_DGRAM)
        self.socket.bind(local)

    def _admits(self, source: tuple[object, ...] | None) -> bool:
        if not self._others or source is None or source[:2] == self._address[:2]:
            self.stranger = None
            return True
        self.stranger = (str(source[0]), int(str(source[1])))
        return self.stranger in self._others

    @property
    def address(self) -> Address | None:
        """The server's address over UDP."""
        return None if self.reliable else (str(self._address[0]), int(str(self._address[1])))

    def _message(self, websocket: ClientConnection, left: float) -> bytes | None:
        try:
            data = websocket.recv(left)
        except TimeoutError:
            return None
        except ConnectionClosed as e:
            raise ConnectionError(_closed(e)) from e
        message = data.encode() if isinstance(data, str) else bytes(data)
        if message.strip() and not START.match(message):
            raise ConnectionError(f"the server sent what is no SIP: {message[:WORDS]!r}")
        return message

    def close(self) -> None:
        """No more."""
        self._stack.close()
        self.socket.close()


def _is_text(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def _closed(e: ConnectionClosed) -> str:
    frame = e.rcvd
    if frame is None:
        return "the server closed the connection"
    words = f": {frame.reason}" if frame.reason else ""
    return f"the server closed the WebSocket connection with code {frame.code}{words}"


def _websocket(
    connection: socket.socket, server: Server, at: str, timeout: float, stack: ExitStack
) -> ClientConnection:
    """The WebSocket connection on one that is up; closed with `stack`."""
    port = f":{server.port}" if server.port else ""
    # TLS, where there is any, is up already
    url = f"ws://{server.host}{port}{server.path or '/'}"
    connection.settimeout(None)
    try:
        opened = connect(
            url,
            sock=connection,
            subprotocols=[Subprotocol("sip")],
            compression=None,
            proxy=None,
            open_timeout=timeout,
            close_timeout=1.0,
        )
        made: ClientConnection = stack.enter_context(opened)
    except (InvalidHandshake, TimeoutError, OSError, EOFError) as e:
        connection.close()
        words = str(e) or "no answer in time"
        if isinstance(e, InvalidStatus):
            body = " ".join((e.response.body or b"").decode(errors="replace").split())
            words = f"{e.response.status_code} {e.response.reason_phrase} {body}".strip()[:WORDS]
        fix = "Check the path, like wss://HOST:8089/ws"
        raise Error("ND-91-31", f"the WebSocket handshake failed: {words}", at=at, fix=fix) from e
    if made.subprotocol != "sip":
        stack.close()
        what = "the server chose no subprotocol, and sip was offered"
        raise Error("ND-91-31", what, at=at, fix="Check the path, like wss://HOST:8089/ws")
    return made


def party(address: tuple[object, ...]) -> str:
    """An address as URIs have it."""
    host, port = str(address[0]), address[1]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def tls_context(ca: Path | None, insecure: bool) -> ssl.SSLContext:
    """Whom a TLS client trusts: a CA's certificate, else the system's; everybody where it is `insecure`."""
    try:
        context = ssl.create_default_context(cafile=str(ca) if ca else None)
    except (OSError, ssl.SSLError) as e:
        raise Error("ND-104-20", f"the CA certificate cannot be read: {e}", at="--cacert") from e
    if insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context
