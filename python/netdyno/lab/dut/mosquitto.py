"""The Mosquitto MQTT broker."""

from __future__ import annotations

import contextlib
import os
import re
import socket
import subprocess
import time
from collections.abc import Mapping
from typing import ClassVar

from pydantic import Field

from netdyno.lab.dut.base import Settings, url_host
from netdyno.lab.dut.mqtt_reader import leave, subscribe
from netdyno.lab.dut.server import Server
from netdyno.system import namespace
from netdyno.system.process import find

PREFIX = "$SYS/broker/"
INT = 2**31 - 1
"""The largest number in its configuration."""
PUBLISHES = "publish/messages/received"


class Options(Settings):
    """Settings of the broker."""

    port: int = Field(default=1883, ge=1, le=65535)
    """TCP port that it listens on."""
    max_connections: int = Field(default=-1, ge=-1, le=INT)
    """Clients at once; -1: no limit."""
    max_inflight_messages: int = Field(default=20, ge=0, le=65535)
    """Unacknowledged messages per client at QoS 1 and 2; 0: no limit."""
    max_queued_messages: int = Field(default=1000, ge=0, le=INT)
    """Messages that wait behind those, per client; 0: no limit."""
    set_tcp_nodelay: bool = True
    """Send small packets at once, without Nagle's algorithm."""


class Mosquitto(Server):
    """Mosquitto with a listener of its own, no persistence, and `$SYS` every second."""

    driver: ClassVar[str] = "mosquitto"
    confined: ClassVar[bool] = True
    Options = Options

    def command(self) -> list[str]:
        o = self.options
        lines = [
            f"listener {o.port} {self.place.address}",
            "allow_anonymous true",
            "persistence false",
            "sys_interval 1",
            "log_dest stderr",
            "log_type error",
            "log_type warning",
            f"max_connections {o.max_connections}",
            f"max_inflight_messages {o.max_inflight_messages}",
            f"max_queued_messages {o.max_queued_messages}",
            f"set_tcp_nodelay {str(o.set_tcp_nodelay).lower()}",
        ]
        if os.geteuid() == 0:
            lines.append("user nobody")
        path = self.folder / "mosquitto.conf"
        path.write_text("\n".join(lines) + "\n")
        return [find("mosquitto", "mosquitto"), "-c", str(path)]

    def targets(self) -> dict[str, str]:
        return {"mqtt": f"mqtt://{url_host(self.place.address)}:{self.options.port}"}

    def ports(self) -> list[tuple[socket.SocketKind, int]]:
        return [(socket.SOCK_STREAM, self.options.port)]

    def version(self) -> str:
        shown = subprocess.run(
            [find("mosquitto", "mosquitto"), "-h"], capture_output=True, text=True, check=False
        )
        found = re.search(r"version (\S+)", shown.stdout)
        return found.group(1) if found else "unknown"

    def counters(self) -> dict[str, float]:
        """The `$SYS` tree as of an update that began after this call."""
        values: dict[str, float] = {}
        until = time.monotonic() + 5.0
        address = (self.place.address, self.options.port)
        fresh = False
        with namespace.connect(self.place.namespace, address, 5.0) as connection:
            with contextlib.suppress(TimeoutError):
                for message in subscribe(connection, PREFIX + "#"):
                    name = message.topic.removeprefix(PREFIX)
                    if name == "uptime" and not message.retained:
                        # uptime comes first in each update: read that one to its end
                        fresh = True
                        connection.settimeout(0.1)
                    elif not name.startswith("load/"):
                        with contextlib.suppress(ValueError):
                            values[name] = float(message.payload)
                    if time.monotonic() > until and not fresh:
                        break
            leave(connection)
        return values

    def witness(
        self, before: Mapping[str, float], after: Mapping[str, float]
    ) -> dict[str, tuple[str, float]]:
        return {"mqtt": ("PUBLISH received ($SYS)", after.get(PUBLISHES, 0.0) - before.get(PUBLISHES, 0.0))}
