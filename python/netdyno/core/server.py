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
from netdyno.system.interrupt import Interrupts
from netdyno.system.process import ending

Counters = Mapping[str, Any]
TURN = 0.2
"""Seconds between two looks at whether to end."""


def said_by_core(line: str) -> tuple[str, str]:
    """What was wrong, and where, of the core's line `error ND-92-10: at WHERE: WHAT`, without its code."""
    parts = re.fullmatch(r"(?:error )?(?:ND-[\d-]+: )?(?:at (\S+): )?(.*)", line.strip(), re.DOTALL)
    assert parts is not None
    return parts[2], parts[1] or ""


def warning(line: str) -> str:
    """What an entry of the core's log warns of, for people; nothing for other lines, and DPDK's own."""
    try:
        entry = json.loads(line)
    except ValueError:
        return ""
    fields = entry.get("fields") if isinstance(entry, dict) else None
    if not isinstance(fields, dict) or entry.get("target") == "dpdk":
        return ""
    more = ", ".join(f"{name} {value}" for name, value in fields.items() if name != "message")
    return f"{fields.get('message', '')}{f' ({more})' if more else ''}"


class Server:
    """A server to test against, with counters as a witness. It ends with this process."""

    command: ClassVar[str] = "service"
    """Of netdynod."""
    bad_setting: ClassVar[str] = "ND-104-74"
    cannot_listen: ClassVar[str] = "ND-92-51"

    def __init__(
        self,
        settings: Mapping[str, Any],
        told: Callable[[Counters], None] = lambda _: None,
        warned: Callable[[str], None] = lambda _: None,
    ) -> None:
        """`told` gets the counters each second, `warned` what the server warns of."""
        self.settings, self._told, self._warned = settings, told, warned
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
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._last_words = ""
        """Of its standard error, what was no warning."""

    def __enter__(self) -> Self:
        command, pipe = [str(program()), self.command], subprocess.PIPE
        # in a session of its own: Ctrl-C is for this process, which then ends it and has its last counters
        self._process = subprocess.Popen(
            command, stdin=pipe, stdout=pipe, stderr=pipe, text=True, start_new_session=True
        )
        self._listener.start()
        stdin, stdout, stderr = self._process.stdin, self._process.stdout, self._process.stderr
        assert stdin and stdout and stderr
        with suppress(BrokenPipeError):
            stdin.write(json.dumps(self.settings) + "\n")
            stdin.flush()
        ready = stdout.readline()
        if not ready:
            wrong = self._process.wait() == CONFIGURATION
            self._listener.join(10)
            words, at = said_by_core(self._last_words)
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

    def _listen(self) -> None:
        assert self._process and self._process.stderr
        for line in self._process.stderr:
            if words := warning(line):
                self._warned(words)
            elif not line.startswith("{"):
                self._last_words = line

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
        for thread in (self._reader, self._listener):
            if thread.is_alive():
                thread.join(10)
        process.stdout.close()
        process.stderr.close()
        return self.counters

    def serve(self, seconds: float | None, begun: Callable[[], None] = lambda: None) -> None:
        """Wait until the time is over (`None`: for ever), or Ctrl-C, SIGTERM or SIGHUP comes.

        These end it in good order from `begun` on. A server that ends by itself is ND-91-23.
        """
        end = time.monotonic() + seconds if seconds is not None else None
        interrupts = Interrupts()
        with interrupts.installed(), interrupts.asking():
            begun()
            while not interrupts.count and (end is None or time.monotonic() < end):
                left = TURN if end is None else min(TURN, max(0.0, end - time.monotonic()))
                if not self.wait(left):
                    continue
                # what ends all processes of a service at once may have reached the server first
                time.sleep(TURN)
                if interrupts.count:
                    break
                self._listener.join(10)
                words, _ = said_by_core(self._last_words)
                assert self._process
                why = words or ending(self._process.returncode)
                raise Error("ND-91-23", f"the server ended by itself: {why}", at=self.address)
