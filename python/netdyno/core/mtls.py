"""Mutual TLS to a daemon: who may speak is told by certificates, and both sides show one.

A `socket.socket` goes out of here as from every other address: TLS is a thread between it and the network,
since one TLS connection must not be read and written by two threads at once.
"""

from __future__ import annotations

import contextlib
import select
import socket
import ssl
import threading
from dataclasses import dataclass
from pathlib import Path

from netdyno.errors import Error

PIECE = 1 << 16
SILENT = 3
"""Seconds without an answer of the network after which the other machine is gone."""
CA, CERT, KEY = "ca.pem", "client.pem", "client.key"
"""Files of an identity."""
_REFUSED = (
    "CERTIFICATE_REQUIRED",
    "UNKNOWN_CA",
    "BAD_CERTIFICATE",
    "UNSUPPORTED_CERTIFICATE",
    "CERTIFICATE_EXPIRED",
    "CERTIFICATE_UNKNOWN",
    "DECRYPT_ERROR",
    "ACCESS_DENIED",
)
RENEW = "Make new certificates with `netdyno fleet certificates`, and give each agent its own"


@dataclass(frozen=True)
class Identity:
    """Who we are, and whom we expect."""

    folder: Path
    """It has `ca.pem`, `client.pem` and `client.key`."""
    name: str
    """The name that the daemon's certificate is for."""

    def settings(self, at: str) -> ssl.SSLContext:
        """The TLS settings. Raises `ND-92-92` where a file is missing or wrong."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        for name in (CA, CERT, KEY):
            if not (self.folder / name).is_file():
                raise _wrong(f"there is no file {self.folder / name}", at, RENEW)
        try:
            context.load_verify_locations(self.folder / CA)
            context.load_cert_chain(self.folder / CERT, self.folder / KEY)
        except (ssl.SSLError, OSError) as e:
            raise _wrong(f"the certificates in {self.folder} cannot be used: {e}", at, RENEW) from e
        return context


def connect(host: str, port: int, identity: Identity, timeout: float = 10.0) -> socket.socket:
    """A connection on which both sides have shown their certificates.

    Raises `ND-92-92` where a certificate is not accepted or what answers is no agent, `OSError` where
    nothing answers.
    """
    at = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    context = identity.settings(at)
    plain = socket.create_connection((host, port), timeout=timeout)
    try:
        for level, option, value in (
            (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1),
            (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
            (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 1),
            (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 1),
            (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, SILENT),
            (socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, SILENT * 1000),
        ):
            plain.setsockopt(level, option, value)
        try:
            secure = context.wrap_socket(plain, server_hostname=identity.name)
            _greeted(secure)
        except ssl.SSLError as e:
            raise _told(e, at, identity) from e
        except TimeoutError:
            what, fix = f"what answers there said nothing within {timeout:g} s", "Is it an agent?"
            raise _wrong(what, at, fix) from None
        except (ConnectionError, EOFError) as e:
            # it may have no place for us, or speak something else
            what = "it hung up before it had shown a certificate and taken ours"
            raise _wrong(what, at, "See its log; is it an agent with --mtls?") from e
        ours, theirs = socket.socketpair()
        threading.Thread(target=_pump, args=(secure, theirs), name="mtls", daemon=True).start()
    except BaseException:
        plain.close()
        raise
    return ours


def _greeted(secure: ssl.SSLSocket) -> None:
    """Wait for an answer: in TLS 1.3, a refusal of our certificate comes after the handshake."""
    secure.sendall(b'{"jsonrpc":"2.0","id":0,"method":"control.hello"}\n')
    said = b""
    while not said.endswith(b"\n"):
        more = secure.recv(PIECE)
        if not more or len(said) > PIECE:
            raise EOFError
        said += more


def _pump(secure: ssl.SSLSocket, near: socket.socket) -> None:
    """Carry bytes both ways until one side ends."""
    with contextlib.suppress(OSError, ValueError), secure, near:
        secure.setblocking(False)
        near.setblocking(False)
        inward, outward = bytearray(), bytearray()
        while True:
            reading: list[socket.socket] = ([] if inward else [secure]) + ([] if outward else [near])
            writing: list[socket.socket] = ([near] if inward else []) + ([secure] if outward else [])
            if inward or not secure.pending():
                _wait(reading, writing)
            if not inward and not _take(secure, inward):
                return
            if not outward and not _take(near, outward):
                return
            _give(near, inward)
            _give(secure, outward)


def _wait(reading: list[socket.socket], writing: list[socket.socket]) -> None:
    poll = select.poll()
    wanted: dict[int, int] = {}
    for events, those in ((select.POLLIN, reading), (select.POLLOUT, writing)):
        for one in those:
            wanted[one.fileno()] = wanted.get(one.fileno(), 0) | events
    for descriptor, events in wanted.items():
        poll.register(descriptor, events)
    poll.poll()


def _take(source: socket.socket, into: bytearray) -> bool:
    """Read what is there; false at the end."""
    try:
        read = source.recv(PIECE)
    except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
        return True
    into += read
    return bool(read)


def _give(sink: socket.socket, waiting: bytearray) -> None:
    """Write what can be."""
    if waiting:
        with contextlib.suppress(BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            del waiting[: sink.send(waiting)]


def _told(e: ssl.SSLError, at: str, identity: Identity) -> Error:
    """What a fault of TLS means here."""
    if isinstance(e, ssl.SSLCertVerificationError):
        said = e.verify_message
        if "expired" in said:
            return _wrong("the agent's certificate has expired", at, RENEW)
        if "not yet valid" in said:
            return _wrong("the agent's certificate is not valid yet: are both clocks right?", at, RENEW)
        if "mismatch" in said:
            what = f"the agent's certificate is for another name than {identity.name}"
            return _wrong(what, at, "Compare the host's address in hosts.yaml with where its agent runs")
        what = f"the agent's certificate is not of the CA in {identity.folder} ({said})"
        return _wrong(what, at, RENEW)
    reason = e.reason or ""
    if any(one in reason for one in _REFUSED):
        what = f"the agent does not accept our certificate ({reason.rpartition('ALERT_')[2].lower()})"
        return _wrong(what, at, RENEW)
    if reason in ("WRONG_VERSION_NUMBER", "UNKNOWN_PROTOCOL", "HTTP_REQUEST", "RECORD_LAYER_FAILURE"):
        return _wrong("what answers there speaks no TLS", at, "Is it an agent with --mtls?")
    return _wrong(f"TLS failed: {e}", at, "See the agent's log")


def _wrong(what: str, at: str, fix: str) -> Error:
    return Error("ND-92-92", what, at=at, fix=fix)
