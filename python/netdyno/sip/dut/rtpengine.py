"""rtpengine as a device under test: a relay for the audio of calls, controlled by a proxy (Kamailio)."""

from __future__ import annotations

import re
import secrets
import socket
import subprocess
from typing import Any, ClassVar

from pydantic import Field, model_validator

from netdyno.errors import Error
from netdyno.lab.dut.base import Settings, url_host
from netdyno.lab.dut.server import Server
from netdyno.system import namespace
from netdyno.system.process import find

PACKAGE = "rtpengine-daemon"
ASK_TIMEOUT = 5.0
_DEEPEST = 16
"""Dictionaries of an answer in each other."""
GROUPS = {"currentstatistics": "current", "totalstatistics": "total"}
"""What of its statistics is kept."""


class Options(Settings):
    """Settings of the media relay."""

    port: int = Field(default=2223, ge=1, le=65535)
    """UDP port that the proxy controls it by (protocol ng)."""
    port_min: int = Field(default=30_000, ge=1024, le=65534)
    """Lowest UDP port for audio."""
    port_max: int = Field(default=40_000, ge=1025, le=65535)
    """Highest UDP port for audio; a call takes four."""
    threads: int = Field(default=2, ge=1, le=64)
    """Threads that relay packets, in user space."""

    @model_validator(mode="after")
    def _range(self) -> Options:
        if self.port_max < self.port_min + 3:
            raise ValueError("port_max: is less than three above port_min")
        return self


class Rtpengine(Server):
    """rtpengine without its kernel module."""

    driver: ClassVar[str] = "rtpengine"
    Options = Options

    def command(self) -> list[str]:
        o, address = self.options, url_host(self.place.address)
        command = [find("rtpengine", PACKAGE), "--config-file=none", "--foreground", "--log-stderr"]
        command += ["--log-level=4", "--table=-1", f"--interface={self.place.address}"]
        command += [f"--listen-ng={address}:{o.port}", f"--port-min={o.port_min}", f"--port-max={o.port_max}"]
        # its totals are those of calls that it has forgotten, which it does at once
        command += [f"--num-threads={o.threads}", "--delete-delay=0"]
        return [*command, f"--pidfile={self.folder}/pid"]

    def targets(self) -> dict[str, str]:
        return {"udp": f"udp://{url_host(self.place.address)}:{self.options.port}"}

    def ports(self) -> list[tuple[socket.SocketKind, int]]:
        return [(socket.SOCK_DGRAM, self.options.port)]

    def version(self) -> str:
        program = find("rtpengine", PACKAGE)
        shown = subprocess.run([program, "--version"], capture_output=True, text=True, check=False)
        found = re.search(r"(\d+(\.\d+)+)", shown.stdout + shown.stderr)
        return found.group(1) if found else "unknown"

    def counters(self) -> dict[str, float]:
        """Its own statistics: sessions, and packets and bytes relayed."""
        try:
            answer = namespace.inside(self.place.namespace, self._ask)
            statistics = answer["statistics"]
            found = {
                f"{short}_{name}": float(value)
                for group, short in GROUPS.items()
                for name, value in statistics[group].items()
            }
        except (OSError, KeyError, ValueError, TypeError, AttributeError, IndexError) as e:
            what = f"rtpengine does not tell its statistics: {e}"
            raise Error("ND-91-23", what, at=self.place.at) from e
        return found

    def _ask(self) -> Any:
        family = socket.AF_INET6 if ":" in self.place.address else socket.AF_INET
        with socket.socket(family, socket.SOCK_DGRAM) as one:
            one.settimeout(ASK_TIMEOUT)
            one.connect((self.place.address, self.options.port))
            cookie = secrets.token_hex(8).encode()
            one.send(cookie + b" d7:command10:statisticse")
            reply = one.recv(65_535)
        if not reply.startswith(cookie + b" "):
            raise ValueError("its answer is to another question")
        return decode(reply[len(cookie) + 1 :])


def decode(data: bytes) -> Any:
    """A value in bencoding: dictionaries, lists, numbers and texts. Raises ValueError or IndexError."""
    value, end = _value(data, 0, 0)
    if end != len(data):
        raise ValueError("something follows the value")
    return value


def _value(data: bytes, at: int, depth: int) -> tuple[Any, int]:
    """A value, and where the next one begins."""
    if depth > _DEEPEST:
        raise ValueError("too deep")
    kind = data[at : at + 1]
    if kind == b"i":
        end = data.index(b"e", at)
        return int(data[at + 1 : end]), end + 1
    if kind in (b"d", b"l"):
        parts: list[Any] = []
        at += 1
        while data[at : at + 1] != b"e":
            one, at = _value(data, at, depth + 1)
            parts.append(one)
        if kind == b"l":
            return parts, at + 1
        return dict(zip(parts[::2], parts[1::2], strict=True)), at + 1
    colon = data.index(b":", at)
    end = colon + 1 + int(data[at:colon])
    if not data[at:colon].isdigit() or end > len(data):
        raise ValueError("a text is cut off")
    return data[colon + 1 : end].decode("utf-8", "replace"), end
