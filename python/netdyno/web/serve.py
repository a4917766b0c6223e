"""The HTTP server of the dashboard: uvicorn, with a limit on connections that ask for nothing."""

from __future__ import annotations

import asyncio
import socket
from collections import OrderedDict
from typing import Any, ClassVar

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from netdyno.errors import Error

SILENT = 10.0
"""Seconds that a connection may take to ask for something."""
MOST_SILENT = 128
"""Connections that have asked for nothing yet; one more, and the oldest of them is closed."""


class Patient(H11Protocol):
    """A connection that is closed when no whole request came in time."""

    silent: ClassVar[OrderedDict[int, Patient]] = OrderedDict()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """It is there, and has asked for nothing."""
        super().connection_made(transport)
        self.silent[id(self)] = self
        self._unheard = self.loop.call_later(SILENT, self._hang_up)
        while len(self.silent) > MOST_SILENT:
            next(iter(self.silent.values()))._hang_up()

    def handle_events(self) -> None:
        """Something came; with the first whole request it is heard."""
        super().handle_events()
        if self.cycle is not None and id(self) in self.silent:
            del self.silent[id(self)]
            self._unheard.cancel()

    def connection_lost(self, exc: Exception | None) -> None:
        """It is gone."""
        self.silent.pop(id(self), None)
        self._unheard.cancel()
        super().connection_lost(exc)

    def _hang_up(self) -> None:
        self.silent.pop(id(self), None)
        self._unheard.cancel()
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
