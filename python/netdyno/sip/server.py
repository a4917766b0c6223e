"""The core's SIP server as a process: settings in, counters out while it serves."""

from __future__ import annotations

import json
import subprocess
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from types import TracebackType
from typing import Any

from netdyno.core.daemon import program
from netdyno.errors import CONFIGURATION, Error

Counters = Mapping[str, Any]


class SipServer:
    """A registrar with a proxy, redirect server or UAS. It ends with this process."""

    def __init__(
        self, settings: Mapping[str, Any], told: Callable[[Counters], None] = lambda _: None
    ) -> None:
        self.settings, self._told = settings, told
        self.counters: Counters = {}
        """Counters of the last second."""
        self.address = ""
        """Address and port that it listens on."""
        self._process: subprocess.Popen[str] | None = None
        self._reader = threading.Thread(target=self._read, daemon=True)

    def __enter__(self) -> SipServer:
        command, pipe = [str(program()), "sip-serve"], subprocess.PIPE
        self._process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True)
        stdin, stdout, stderr = self._process.stdin, self._process.stdout, self._process.stderr
        assert stdin and stdout and stderr
        with suppress(BrokenPipeError):
            stdin.write(json.dumps(self.settings) + "\n")
            stdin.flush()
        ready = stdout.readline()
        if not ready:
            words = stderr.read().strip().removeprefix("error ")
            code = "ND-104-72" if self._process.wait() == CONFIGURATION else "ND-92-49"
            raise Error(code, words or "it ended at once", at=str(self.settings.get("listen", "")))
        self.address = str(json.loads(ready)["ready"]["address"])
        self._reader.start()
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _e: BaseException | None, _t: TracebackType | None
    ) -> None:
        self.stop()

    def _read(self) -> None:
        assert self._process and self._process.stdout
        for line in self._process.stdout:
            self.counters = json.loads(line)["counters"]
            self._told(self.counters)

    def wait(self, seconds: float | None) -> bool:
        """Wait for its end, at most so long; whether it ended."""
        assert self._process
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return False
        return True

    def stop(self) -> Counters:
        """End it; its last counters."""
        process = self._process
        assert process and process.stdin and process.stdout and process.stderr
        with suppress(BrokenPipeError):
            process.stdin.close()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        if self._reader.is_alive():
            self._reader.join(10)
        process.stdout.close()
        process.stderr.close()
        return self.counters
