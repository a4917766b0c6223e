"""A run as NDJSON on standard output: one event a line, as it happens."""

from __future__ import annotations

import json
import sys
from typing import Any

from netdyno import escape
from netdyno.core.result import Result
from netdyno.experiment.view import NullView, Plan


class JsonStream(NullView):
    """Events: start, sample, state, dut, log, and result at the end."""

    def _put(self, event: str, data: dict[str, Any]) -> None:
        sys.stdout.write(escape.json(json.dumps({"event": event, **data})) + "\n")
        sys.stdout.flush()

    def start(self, plan: Plan) -> None:
        """A trial begins."""
        self._put("start", {"plan": plan})

    def sample(self, sample: dict[str, Any]) -> None:
        """A point of the series."""
        self._put("sample", {"sample": sample})

    def state(self, status: dict[str, Any]) -> None:
        """A change of state."""
        self._put("state", {"status": status})

    def dut(self, name: str, cpu: float) -> None:
        """CPU of a device under test."""
        self._put("dut", {"dut": name, "cpu": cpu})

    def log(self, line: str) -> None:
        """A line."""
        self._put("log", {"line": line})

    def result(self, result: Result) -> None:
        """The whole result, last."""
        self._put("result", {"result": result.model_dump(mode="json")})
