"""Find, start and stop `netdynod`."""

from __future__ import annotations

import json
import os
import select
import shutil
import signal
import sysconfig
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from netdyno import paths
from netdyno.core.client import Client
from netdyno.errors import Error
from netdyno.system import interface
from netdyno.system.journal import Journal, journal
from netdyno.system.process import Process, last_lines

PROGRAM = "netdynod"
START_TIMEOUT = 20.0


def program() -> Path:
    """The daemon's program: `NETDYNO_DAEMON`, the source tree's build, that of our wheel, else the PATH."""
    chosen = os.environ.get("NETDYNO_DAEMON")
    if chosen:
        path = Path(chosen)
        if path.is_file() and os.access(path, os.X_OK):
            return path.absolute()
        raise Error(
            "ND-92-20",
            "NETDYNO_DAEMON does not name a program",
            at=chosen,
            fix="Set it to the path of netdynod, or unset it",
        )
    root = paths.source()
    if root:
        for kind in ("release", "debug"):
            path = root / "target" / kind / PROGRAM
            if path.is_file():
                return path
    # a wheel puts it beside Python, which an environment that was not activated has not in its PATH
    beside = Path(sysconfig.get_path("scripts"))
    found = shutil.which(PROGRAM, path=beside) or shutil.which(PROGRAM)
    if found:
        return Path(found)
    raise Error(
        "ND-92-20",
        f"{PROGRAM} was not found",
        at="target/release, target/debug and PATH",
        fix="Build it with `./do setup`, or set NETDYNO_DAEMON to its path",
    )


def program_to_copy() -> Path:
    """The daemon's program for other hosts: of a source tree its portable build, which needs no DPDK there,
    unless it is older than what runs here; else what runs here."""
    own, root = program(), paths.source()
    if root is None or "NETDYNO_DAEMON" in os.environ:
        return own
    for kind in ("release", "debug"):
        portable = root / "target/portable" / kind / PROGRAM
        if portable.is_file() and portable.stat().st_mtime >= own.stat().st_mtime:
            return portable
    return own


class Daemon:
    """A daemon of our own: started for one trial, in a namespace if need be, and stopped after."""

    def __init__(
        self,
        socket: Path,
        log: Path,
        namespace: str | None = None,
        level: str = "info",
        notes: Journal | None = None,
        confined: Path | None = None,
        cores: Sequence[int] = (),
    ) -> None:
        """`confined`: clients have the rights of TCP, and this is the folder of files that they may name.
        `cores`: those that it may use, by default all."""
        self.socket = socket
        self.log = log
        notes = notes or journal()
        self._namespace = namespace
        self._interfaces: list[int] = []
        paths.with_folder(socket)
        self._notes = notes
        self._entry = notes.write("path", path=str(socket))
        command = [str(program()), "--socket", str(socket), "--log-json", "--log-level", level]
        if confined is not None:
            command += ["--confined", "--files", str(confined)]
        try:
            self.process = Process(
                command,
                log=log,
                namespace=namespace,
                cores=cores,
                pipe_output=True,
                private=True,
                notes=notes,
            )
        except BaseException:
            notes.undo(self._entry)
            raise
        # DPDK's files are named by the daemon's pid
        self._dpdk = notes.write("dpdk", prefix=f"netdyno-{self.process.pid}")
        try:
            self.pid = self._ready()
        except BaseException:
            self.stop()
            raise

    def _ready(self) -> int:
        """Wait for the line that says it listens."""
        until = time.monotonic() + START_TIMEOUT
        line = b""
        descriptor = self.process.output.fileno()
        while time.monotonic() < until:
            readable, _, _ = select.select([descriptor], [], [], 0.1)
            if readable:
                more = os.read(descriptor, 4096)
                line += more
                if b"\n" in line:
                    break
                if not more:
                    self.process.wait(1.0)
                    break
        try:
            ready = json.loads(line.split(b"\n")[0])
            return int(ready["pid"])
        except (ValueError, KeyError, TypeError):
            pass
        status = self.process.exited()
        why = "it did not say that it is ready" if status is None else f"it ended with status {status}"
        fix = f"See {self.log}"
        if status == -signal.SIGILL:
            why, fix = "it is built for another kind of CPU", "Build it on this machine: `./do setup`"
        raise Error(
            "ND-92-21",
            f"the daemon did not start: {why}: {self.words() or 'no log'}",
            at=self.process.command[0],
            fix=fix,
        )

    def connect(self) -> Client:
        """A connection to it."""
        return Client(self.socket)

    def opens(self, ports: Iterable[Any]) -> None:
        """It is about to open these ports, of a profile or a graph: interfaces below are put back with it.

        Those of a namespace that was made for it go with that.
        """
        if self._namespace is None:
            devices = [str(port["device"]) for port in ports if isinstance(port, dict) and "device" in port]
            self._interfaces += interface.note(interface.below(devices), self._notes)

    def opened(self) -> None:
        """The ports are open, so that interfaces are what has become of them."""
        interface.note_final_state(self._interfaces, self._notes)

    def check(self) -> None:
        """Raise when it has ended by itself."""
        how = self.process.ending()
        if not how:
            return
        raise Error(
            "ND-91-20",
            f"the daemon ended by itself ({how}): {self.words() or 'no log'}",
            at=str(self.socket),
            fix=f"What was measured until then is kept; the whole log is {self.log}",
        )

    def words(self, lines: int = 5) -> str:
        """Its last words, without the JSON around them."""
        last: list[str] = []
        for line in last_lines(self.log):
            try:
                entry = json.loads(line)
                fields = entry.get("fields")
                message = entry.get("message") or (
                    fields.get("message") if isinstance(fields, dict) else None
                )
                last.append(str(message or line))
            except (ValueError, AttributeError):
                last.append(line.strip())
        return " | ".join([word for word in last if word][-lines:])

    def stop(self) -> None:
        """End it; its socket goes too."""
        try:
            self.process.stop()
        finally:
            self._notes.undo(*self._interfaces, self._dpdk, self._entry)

    def __enter__(self) -> Daemon:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
