"""Our own reflector: answers datagrams and bytes with themselves, or swallows them, and counts."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from typing import ClassVar, Literal

from pydantic import Field

from netdyno.core.daemon import program
from netdyno.lab.dut.base import Settings, url_host
from netdyno.lab.dut.counting_server import CountingServer


class Options(Settings):
    """Settings of the reflector."""

    udp: int = Field(default=7, ge=1, le=65535)
    """UDP port that it listens on."""
    tcp: int = Field(default=7, ge=1, le=65535)
    """TCP port that it listens on."""
    mode: Literal["echo", "sink"] = "echo"
    """echo: send it back. sink: swallow it."""


class Reflector(CountingServer):
    """`netdynod reflect` over kernel sockets."""

    driver: ClassVar[str] = "reflector"
    confined: ClassVar[bool] = True
    Options = Options

    def command(self) -> list[str]:
        o = self.options
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

    def witness(
        self, before: Mapping[str, float], after: Mapping[str, float]
    ) -> dict[str, tuple[str, float]]:
        name = "datagrams_received"
        return {"udp": ("datagrams received", after.get(name, 0.0) - before.get(name, 0.0))}
