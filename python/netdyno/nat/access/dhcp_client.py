"""A subscriber's DHCP client: udhcpc, with a hook that sets address and route in its namespace."""

from __future__ import annotations

import shlex
import time
from dataclasses import dataclass
from pathlib import Path

from netdyno.errors import Error
from netdyno.system.process import Process, find

TIMEOUT = 15.0
"""Seconds within which a server has to have answered."""

_HOOK = """#!/bin/sh
# called by udhcpc, in the namespace that it runs in
set -eu
case "$1" in
deconfig)
    {ip} -4 address flush dev "$interface"
    {ip} link set "$interface" up
    ;;
bound | renew)
    {ip} -4 address replace "$ip/$mask" dev "$interface"
    {ip} -4 route replace default via "${{router%% *}}" dev "$interface"
    printf '%s\\n' "$ip" "${{router%% *}}" "$serverid" "$lease" >{lease}.new
    mv {lease}.new {lease}
    ;;
esac
"""


@dataclass(frozen=True)
class Lease:
    """What a subscriber was given."""

    address: str
    router: str
    server: str
    seconds: int


class DhcpClient:
    """Keeps a subscriber's lease for as long as it lives."""

    def __init__(self, name: str, namespace: str, folder: Path, log: Path) -> None:
        self.name, self._namespace, self._log = name, namespace, log
        self._file, self._hook = folder / f"{name}.lease", folder / f"{name}.hook"
        self._process: Process | None = None

    def boot(self) -> Lease:
        """Ask for an address, and wait for it."""
        self._hook.write_text(_HOOK.format(ip=find("ip", "iproute2"), lease=shlex.quote(str(self._file))))
        self._hook.chmod(0o755)
        # in the foreground; asks every second
        command = [find("udhcpc", "udhcpc"), "-f", "-i", "eth0", "-t", "20", "-T", "1", "-s", str(self._hook)]
        self._process = Process(command, log=self._log, namespace=self._namespace)
        until = time.monotonic() + TIMEOUT
        while not self._file.exists():
            ended = self._process.exited() is not None
            if ended or time.monotonic() > until:
                why = "its DHCP client ended" if ended else f"no lease within {TIMEOUT:g} s"
                what = f"{self.name} has no address: {why}: {self._process.tail() or 'no log'}"
                raise Error("ND-92-26", what, at=self.name, fix=f"See {self._log} and the DHCP server's log")
            time.sleep(0.005)
        address, router, server, seconds = self._file.read_text().split()
        return Lease(address, router, server, int(seconds))

    def stop(self) -> None:
        """End the client; the address stays with the namespace."""
        process, self._process = self._process, None
        if process is not None:
            process.stop()
