"""The nginx web server: bodies of several sizes, `stub_status`, and an access log when asked for."""

from __future__ import annotations

import os
import re
import socket
import subprocess
from collections.abc import Mapping
from typing import Annotated, ClassVar

from pydantic import Field

from netdyno.errors import Error
from netdyno.lab.dut.base import Settings, url_host
from netdyno.lab.dut.server import Server
from netdyno.system import namespace
from netdyno.system.process import find

SIZES = (64, 128, 256, 512, 1024, 1280, 1518, 2048, 4096, 8192, 8950)
"""Bodies served at `/64` … `/8950`; `/` has two bytes."""

ANSWER = 64 << 10
"""Bytes of its answer that are read."""

_CONFIG = """
daemon off;
pid {folder}/pid;
error_log stderr warn;
worker_processes {workers};
worker_rlimit_nofile 1048576;
{user}
events {{ worker_connections {connections}; multi_accept on; }}
http {{
  default_type application/octet-stream;
  log_format count '$request_method $uri $status';
  access_log {access_log};
  keepalive_requests 1000000000;
  keepalive_timeout 1h;
  sendfile on;
  tcp_nodelay on;
  open_file_cache max=64;
  client_body_temp_path {folder}/body;
  proxy_temp_path {folder}/proxy;
  fastcgi_temp_path {folder}/fastcgi;
  uwsgi_temp_path {folder}/uwsgi;
  scgi_temp_path {folder}/scgi;
  server {{
    listen {listen}{backlog};
    root {folder}/www;
    location = /status {{ stub_status; access_log off; }}
    location = / {{ return 200 "ok"; }}
    location = /post {{ return 204; }}
  }}
}}
"""


class Options(Settings):
    """Settings of the web server."""

    port: int = Field(default=80, ge=1, le=65535)
    """TCP port that it listens on."""
    worker_processes: int = Field(default=1, ge=1, le=1024)
    """Processes that serve."""
    worker_connections: int = Field(default=65536, ge=16, le=1 << 20)
    """Connections at once of each of them."""
    access_log: bool = False
    """Count also by the access log, at its cost."""
    backlog: int | None = Field(default=None, ge=1, le=65535)
    """Connections that may wait to be accepted; default nginx's own."""
    sizes: tuple[Annotated[int, Field(ge=0, le=64 << 20)], ...] = Field(default=SIZES, max_length=64)
    """Bytes of the bodies that it serves, each at the path of its size."""


class Nginx(Server):
    """nginx in a folder of its own."""

    driver: ClassVar[str] = "nginx"
    confined: ClassVar[bool] = True
    Options = Options
    _readings = 0

    def command(self) -> list[str]:
        o, folder = self.options, self.folder
        self._readings = 0
        (folder / "www").mkdir(exist_ok=True)
        for size in o.sizes:
            (folder / "www" / str(size)).write_bytes(b"x" * size)
        text = _CONFIG.format(
            folder=folder,
            workers=o.worker_processes,
            connections=o.worker_connections,
            # without root the workers run as who we are, and nginx would only warn about a user
            user="user root;" if os.geteuid() == 0 else "",
            access_log=f"{folder}/access.log count" if o.access_log else "off",
            listen=f"{url_host(self.place.address)}:{o.port}",
            backlog=f" backlog={o.backlog}" if o.backlog else "",
        )
        path = folder / "nginx.conf"
        path.write_text(text)
        return [find("nginx", "nginx"), "-p", str(folder), "-e", "stderr", "-c", str(path)]

    def targets(self) -> dict[str, str]:
        return {"http": f"http://{url_host(self.place.address)}:{self.options.port}"}

    def ports(self) -> list[tuple[socket.SocketKind, int]]:
        return [(socket.SOCK_STREAM, self.options.port)]

    def version(self) -> str:
        shown = subprocess.run([find("nginx", "nginx"), "-v"], capture_output=True, text=True, check=False)
        found = re.search(r"nginx/(\S+)", shown.stderr)
        return found.group(1) if found else "unknown"

    def counters(self) -> dict[str, float]:
        """`stub_status` without the readings themselves."""
        address = (self.place.address, self.options.port)
        with namespace.connect(self.place.namespace, address) as connection:
            connection.sendall(b"GET /status HTTP/1.1\r\nHost: netdyno\r\nConnection: close\r\n\r\n")
            text = connection.makefile("rb").read(ANSWER).decode(errors="replace")
        self._readings += 1
        found = re.search(r"requests\s+(\d+) (\d+) (\d+)", text)
        active = re.search(r"Active connections: (\d+)", text)
        if not found or not active:
            raise Error("ND-91-23", "stub_status does not answer as expected", at=self.place.at)
        accepts, handled, requests = (float(number) - self._readings for number in found.groups())
        values = {
            "accepts": accepts,
            "handled": handled,
            "requests": requests,
            "active": float(active.group(1)) - 1,
        }
        if self.options.access_log:
            with (self.folder / "access.log").open("rb") as log:
                values["access_log"] = float(sum(1 for _ in log))
        return values

    def witness(
        self, before: Mapping[str, float], after: Mapping[str, float]
    ) -> dict[str, tuple[str, float]]:
        name, what = ("access_log", "access log") if "access_log" in after else ("requests", "stub_status")
        return {"http": (f"requests ({what})", after.get(name, 0.0) - before.get(name, 0.0))}
