"""Our own reflector: answers datagrams and bytes with themselves, or swallows them, and counts."""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import subprocess
import time
from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from pydantic import Field

from netdyno.core.daemon import program
from netdyno.errors import Error
from netdyno.lab.dut.base import Settings, url_host
from netdyno.lab.dut.server import Server


class Options(Settings):
    """Settings of the reflector."""

    udp: int = Field(default=7, ge=1, le=65535)
    """UDP port that it listens on."""
    tcp: int = Field(default=7, ge=1, le=65535)
    """TCP port that it listens on."""
    mode: Literal["echo", "sink"] = "echo"
    """echo: send it back. sink: swallow it."""


class Reflector(Server):
    """`netdynod reflect` over kernel sockets."""

    driver: ClassVar[str] = "reflector"
    Options = Options
    speaks: ClassVar[bool] = True
    _rest = b""
    _ready = False

    def command(self) -> list[str]:
        o = self.options
        self._rest, self._ready = b"", False
        return [
            str(program()), "reflect", "--udp", str(o.udp), "--tcp", str(o.tcp), "--mode", o.mode,
            "--bind", self.place.address,
        ]  # fmt: skip

    def targets(self) -> dict[str, str]:
        host = url_host(self.place.address)
        return {
            "udp": f"udp://{host}:{self.options.udp}",
            "tcp": f"tcp://{host}:{self.options.tcp}",
            "ping": f"ping://{host}",
        }

    def ports(self) -> list[tuple[socket.SocketKind, int]]:
        return [(socket.SOCK_DGRAM, self.options.udp), (socket.SOCK_STREAM, self.options.tcp)]

    def serving(self) -> bool:
        """Whether it said that it is ready: before that, a signal to it would end it."""
        self._drain(0.05)
        return self._ready

    def version(self) -> str:
        shown = subprocess.run([str(program()), "--version"], capture_output=True, text=True, check=False)
        return shown.stdout.strip().removeprefix("netdynod ") or "unknown"

    def counters(self) -> dict[str, float]:
        assert self.process is not None
        self._drain(0.0)
        self.process.send(signal.SIGUSR1)
        lines = self._drain(2.0)
        if not lines:
            raise Error("ND-91-23", "the reflector does not say what it counted", at=self.place.at)
        return {name: float(value) for name, value in lines[-1].items() if isinstance(value, (int, float))}

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

    def witness(
        self, before: Mapping[str, float], after: Mapping[str, float]
    ) -> dict[str, tuple[str, float]]:
        name = "datagrams_received"
        return {"udp": ("datagrams received", after.get(name, 0.0) - before.get(name, 0.0))}
