"""Knot DNS as a device under test: where SIP servers look next hops up (RFC 3263)."""

from __future__ import annotations

import re
import socket
import subprocess
from typing import Annotated, ClassVar

from pydantic import Field

from netdyno.errors import Error
from netdyno.lab.dut.base import Settings, url_host
from netdyno.lab.dut.server import Server
from netdyno.system import namespace
from netdyno.system.process import find

PACKAGE = "knot"
_CONFIG = """
server:
    rundir: "{folder}"
    listen: "{address}@{port}"
    udp-workers: 1
    tcp-workers: 1
    background-workers: 1
control:
    listen: "{folder}/control"
database:
    storage: "{folder}"
log:
  - target: stderr
    any: warning
mod-stats:
  - id: all
    request-protocol: on
template:
  - id: default
    storage: "{folder}"
    global-module: mod-stats/all
zone:
  - domain: "{zone}"
    file: "{folder}/zone"
    zonefile-load: whole
    journal-content: none
"""
_ZONE = """$TTL {ttl}
@ SOA ns hostmaster 1 3600 600 86400 {ttl}
@ NS ns
ns A 192.0.2.1
"""
_RECORD = r"^[A-Za-z0-9_@.*-]+( +[0-9]+)?( +IN)? +(A|AAAA|CNAME|NAPTR|SRV|TXT) +[^\r\n\\;()]{1,400}$"
_COUNT = re.compile(r"^mod-stats\.([a-z-]+)\[([a-z0-9-]+)\] = (\d+)$", re.M)


class Options(Settings):
    """Settings of the DNS server."""

    port: int = Field(default=53, ge=1, le=65535)
    """Port that it listens on, by UDP and TCP."""
    zone: str = Field(default="example.net", pattern=r"^[A-Za-z0-9.-]{1,253}$")
    """The zone that it serves; it refuses other names."""
    records: list[Annotated[str, Field(pattern=_RECORD)]] = Field(default_factory=list, max_length=10_000)
    """Records as lines of a zone file, such as `_sip._udp SRV 10 0 5060 home` and `home A 10.0.0.2`."""
    ttl: int = Field(default=300, ge=0, le=86400)
    """How long resolvers may keep its answers, s."""


class Knot(Server):
    """Knot DNS with a zone of its own."""

    driver: ClassVar[str] = "knot"
    Options = Options

    def command(self) -> list[str]:
        o, folder = self.options, self.folder
        zone = _ZONE.format(ttl=o.ttl) + "".join(f"{record}\n" for record in o.records)
        (folder / "zone").write_text(f"$ORIGIN {o.zone.rstrip('.')}.\n{zone}")
        path = folder / "knot.conf"
        path.write_text(
            _CONFIG.format(folder=folder, address=self.place.address, port=o.port, zone=o.zone.rstrip("."))
        )
        return [find("knotd", PACKAGE), "-c", str(path)]

    def targets(self) -> dict[str, str]:
        return {"udp": f"udp://{url_host(self.place.address)}:{self.options.port}"}

    def ports(self) -> list[tuple[socket.SocketKind, int]]:
        return [(socket.SOCK_DGRAM, self.options.port), (socket.SOCK_STREAM, self.options.port)]

    def version(self) -> str:
        shown = subprocess.run([find("knotd", PACKAGE), "-V"], capture_output=True, text=True, check=False)
        found = re.search(r"(\d+(\.\d+)+)", shown.stdout)
        return found.group(1) if found else "unknown"

    def counters(self) -> dict[str, float]:
        """Queries that it received, by transport."""
        command = [find("knotc", PACKAGE), "-s", str(self.folder / "control"), "stats", "mod-stats"]

        def ask() -> str:
            return subprocess.run(command, capture_output=True, text=True, check=False, timeout=10).stdout

        found = dict.fromkeys(("udp4", "tcp4"), 0.0)
        text = namespace.inside(self.place.namespace, ask)
        for group, name, value in _COUNT.findall(text):
            if group == "request-protocol":
                found[name] = float(value)
        if not self.alive():
            raise Error("ND-91-23", "Knot DNS does not tell its statistics", at=self.place.at)
        return found
