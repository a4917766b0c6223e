"""The HTTP server of the dashboard: uvicorn, with limits on connections and on the time that they take."""

from __future__ import annotations

import asyncio
import resource
import socket
from collections import OrderedDict
from typing import Any, ClassVar

import h11
import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from netdyno.errors import Error

SILENT = 10.0
"""Seconds that a connection may take for a request, from its first byte to the last of its body, and as long
for the first one to begin."""
UNREAD = 30.0
"""Seconds for which what was answered may wait for the other end to read it."""
MOST_SILENT = 128
"""Connections that have asked for nothing yet; one more, and the oldest of them is closed."""
MOST = 2_000
"""Connections in all, and no more than half of the files that may be open; one more is closed at once."""


class Patient(H11Protocol):
    """A connection that is closed when a request or the reading of an answer takes too long."""

    silent: ClassVar[OrderedDict[int, Patient]] = OrderedDict()
    every: ClassVar[set[Patient]] = set()
    most: ClassVar[int] = MOST

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """It is there, and has asked for nothing."""
        super().connection_made(transport)
        self._unread: asyncio.TimerHandle | None = None
        self._unheard: asyncio.TimerHandle | None = None
        self.every.add(self)
        self._wait_for_request()
        while len(self.silent) > MOST_SILENT:
            next(iter(self.silent.values()))._hang_up()
        if len(self.every) > self.most:
            self._hang_up()

    def handle_events(self) -> None:
        """Something came; with a whole request it is heard."""
        super().handle_events()
        state = self.conn.their_state
        if state is h11.SEND_BODY or (state is h11.IDLE and self.conn.trailing_data[0]):
            self._wait_for_request()
        elif self.cycle is not None:
            self._heard()

    def pause_writing(self) -> None:
        """The other end does not read as fast as we write."""
        super().pause_writing()
        if self._unread is None:
            self._unread = self.loop.call_later(UNREAD, self._hang_up)

    def resume_writing(self) -> None:
        """It has read."""
        super().resume_writing()
        if self._unread:
            self._unread.cancel()
            self._unread = None

    def timeout_keep_alive_handler(self) -> None:
        """It asks for nothing more: closed, with what it has not read if it does not read that soon."""
        super().timeout_keep_alive_handler()
        self.loop.call_later(SILENT, self.transport.abort)

    def connection_lost(self, exc: Exception | None) -> None:
        """It is gone."""
        self._heard()
        self.every.discard(self)
        if self._unread:
            self._unread.cancel()
        super().connection_lost(exc)

    def _wait_for_request(self) -> None:
        if self._unheard is None:
            self.silent[id(self)] = self
            self._unheard = self.loop.call_later(SILENT, self._hang_up)

    def _heard(self) -> None:
        self.silent.pop(id(self), None)
        if self._unheard:
            self._unheard.cancel()
            self._unheard = None

    def _hang_up(self) -> None:
        self._heard()
        self.transport.abort()


def listen(host: str, port: int) -> socket.socket:
    """The socket; port 0 is any free one."""
    try:
        family, kind, number, _, where = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        made = socket.socket(family, kind, number)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind(where)
        made.listen(256)
    except OSError as e:
        what = f"the dashboard cannot listen there: {e.strerror or e}"
        fix = "Choose another with --listen, such as 127.0.0.1:0"
        raise Error("ND-92-48", what, at=f"{host}:{port}", fix=fix) from e
    made.setblocking(False)
    return made


def server(app: ASGIApp, **more: Any) -> uvicorn.Server:
    """The server of an application."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    files = min(hard, 1 << 16)
    resource.setrlimit(resource.RLIMIT_NOFILE, (files, hard))
    Patient.most = min(MOST, files // 2)
    config = uvicorn.Config(
        app,
        http=Patient,
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=30,
        timeout_graceful_shutdown=2,
        h11_max_incomplete_event_size=32 << 10,
        **more,
    )
    return uvicorn.Server(config)
