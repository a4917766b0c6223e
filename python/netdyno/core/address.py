"""Where a daemon listens: a Unix socket on this machine, TCP with a token, or TCP with mutual TLS."""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from netdyno import reading
from netdyno.core import mtls, redaction
from netdyno.errors import Error

TOKEN_FILE = "NETDYNO_TOKEN_FILE"
"""The environment variable that names the file with the token for `tcp://` addresses."""
PORT = 7447


@dataclass(frozen=True)
class Address:
    """`/run/netdyno/core.sock`, `tcp://HOST:PORT`, or `tls://HOST:PORT` with an identity."""

    path: Path | None = None
    host: str = ""
    port: int = PORT
    token: str = field(default="", repr=False)
    identity: mtls.Identity | None = None
    """Whose certificate is shown there; with it the connection is over mutual TLS."""

    @classmethod
    def of(cls, text: str | Path, token: str | None = None) -> Address:
        """An address as it is written; a missing token is in the file that the environment names."""
        if isinstance(text, Path) or "://" not in text:
            return cls(Path(text))
        try:
            url = urlsplit(text)
            host, port = url.hostname, url.port or PORT
        except ValueError:
            host, port = None, PORT
        else:
            if url.scheme != "tcp" or url.path.strip("/") or url.query or url.fragment or "@" in url.netloc:
                host = None
        if not host:
            fix = f"Write the path of a Unix socket, or tcp://HOST:PORT ({PORT} when missing)"
            raise Error("ND-104-04", f"{redaction.hide(text)!r} is no address of a daemon", fix=fix)
        return cls(None, host, port, _token(text) if token is None else token)

    @property
    def remote(self) -> bool:
        """Whether files that the daemon writes are not to be found by their names here."""
        return self.path is None

    def connect(self) -> socket.socket:
        """A connection, on which over TCP the token has yet to be shown.

        Raises `OSError` where nothing answers, `ND-92-92` where a certificate is not accepted.
        """
        if self.path is not None:
            sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            try:
                sock.connect(str(self.path))
            except OSError:
                sock.close()
                raise
            return sock
        if self.identity is not None:
            return mtls.connect(self.host, self.port, self.identity)
        sock = socket.create_connection((self.host, self.port), timeout=10.0)
        sock.settimeout(None)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        # the daemon does the same: a machine that is gone is noticed within half a minute
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 30_000)
        return sock

    def __str__(self) -> str:
        if self.path is not None:
            return str(self.path)
        scheme = "tcp" if self.identity is None else "tls"
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{scheme}://{host}:{self.port}"


def _token(address: str) -> str:
    name = os.environ.get(TOKEN_FILE)
    if not name:
        fix = f"Set {TOKEN_FILE} to the file that its daemon was started with (--token-file)"
        raise Error("ND-104-13", "a daemon over TCP asks for a token, and none is given", at=address, fix=fix)
    return reading.text(Path(name)).strip()
