"""A way from a switch in a namespace to a controller outside: a Unix socket whose connections end there.

The switch connects to sockets of its own folder; this process carries their bytes to the controller over TCP.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from pathlib import Path

TIMEOUT = 5.0
"""Seconds in which the controller must accept a connection."""


class Relay:
    """It listens from its making to its closing."""

    def __init__(self, path: Path, host: str, port: int) -> None:
        self.why = ""
        """Why the last connection to the controller could not be made; empty: it could."""
        self._to = (host, port)
        self._path = path
        self._open: set[socket.socket] = set()
        self._listener = socket.socket(socket.AF_UNIX)
        try:
            self._listener.bind(str(path))
            self._listener.listen(8)
        except BaseException:
            self._listener.close()
            raise
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def target(self) -> str:
        """As a switch takes it."""
        return f"unix:{self._path}"

    def close(self) -> None:
        """End it with all connections."""
        # a thread that waits in accept() notices this, and not a close
        for one in (self._listener, *list(self._open)):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._path.unlink(missing_ok=True)

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(near,), daemon=True).start()

    def _serve(self, near: socket.socket) -> None:
        with near:
            try:
                far = socket.create_connection(self._to, TIMEOUT)
            except OSError as e:
                self.why = str(e)
                return
            with far:
                self.why = ""
                far.settimeout(None)
                self._open |= {near, far}
                back = threading.Thread(target=_carry, args=(far, near), daemon=True)
                back.start()
                _carry(near, far)
                back.join()
                self._open -= {near, far}


def _carry(source: socket.socket, to: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(1 << 16):
            to.sendall(data)
    for one in (source, to):
        with contextlib.suppress(OSError):
            one.shutdown(socket.SHUT_RDWR)
