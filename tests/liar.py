"""A proxy before an agent that changes what it answers, as one that is broken or taken over might."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

Message = dict[str, Any]
Lie = Callable[[str, Message], Message | None]
"""A method and a message of the agent → what is passed on in its place; None: nothing."""


class Liar:
    """Takes the place of an agent's Unix socket."""

    def __init__(self, path: Path) -> None:
        self.lie: Lie = lambda _, message: message
        self._behind = path.with_suffix(".real")
        path.rename(self._behind)
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(path))
        self._listener.listen()
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        """Serve nobody any more."""
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._behind.unlink(missing_ok=True)

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                threading.Thread(target=self._serve, args=(self._listener.accept()[0],), daemon=True).start()

    def _serve(self, caller: socket.socket) -> None:
        asked: dict[int, str] = {}
        with caller, socket.socket(socket.AF_UNIX) as agent, contextlib.suppress(OSError):
            agent.connect(str(self._behind))
            threading.Thread(target=self._answers, args=(agent, caller, asked), daemon=True).start()
            for line in caller.makefile("rb"):
                request = json.loads(line)
                asked[request["id"]] = request["method"]
                agent.sendall(line)
            # who hangs up is no writer any more
            agent.shutdown(socket.SHUT_RDWR)

    def _answers(self, agent: socket.socket, caller: socket.socket, asked: dict[int, str]) -> None:
        with contextlib.suppress(OSError, ValueError):
            for line in agent.makefile("rb"):
                message = json.loads(line)
                method = message.get("method") or asked.pop(message["id"])
                told = self.lie(method, message)
                if told is not None:
                    caller.sendall(json.dumps(told).encode() + b"\n")
