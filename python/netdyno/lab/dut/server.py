"""A device under test that is one program: started, watched until its ports are open, and ended."""

from __future__ import annotations

import socket
import time
from abc import abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

from netdyno.errors import Error
from netdyno.lab.dut.base import Dut
from netdyno.system import namespace
from netdyno.system.process import Process

START_TIMEOUT = 10.0


class Server(Dut):
    """A program with a command line and ports."""

    speaks: ClassVar[bool] = False
    """Whether its standard output is for us and not for the log."""

    @abstractmethod
    def command(self) -> list[str]:
        """The command that runs it in the foreground; writes its configuration first."""

    @abstractmethod
    def ports(self) -> list[tuple[socket.SocketKind, int]]:
        """The ports that it listens on."""

    def environment(self) -> Mapping[str, str]:
        """What it finds in its environment besides ours."""
        return {}

    def setup(self) -> None:
        """Start it and wait until it serves. On failure nothing of it is left."""
        self._refuse_used_ports()
        try:
            command = self.command()
            log = self.place.log or self.folder / "log"
            self.process = Process(
                command,
                log=log,
                namespace=self.place.namespace,
                cores=self.place.cores,
                pipe_output=self.speaks,
                files=1 << 20,
                environment=self.environment(),
                notes=self.place.notes,
            )
            self._await()
        except BaseException:
            self.teardown()
            raise

    def _refuse_used_ports(self) -> None:
        for kind, port in self.ports():
            family = socket.AF_INET6 if ":" in self.place.address else socket.AF_INET

            def probe(kind: socket.SocketKind = kind, port: int = port, family: int = family) -> None:
                with socket.socket(family, kind) as test:
                    if kind is socket.SOCK_STREAM:
                        test.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                    test.bind((self.place.address, port))

            try:
                namespace.inside(self.place.namespace, probe)
            except OSError as e:
                raise Error(
                    "ND-92-24",
                    f"{self.driver} cannot listen on {self.place.address} port {port}: {e.strerror}",
                    at=self.place.at,
                    fix="Choose another port, or end what uses it (`ss -lntup` shows it)",
                ) from e

    def _await(self) -> None:
        timeout = self.start_timeout()
        until = time.monotonic() + timeout
        while True:
            if not self.alive():
                fix = "See its last words above"
                raise Error("ND-92-25", f"it did not start: {self.death()}", at=self.place.at, fix=fix)
            if self.serving():
                return
            if time.monotonic() > until:
                words = self.process.tail() if self.process else ""
                raise Error(
                    "ND-92-25",
                    f"{self.driver} does not serve after {timeout:g} s: {words or 'no log'}",
                    at=self.place.at,
                    fix="The machine may be overloaded, or the server's configuration wrong",
                )
            time.sleep(0.02)

    def start_timeout(self) -> float:
        """Seconds within which it has to serve."""
        return START_TIMEOUT

    def serving(self) -> bool:
        """Whether all its ports are open."""
        tables = {socket.SOCK_STREAM: ("tcp", "0A"), socket.SOCK_DGRAM: ("udp", "07")}
        return all(
            namespace.inside(self.place.namespace, lambda k=kind, p=port: _listens(*tables[k], p))  # type: ignore[misc]
            for kind, port in self.ports()
        )


def _listens(table: str, state: str, port: int) -> bool:
    """Whether a port is open here, by the kernel's table; connecting would count as load."""
    wanted = f":{port:04X}"
    for name in (table, table + "6"):
        try:
            lines = Path(f"/proc/thread-self/net/{name}").read_text().splitlines()[1:]
        except OSError:
            continue
        for line in lines:
            fields = line.split()
            if fields[1].endswith(wanted) and fields[3] == state:
                return True
    return False
