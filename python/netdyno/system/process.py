"""Start a program so that it can always be found again.

The child first waits on a pipe; its pid and start time are journalled; then it is let go and becomes the
program. Killed before that, it sees the pipe close and ends. So there is no moment at which a program runs
and the journal does not know.
"""

from __future__ import annotations

import contextlib
import os
import resource
import secrets
import select
import shutil
import signal
import subprocess
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

from netdyno import files as disk
from netdyno.errors import Error
from netdyno.system import proc
from netdyno.system.journal import Journal, journal

_WAIT = 'read -r _ || exit 125; ulimit -n "$0" 2>/dev/null; exec "$@" </dev/null'

_LOOK = 0.1
"""Seconds between two looks at whether to go on reading."""

_PRIVATE = "umask 077; "
"""What it writes is its owner's alone."""

LOG = 16 << 20
"""Bytes that are kept of the output of a program that users bring, which may print without end."""


class Process:
    """A running program, its process group, and its journal entry."""

    def __init__(
        self,
        command: Sequence[str],
        *,
        log: Path,
        namespace: str | None = None,
        cores: Sequence[int] = (),
        pipe_output: bool = False,
        files: int = 0,
        environment: Mapping[str, str] | None = None,
        private: bool = False,
        foreign: bool = False,
        notes: Journal | None = None,
    ) -> None:
        """`foreign`: a program that users bring. Its log is bounded, and what it started and left, in a
        session of its own, ends with it, too."""
        self.command = list(command)
        self.log = log
        self._notes = notes or journal()
        full = [*_prefix(namespace, cores), *command]
        mark = {proc.MARK: secrets.token_hex(8)} if foreign else {}
        with disk.open_private(log, "ab") as sink:
            self._popen = subprocess.Popen(
                ["/bin/sh", "-c", _PRIVATE * private + _WAIT, str(files or _files()), *full],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE if pipe_output or foreign else sink,
                stderr=subprocess.STDOUT if foreign else sink,
                env={**os.environ, **(environment or {}), **mark},
                start_new_session=True,
            )
            if foreign:
                assert self._popen.stdout is not None
                copied = (os.dup(self._popen.stdout.fileno()), os.dup(sink.fileno()))
                threading.Thread(target=_copy, args=copied, daemon=True).start()
        self.pid = self._popen.pid
        assert self._popen.stdin is not None
        about = {"mark": mark[proc.MARK]} if mark else {}
        try:
            self._entry = self._notes.write(
                "process",
                pid=self.pid,
                start=proc.start_time(self.pid),
                program=Path(command[0]).name,
                **about,
            )
        except Error:
            self._popen.stdin.close()
            self._popen.wait()
            raise
        with contextlib.suppress(BrokenPipeError):
            self._popen.stdin.write(b"go\n")
            self._popen.stdin.close()

    @property
    def output(self) -> IO[bytes]:
        """What it prints, when asked for with `pipe_output`."""
        assert self._popen.stdout is not None
        return self._popen.stdout

    def exited(self) -> int | None:
        """Its exit status, or None while it runs."""
        return self._popen.poll()

    def ending(self) -> str:
        """How it ended, such as `SIGSEGV` or `status 1`; nothing while it runs."""
        status = self.exited()
        return "" if status is None else ending(status)

    def cpu(self) -> float:
        """CPU seconds of the whole process group so far."""
        return proc.group_cpu(self.pid)

    def send(self, number: int) -> None:
        """Send a signal to the program itself."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, number)

    def send_all(self, number: int) -> None:
        """Send a signal to the program and to everything it started."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, number)

    def wait(self, timeout: float) -> int | None:
        """Its exit status, or None when it still runs after `timeout` seconds."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            return self._popen.wait(timeout)
        return None

    def stop(self) -> None:
        """End it and everything it started."""
        try:
            self._notes.undo(self._entry)
        finally:
            self.wait(1.0)
            if self._popen.stdout:
                self._popen.stdout.close()

    def tail(self, lines: int = 8) -> str:
        """The end of its log, for error messages."""
        return tail(self.log, lines)


class OutputReader:
    """Reads what a process with `pipe_output` prints, to the process's end: not to that of a child which
    left it and holds its output still."""

    def __init__(self, process: Process) -> None:
        # of our own: `Process.stop` may close its while we read
        self._pipe = os.dup(process.output.fileno())
        self._parts: list[bytes] = []
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        try:
            while not self._over.is_set():
                if select.select([self._pipe], [], [], _LOOK)[0]:
                    if not (part := os.read(self._pipe, 1 << 16)):
                        return
                    self._parts.append(part)
        finally:
            os.close(self._pipe)

    def wait(self, grace: float = 2.0) -> None:
        """After the process has ended, let children that it did not wait for print to their end."""
        self._thread.join(grace)

    def finish(self) -> tuple[bytes, bool]:
        """What was printed, when all is stopped that can be; whether somebody may still print there."""
        self._thread.join(5 * _LOOK)
        held = self._thread.is_alive()
        self._over.set()
        self._thread.join()
        return b"".join(self._parts), held


def _copy(source: int, log: int) -> None:
    """All that a program prints, the first of it into its log."""
    left = LOG
    try:
        while part := os.read(source, 1 << 16):
            if left > 0:
                left -= len(part)
                cut = b"" if left > 0 else b"\n[the rest of what it prints is not kept]\n"
                with contextlib.suppress(OSError):
                    os.write(log, part + cut)
    finally:
        os.close(source)
        os.close(log)


def ending(status: int) -> str:
    """How a process ended by its status, such as `SIGSEGV` or `status 1`."""
    if status >= 0:
        return f"status {status}"
    # most real-time signals have no name
    return {int(one): one.name for one in signal.Signals}.get(-status, f"signal {-status}")


def tail(log: Path, lines: int = 8) -> str:
    """The last lines of a log that are not empty."""
    return " | ".join(last_lines(log)[-lines:])


def last_lines(log: Path, size: int = 16_384) -> list[str]:
    """What is at the end of a log, however long that is; without empty lines."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - size))
            text = file.read(size).decode(errors="replace")
    except OSError:
        return []
    return [line.strip() for line in text.splitlines() if line.strip()]


def find(program: str, package: str) -> str:
    """The path of a program, also where a user's PATH does not look."""
    found = shutil.which(program) or shutil.which(
        program, path="/usr/sbin:/sbin:/usr/local/sbin:/usr/bin:/bin"
    )
    if not found:
        raise Error(
            "ND-92-23", f"the program {program} is missing", fix=f"Install it: sudo apt install {package}"
        )
    return found


def _prefix(namespace: str | None, cores: Sequence[int]) -> list[str]:
    prefix: list[str] = []
    if namespace is not None and namespace.startswith("/"):
        # the namespace of a process, which has no name that `ip` knows
        prefix += [find("nsenter", "util-linux"), f"--net={namespace}", "--"]
    elif namespace is not None:
        prefix += [find("ip", "iproute2"), "netns", "exec", namespace]
    if cores:
        prefix += [find("taskset", "util-linux"), "-c", ",".join(str(core) for core in cores)]
    return prefix


def _files() -> int:
    """How many files a child may open, as far as we may give it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    return max(hard, 1 << 20) if os.geteuid() == 0 else max(soft, hard)
