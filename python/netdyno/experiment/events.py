"""Events of a run in a file of its folder: plan, states, CPU of DUTs and log lines, for watchers elsewhere.

The samples of the trial under way are in another file beside it, `samples.jsonl`. Both are read by whoever
watches a run of another process, such as the dashboard: the run never waits for a reader, nor knows of one.
"""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import IO, Any

from netdyno import files
from netdyno.core import redaction
from netdyno.experiment.view import Live, Plan

NAME = "events.jsonl"


class EventFile:
    """A view that writes each event as a line, and passes it on to another view."""

    def __init__(self, path: Path, view: Live) -> None:
        self.path, self._view = path, view
        with files.os_errors(path):
            self._file: IO[str] = files.open_private(path, "w")

    def _put(self, event: str, **more: Any) -> None:
        # a full disk is told when the result is written; the run goes on
        with contextlib.suppress(OSError, ValueError):
            self._file.write(json.dumps({"event": event, **more}) + "\n")
            self._file.flush()

    def start(self, plan: Plan) -> None:
        """A trial begins."""
        self._put("start", plan=plan)
        self._view.start(plan)

    def sample(self, sample: dict[str, Any]) -> None:
        """A point of the series, which is in the file of samples."""
        self._view.sample(sample)

    def dut(self, name: str, cpu: float) -> None:
        """CPU of a device under test."""
        self._put("dut", dut=name, cpu=round(cpu, 4))
        self._view.dut(name, cpu)

    def state(self, status: dict[str, Any]) -> None:
        """A change of state."""
        self._put("state", status=redaction.hide_in(status))
        self._view.state(status)

    def log(self, line: str) -> None:
        """A line."""
        self._put("log", line=redaction.hide(line))
        self._view.log(line)

    def close(self) -> None:
        """Close the file; the other view is closed by whoever made it."""
        with contextlib.suppress(OSError):
            self._file.close()

    def remove(self) -> None:
        """The result has it all."""
        self.close()
        with contextlib.suppress(OSError):
            self.path.unlink()
