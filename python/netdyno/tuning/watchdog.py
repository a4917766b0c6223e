"""A process that waits for another to die, and puts back what that one had changed.

It holds the reading end of a pipe whose writing end is the other's alone: the pipe ends with the other.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from netdyno.errors import Error
from netdyno.system import journal, proc, python

READY = b"."
"""What it says once it watches."""

PATIENCE = 10.0
"""Seconds for a process whose pipe has ended to be gone."""


class Watchdog:
    """The watching process, from the side of the watched.

    It watches when this returns: its start takes a processor for a while, and is not beside what is measured.
    """

    def __init__(self, path: Path) -> None:
        reading, self._pipe = os.pipe()
        own = os.getpid()
        command = python.module(__name__, str(path), str(own), str(proc.start_time(own)))
        try:
            self._popen = subprocess.Popen(
                command,
                stdin=reading,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
                start_new_session=True,
            )
        except OSError:
            os.close(self._pipe)
            raise
        finally:
            os.close(reading)
        self.pid = self._popen.pid
        try:
            self._ready()
        except BaseException:
            self.stop()
            raise

    def _ready(self) -> None:
        assert self._popen.stdout is not None
        with self._popen.stdout as ready:
            if ready.read(1) == READY:
                return
        raise Error(
            "ND-92-33",
            "the process that puts values back should this one be killed did not start",
            fix="See `dmesg` for what ended it: a lack of memory, or a limit of processes",
        )

    def stop(self) -> None:
        """It is not needed any more."""
        with contextlib.suppress(OSError):
            os.write(self._pipe, b".")
        os.close(self._pipe)
        self._popen.wait()


def watch(path: Path, pid: int, start: int) -> journal.ReplayReport:
    """Wait for the end of standard input and of the process, and replay its journal."""
    os.write(1, READY)
    if os.read(0, 1):
        return journal.ReplayReport()
    until = time.monotonic() + PATIENCE
    while proc.alive(pid, start) and time.monotonic() < until:
        time.sleep(0.01)
    return journal.restore(path.parent, only=path)


if __name__ == "__main__":
    # a terminal's Ctrl-C and a service's stop are for the watched, which puts things back itself
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    report = watch(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
    sys.exit(bool(report.failed or report.gone or report.damaged))
