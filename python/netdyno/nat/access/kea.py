"""A DHCP server: Kea in a folder of its own, with its leases in a file that a NAT may follow."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

from netdyno.lab.dut.base import Settings
from netdyno.lab.dut.server import Server
from netdyno.nat.access import plan
from netdyno.system.process import find

PACKAGE = "kea-dhcp4-server"
STARTED = "DHCP4_STARTED"
UNHEARD = "DHCPSRV_OPEN_SOCKET_FAIL"
"""Said of an interface that it does not listen on; it starts nevertheless."""


class Options(Settings):
    """What it gives out."""

    subnet: str
    """The prefix of its segment."""
    leases: str
    """The first and the last address that it gives, with ` - ` between them."""
    router: str
    """The default router that it tells of."""


class Kea(Server):
    """Gives addresses on its segment's bridge."""

    driver: ClassVar[str] = "kea"
    Options = Options
    lifetime: ClassVar[int] = 3600
    """Seconds that a lease is for."""

    @property
    def leases(self) -> Path:
        """Its lease file."""
        return self.folder / "kea-leases4.csv"

    def command(self) -> list[str]:
        """One subnet."""
        # a copy, since AppArmor's rules are for the path where it is installed, and deny other folders
        program = self._copied("kea-dhcp4")
        settings = {
            "interfaces-config": {"interfaces": [plan.BRIDGE], "dhcp-socket-type": "raw"},
            "lease-database": {"type": "memfile", "persist": True, "name": str(self.leases)},
            "valid-lifetime": self.lifetime,
            "authoritative": True,
            "subnet4": [
                {
                    "id": 1,
                    "subnet": self.options.subnet,
                    "pools": [{"pool": self.options.leases}],
                    "option-data": [{"name": "routers", "data": self.options.router}],
                }
            ],
            "loggers": [{"name": "kea-dhcp4", "severity": "INFO", "output_options": [{"output": "stdout"}]}],
        }
        (self.folder / "kea.json").write_text(json.dumps({"Dhcp4": settings}))
        return [str(program), "-c", str(self.folder / "kea.json")]

    def environment(self) -> Mapping[str, str]:
        """Its folder is where it keeps everything, instead of in the system's."""
        return {
            "KEA_PIDFILE_DIR": str(self.folder),
            "KEA_LOCKFILE_DIR": "none",
            "KEA_LFC_EXECUTABLE": str(self._copied("kea-lfc")),
        }

    def _copied(self, program: str) -> Path:
        return Path(shutil.copy(find(program, PACKAGE), self.folder))

    def targets(self) -> dict[str, str]:
        """It is loaded by nobody."""
        return {}

    def ports(self) -> list[tuple[socket.SocketKind, int]]:
        """It has raw sockets."""
        return []

    def serving(self) -> bool:
        """Whether it says so, and listens."""
        if self.process is None:
            return False
        said = self.process.log.read_text(errors="replace")
        return STARTED in said and UNHEARD not in said

    def counters(self) -> dict[str, float]:
        """Leases, each as often as it was written down."""
        text = self.leases.read_text(errors="replace") if self.leases.exists() else ""
        return {"leases": float(max(0, len(text.splitlines()) - 1))}

    def version(self) -> str:
        """Of the program."""
        done = subprocess.run([find("kea-dhcp4", PACKAGE), "-v"], capture_output=True, text=True, check=False)
        return done.stdout.strip() or "unknown"
