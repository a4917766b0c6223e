"""A server of the core as a process: settings in, counters out while it serves."""

from __future__ import annotations

import json
import re
import subprocess
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from types import TracebackType
from typing import Any, ClassVar, Self

from netdyno.core.daemon import program
from netdyno.errors import CONFIGURATION, Error

Counters = Mapping[str, Any]


def said_by_core(line: str) -> tuple[str, str]:
    """What was wrong, and where, of the core's line `error ND-92-10: at WHERE: WHAT`, without its code."""
    parts = re.fullmatch(r"(?:error )?(?:ND-[\d-]+: )?(?:at (\S+): )?(.*)", line.strip(), re.DOTALL)
    assert parts is not None
    return parts[2], parts[1] or ""


class Server:
    """A server to test against, with counters as a witness. It ends with this process."""

    command: ClassVar[str] = "service"
    """Of netdynod."""
    bad_setting: ClassVar[str] = "ND-104-74"
    cannot_listen: ClassVar[str] = "ND-92-51"

    def __init__(
        self, settings: Mapping[str, Any], told: Callable[[Counters], None] = lambda _: None
    ) -> None:
        self.settings, self._told = settings, told
        self.counters: Counters = {}
        """Counters of the last second."""
        self.address = ""
        """Address and port that it listens on."""
        self.certificate = ""
        """Certificate that it has made (PEM)."""
        self.addresses: Mapping[str, str] = {}
        """All of them, by what is served there: `address` and those of further transports."""
        self._process: subprocess.Popen[str] | None = None
        self._reader = threading.Thread(target=self._read, daemon=True)

    def __enter__(self) -> Self:
        command, pipe = [str(program()), self.command], subprocess.PIPE
        self._process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True)
        stdin, stdout, stderr = self._process.stdin, self._process.stdout, self._process.stderr
        assert stdin and stdout and stderr
        with suppress(BrokenPipeError):
            stdin.write(json.dumps(self.settings) + "\n")
            stdin.flush()
        ready = stdout.readline()
        if not ready:
            words, at = said_by_core(stderr.read())
            wrong = self._process.wait() == CONFIGURATION
            code = self.bad_setting if wrong else self.cannot_listen
            raise Error(code, words or "it ended at once", at=at or str(self.settings.get("listen", "")))
        said = json.loads(ready)["ready"]
        self.certificate = str(said.pop("certificate", None) or "")
        self.addresses = {name: str(where) for name, where in said.items() if where}
        self.address = self.addresses["address"]
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

    def serve(self, seconds: float | None) -> None:
        """Wait until the time is over (`None`: until Ctrl-C). A server that ends by itself is ND-91-23."""
        end = time.monotonic() + seconds if seconds is not None else None
        try:
            while end is None or time.monotonic() < end:
                if self.wait(min(0.5, max(0.0, end - time.monotonic())) if end else 0.5):
                    if end is None:
                        return
                    raise Error("ND-91-23", "the server ended by itself", at=self.address)
        except Error as e:
            # Ctrl-C is how one ends it
            if not e.code.startswith("ND-105"):
                raise
