"""Runs of the command over the stand-in daemon, for the tests of the command line."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from netdyno.core.result import Result

PROFILE: dict[str, Any] = {
    "name": "cli",
    "phases": {"warmup": "1s", "measure": "3s", "drain": "1s", "sample": "500ms"},
    "targets": {"host": "ping://127.0.0.1"},
    "groups": [{"name": "echo", "target": "host", "devices": 2, "model": {"ping": {}}}],
    "thresholds": [{"metric": "echo.loss", "max": 0}],
}


def result(tmp_path: Path) -> tuple[Result, Path]:
    """Of the run that ended last: ids of one second are in no order."""
    folder = max((tmp_path / "runs").iterdir(), key=lambda one: (one / "result.json").stat().st_mtime_ns)
    return Result.model_validate_json((folder / "result.json").read_text()), folder


def start(*arguments: str, stream: int = subprocess.PIPE, **environment: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "netdyno", *arguments],
        env=os.environ | environment,
        stdout=stream,
        stderr=stream,
        text=True,
    )
