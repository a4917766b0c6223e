"""A server of our own as a device under test: it says as JSON when it is ready, and what it counted."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import time
from collections.abc import Mapping
from typing import Any, ClassVar

from netdyno.core.daemon import program
from netdyno.errors import Error
from netdyno.lab.dut.server import Server


class CountingServer(Server):
    """A command of netdynod that prints `{"ready": …}` once, and its counters on SIGUSR1."""

    speaks: ClassVar[bool] = True
    _rest = b""
    _ready = False

    def setup(self) -> None:
        """Start it and wait until it serves. On failure nothing of it is left."""
        self._rest, self._ready = b"", False
        super().setup()

    def serving(self) -> bool:
        """Whether it said that it is ready: before that, a signal to it would end it."""
        self._drain(0.05)
        return self._ready

    def version(self) -> str:
        """Of netdynod."""
        shown = subprocess.run([str(program()), "--version"], capture_output=True, text=True, check=False)
        return shown.stdout.strip().removeprefix("netdynod ") or "unknown"

    def counters(self) -> dict[str, float]:
        """What it counted up to now."""
        assert self.process is not None
        self._drain(0.0)
        self.process.send(signal.SIGUSR1)
        lines = self._drain(2.0)
        if not lines:
            raise Error("ND-91-23", f"{self.driver} does not say what it counted", at=self.place.at)
        counts: Mapping[str, Any] = lines[-1].get("counters", lines[-1])
        return {name: float(value) for name, value in counts.items() if isinstance(value, (int, float))}

    def _drain(self, wait: float) -> list[dict[str, Any]]:
        """The JSON lines that it printed; waits for at least one line of counters, but not longer."""
        assert self.process is not None
        found: list[dict[str, Any]] = []
        until = time.monotonic() + wait
        descriptor = self.process.output.fileno()
        while True:
            readable, _, _ = select.select(
                [descriptor], [], [], 0.0 if found else max(0.0, until - time.monotonic())
            )
            data = os.read(descriptor, 65536) if readable else b""
            if not data:
                return found
            *lines, self._rest = (self._rest + data).split(b"\n")
            for line in lines:
                value = json.loads(line)
                if isinstance(value, dict) and "ready" in value:
                    self._ready = True
                elif isinstance(value, dict):
                    found.append(value)
