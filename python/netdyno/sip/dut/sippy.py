"""Sippy B2BUA as a device under test: it ends each call and begins another one to a next hop, over UDP."""

from __future__ import annotations

import shutil
import socket
import sys
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import ClassVar

from pydantic import Field

from netdyno.errors import Error
from netdyno.lab.dut.base import Settings, url_host
from netdyno.lab.dut.server import START_TIMEOUT, Server
from netdyno.system import namespace

PROGRAM = "b2bua_simple"
QUEUE, DROPS = 4, 12
"""Fields of the kernel's table of UDP sockets: octets that wait, and datagrams that were dropped."""


class Options(Settings):
    """Settings of the back-to-back user agent."""

    port: int = Field(default=5060, ge=1, le=65535)
    """UDP port that it listens on."""
    next_hop: str = Field(
        default="127.0.0.1:5070", pattern=r"^([0-9.]{7,15}|\[[0-9A-Fa-f:.]{2,45}\]):[0-9]{1,5}$"
    )
    """Address and port of the server that it sends calls and registrations to."""


class Sippy(Server):
    """The simple B2BUA of the package sippy."""

    driver: ClassVar[str] = "sippy"
    Options = Options

    def command(self) -> list[str]:
        o = self.options
        words = ["-f", "-l", url_host(self.place.address), "-p", str(o.port), "-n", o.next_hop]
        return [sys.executable, str(_program(self.place.at)), *words]

    def environment(self) -> Mapping[str, str]:
        # its log of all messages goes nowhere; what it has to say otherwise is on standard error
        return {"SIPLOG_BEND": "none", "PYTHONUNBUFFERED": "1"}

    def start_timeout(self) -> float:
        """It loads its code first."""
        return 3 * START_TIMEOUT

    def targets(self) -> dict[str, str]:
        return {"sip": f"sip://{url_host(self.place.address)}:{self.options.port}"}

    def ports(self) -> list[tuple[socket.SocketKind, int]]:
        return [(socket.SOCK_DGRAM, self.options.port)]

    def version(self) -> str:
        try:
            return metadata.version("sippy")
        except metadata.PackageNotFoundError:
            return "unknown"

    def counters(self) -> dict[str, float]:
        """It counts nothing itself: what the kernel knows of its socket."""
        wanted = f":{self.options.port:04X}"

        def read() -> list[list[str]]:
            tables = (Path(f"/proc/thread-self/net/{name}") for name in ("udp", "udp6"))
            return [line.split() for table in tables for line in table.read_text().splitlines()[1:]]

        mine = [line for line in namespace.inside(self.place.namespace, read) if line[1].endswith(wanted)]
        if not mine:
            raise Error("ND-91-23", "sippy has no socket any more", at=self.place.at)
        return {
            "receive_queue_bytes": float(sum(int(line[QUEUE].partition(":")[2], 16) for line in mine)),
            "receive_drops": float(sum(int(line[DROPS]) for line in mine)),
        }


def _program(at: str) -> Path:
    """Beside Python, or wherever the PATH has it."""
    beside = Path(sys.executable).with_name(PROGRAM)
    found = str(beside) if beside.exists() else shutil.which(PROGRAM)
    if not found:
        fix = "Install it into netdyno's environment: pip install sippy"
        raise Error("ND-92-23", f"the program {PROGRAM} is missing", at=at, fix=fix)
    return Path(found)
