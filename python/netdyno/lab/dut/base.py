"""The contract of a device under test.

A driver runs a server of its own: its own configuration in a folder of its own, on a port of its own, usually
in a network namespace. It never touches what the system runs. What is one program is a `Server` (server.py).
"""

from __future__ import annotations

import secrets
import shutil
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from netdyno import config, files
from netdyno.core.result import DutWorker
from netdyno.system.journal import Journal, journal
from netdyno.system.process import Process


@dataclass(frozen=True)
class DutSite:
    """Host, namespace and cores of a DUT."""

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


class Settings(config.Config):
    """Base of what can be set of a driver; the text below a key is what `netdyno describe` says of it."""


class Dut(ABC):
    """One device under test."""

    driver: ClassVar[str]
    """Name of the driver."""
    confined: ClassVar[bool] = False
    """Whether a browser may start it: its options name no file, no device and no program of this machine, but
    for those of `unconfined`."""
    unconfined: ClassVar[frozenset[str]] = frozenset()
    """Options that a browser may not set."""
    reached: ClassVar[bool] = True
    """Whether it is reached at an address of its host; what only forwards needs none."""
    Options: ClassVar[type[Settings]]
    """What can be set; every one is also a tunable."""

    def __init__(self, place: DutSite, options: Mapping[str, Any] | None = None) -> None:
        self.place = place
        self.options: Any = config.check(
            self.Options, dict(options or {}), "ND-104-24", f"duts.{place.name}.options"
        )
        self.process: Process | None = None
        self._folder: tuple[int, Path] | None = None

    @abstractmethod
    def targets(self) -> dict[str, str]:
        """URLs at which it is reached, by scheme."""

    def urls(self) -> dict[str, str]:
        """All URLs, with that for ICMP, which every host answers."""
        return {"ping": f"ping://{url_host(self.place.address)}", **self.targets()}

    def attached(self) -> dict[str, str]:
        """DPDK devices, by name, at the other end of ports that it brings along: `device: dut:NAME.PORT` in a
        profile stands for one. None for a DUT that is reached over hosts and links."""
        return {}

    @abstractmethod
    def counters(self) -> dict[str, float]:
        """What it counted itself since it started, settled."""

    def workers(self) -> list[DutWorker]:
        """Pauses of its workers since it started; none where they are not known."""
        return []

    @abstractmethod
    def setup(self) -> None:
        """Start it and wait until it serves. On failure nothing of it is left."""

    @abstractmethod
    def version(self) -> str:
        """The version of the program."""

    def witness(
        self, before: Mapping[str, float], after: Mapping[str, float]
    ) -> dict[str, tuple[str, float]]:
        """Messages that it counted between two readings, by scheme: the counter's name and the count."""
        return {}

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
            path = Path(tempfile.gettempdir()) / f"nd-{self.driver}-{secrets.token_hex(8)}"
            entry = self.place.notes.write("path", path=str(path))
            # anew: one that is there is somebody else's
            with files.os_errors(path):
                path.mkdir(mode=0o755)
            self._folder = (entry, path)
        return self._folder[1]


def has(program: str) -> bool:
    """Whether a program is installed."""
    return bool(shutil.which(program) or shutil.which(program, path="/usr/sbin:/sbin:/usr/local/sbin"))


def url_host(address: str) -> str:
    """An address as it stands in a URL."""
    return f"[{address}]" if ":" in address else address
