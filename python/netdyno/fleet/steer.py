"""A run of a fleet is steered as one of a daemon: a Unix socket answers for all hosts together."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from netdyno.errors import Error

LONGEST = 1 << 20
Methods = Mapping[str, Callable[..., Any]]


class SteeringSocket:
    """Answers some methods of a daemon while it is open."""

    def __init__(self, path: Path, methods: Methods) -> None:
        self.path = path
        self._methods = methods
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            # only the owner can connect
            before = os.umask(0o177)
            try:
                self._listener.bind(str(path))
            finally:
                os.umask(before)
            self._listener.listen()
        except BaseException:
            self._listener.close()
            raise
        threading.Thread(target=self._accept, name="fleet-steer", daemon=True).start()

    def close(self) -> None:
        """Answer nobody any more."""
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.path.unlink(missing_ok=True)

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                one, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(one,), name="fleet-steer", daemon=True).start()

    def _serve(self, one: socket.socket) -> None:
        with contextlib.suppress(OSError), one, one.makefile("rwb") as stream:
            while line := stream.readline(LONGEST):
                stream.write(json.dumps(answer(self._methods, line)).encode() + b"\n")
                stream.flush()


def answer(methods: Methods, line: bytes) -> dict[str, Any]:
    """What is answered to a request."""
    number = None
    try:
        asked = json.loads(line)
        number, name = asked.get("id"), str(asked["method"])
        if name not in methods:
            fix = f"It has {', '.join(sorted(methods))}"
            raise Error("ND-104-28", "a fleet has no such method", at=name, fix=fix)
        return {"jsonrpc": "2.0", "id": number, "result": methods[name](**asked.get("params") or {})}
    except Error as e:
        error = {"code": -32000, "message": e.what, "data": e.as_dict()}
    except (ValueError, LookupError, TypeError, AttributeError) as e:
        error = {"code": -32600, "message": f"no request that is understood: {e!r}"}
    return {"jsonrpc": "2.0", "id": number, "error": error}
