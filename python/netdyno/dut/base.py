"""The contract of a device under test.

A driver runs a server of its own: its own configuration in a folder of its own, on a port of its own, usually
in a network namespace. It never touches what the system runs. A driver says how to start it, where it is
reached and what it counts; everything else is here.
"""

from __future__ import annotations

import shutil
import socket
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from pydantic import BaseModel

from netdyno import config, namespace
from netdyno.errors import Error
from netdyno.journal import Journal, journal
from netdyno.process import Process

START_TIMEOUT = 10.0


@dataclass(frozen=True)
class Place:
    """Where a DUT runs."""

    name: str
    """Its name in the experiment."""
    address: str
    """The address that it serves."""
    namespace: str | None = None
    cores: Sequence[int] = ()
    """Cores it may use; empty: all."""
    log: Path | None = None
    """Where its output goes; else into its own folder."""
    notes: Journal = field(default_factory=journal)

    @property
    def at(self) -> str:
        """For error messages."""
        return f"{self.name} in {self.namespace}" if self.namespace else self.name


class Dut(ABC):
    """One device under test."""

    driver: ClassVar[str]
    """Name of the driver."""
    Options: ClassVar[type[BaseModel]]
    """What can be set; every one is also a tunable."""

    def __init__(self, place: Place, options: Mapping[str, Any] | None = None) -> None:
        self.place = place
        self.options: Any = config.check(
            self.Options, dict(options or {}), "ND-104-24", f"duts.{place.name}.options"
        )
        self.process: Process | None = None
        self._folder: tuple[int, Path] | None = None

    @abstractmethod
    def command(self) -> list[str]:
        """The command that runs it in the foreground; writes its configuration first."""

    @abstractmethod
    def targets(self) -> dict[str, str]:
        """URLs at which it is reached, by scheme."""

    def urls(self) -> dict[str, str]:
        """All URLs, with that for ICMP, which every host answers."""
        return {"ping": f"ping://{url_host(self.place.address)}", **self.targets()}

    @abstractmethod
    def counters(self) -> dict[str, float]:
        """What it counted itself since it started, settled."""

    @abstractmethod
    def version(self) -> str:
        """The version of the program."""

    @abstractmethod
    def ports(self) -> list[tuple[socket.SocketKind, int]]:
        """The ports that it listens on."""

    def witness(
        self, before: Mapping[str, float], after: Mapping[str, float]
    ) -> dict[str, tuple[str, float]]:
        """Messages that it counted between two readings, by scheme: the counter's name and the count."""
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
                notes=self.place.notes,
            )
            self._await()
        except BaseException:
            self.teardown()
            raise

    speaks: ClassVar[bool] = False
    """Whether its standard output is for us and not for the log."""

    def apply(self, tunables: Mapping[str, Any]) -> None:
        """Set options; a running server is started again with them."""
        options = {**self.options.model_dump(), **tunables}
        self.options = config.check(self.Options, options, "ND-104-24", f"duts.{self.place.name}.options")
        if self.process is not None:
            self.teardown()
            self.setup()

    def cpu(self) -> float:
        """CPU seconds used so far by all its processes."""
        return self.process.cpu() if self.process else 0.0

    def alive(self) -> bool:
        """Whether it still runs."""
        return self.process is not None and self.process.exited() is None

    def death(self) -> str:
        """Why it does not run any more, with its last words."""
        if self.process is None:
            return "it was not started"
        status = self.process.exited()
        how = f"signal {-status}" if status is not None and status < 0 else f"status {status}"
        return f"{self.driver} ended with {how}: {self.process.tail() or 'no log'}"

    def teardown(self) -> None:
        """Stop it and remove what it left."""
        process, self.process = self.process, None
        folder, self._folder = self._folder, None
        try:
            if process is not None:
                process.stop()
        finally:
            if folder is not None:
                self.place.notes.undo(folder[0])

    @property
    def folder(self) -> Path:
        """A folder of its own for configuration and data; goes with it."""
        if self._folder is None:
            # named before it is made, so that the journal has it first
            path = Path(tempfile.gettempdir()) / f"nd-{self.driver}-{time.time_ns():x}"
            entry = self.place.notes.write("path", path=str(path))
            path.mkdir(mode=0o755)
            self._folder = (entry, path)
        return self._folder[1]

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
        until = time.monotonic() + START_TIMEOUT
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
                    f"{self.driver} does not serve after {START_TIMEOUT:g} s: {words or 'no log'}",
                    at=self.place.at,
                    fix="The machine may be overloaded, or the server's configuration wrong",
                )
            time.sleep(0.02)

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


def has(program: str) -> bool:
    """Whether a program is installed."""
    return bool(shutil.which(program) or shutil.which(program, path="/usr/sbin:/sbin:/usr/local/sbin"))


def url_host(address: str) -> str:
    """An address as it stands in a URL."""
    return f"[{address}]" if ":" in address else address
