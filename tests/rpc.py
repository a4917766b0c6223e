"""A JSON-RPC client of the tests' own: raw lines, nothing that the product's client would hide."""

from __future__ import annotations

import json
import socket
import time
from typing import Any

Line = dict[str, Any]


class Rpc:
    """One connection."""

    def __init__(self, address: str | tuple[str, int], timeout: float = 60.0) -> None:
        family = socket.AF_UNIX if isinstance(address, str) else socket.AF_INET
        self.socket = socket.socket(family, socket.SOCK_STREAM)
        self.socket.settimeout(timeout)
        self.socket.connect(address)
        self._lines = self.socket.makefile("rb")
        self._number = 0
        self.told: list[Line] = []
        """Notifications that came while an answer was waited for."""

    def send(self, raw: bytes) -> None:
        """A line as it is."""
        self.socket.sendall(raw + b"\n")

    def line(self) -> Line:
        """The next line, whatever it is."""
        text = self._lines.readline()
        if not text:
            raise ConnectionError("the daemon hung up")
        found: Line = json.loads(text)
        return found

    def answer(self, number: Any) -> Line:
        """The answer to a call; notifications before it are kept."""
        while True:
            line = self.line()
            if "method" not in line and line.get("id") == number:
                return line
            self.told.append(line)

    def ask(self, method: str, params: Any = None) -> Line:
        """A call and its whole answer."""
        self._number += 1
        request = {"jsonrpc": "2.0", "id": self._number, "method": method}
        self.send(json.dumps(request | ({} if params is None else {"params": params})).encode())
        return self.answer(self._number)

    def call(self, method: str, **params: Any) -> Any:
        """A call that must succeed; its result."""
        answer = self.ask(method, params)
        assert "error" not in answer, answer
        return answer["result"]

    def fails(self, method: str, **params: Any) -> Line:
        """A call that must fail; its error."""
        answer = self.ask(method, params)
        assert "error" in answer, answer
        error: Line = answer["error"]
        return error

    def told_until(self, state: str) -> list[Line]:
        """Everything that the daemon has said unasked until the run came to that state."""
        found, self.told = self.told, []
        while not found or found[-1]["method"] != "run.state" or found[-1]["params"]["state"] != state:
            found.append(self.line())
        return found

    def until_done(self, seconds: float = 60.0) -> Line:
        """Wait for the end of the run by asking; its status."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            status: Line = self.call("run.status")
            if status["state"] in ("done", "failed"):
                return status
            time.sleep(0.1)
        raise AssertionError(f"the run does not end: {status}")

    def close(self) -> None:
        """Hang up."""
        self._lines.close()
        self.socket.close()
