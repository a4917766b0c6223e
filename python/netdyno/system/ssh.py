"""Machines that the OpenSSH client reaches without a password: scripts, and sessions that are held open."""

from __future__ import annotations

import base64
import contextlib
import os
import select
import shutil
import subprocess
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import BinaryIO

from netdyno.errors import Error
from netdyno.system import proc
from netdyno.system.journal import Journal
from netdyno.system.process import find

CONNECT = 10
"""Seconds in which a host must answer."""
START = 60.0
"""Seconds for a script that starts something."""
BEGINS = "nd-begins"
"""What a script prints first."""
ALIVE, MISSED = 1, 3
"""A host that is silent for so many intervals, in seconds, is lost."""


@dataclass(frozen=True)
class SshHost:
    """How a host is reached."""

    address: str
    """`HOST` or `USER@HOST`, or a name of the SSH configuration."""
    code: str
    """Of errors about it."""
    port: int | None = None
    key: str | None = None
    known_hosts: str | None = None
    """Files; None: those of the SSH configuration."""

    def command(self, *options: str) -> list[str]:
        """The beginning of a call of ssh."""
        command = [
            find("ssh", "openssh-client"), "-T", "-x",
            "-o", "BatchMode=yes",
            "-o", f"ConnectTimeout={CONNECT}",
            "-o", f"ServerAliveInterval={ALIVE}",
            "-o", f"ServerAliveCountMax={MISSED}",
            "-o", "ControlPath=none",
            *options,
        ]  # fmt: skip
        if self.port is not None:
            command += ["-p", str(self.port)]
        if self.key is not None:
            command += ["-i", self.key, "-o", "IdentitiesOnly=yes"]
        if self.known_hosts is not None:
            # a list of files with tokens, unless it is quoted
            named = self.known_hosts.replace("%", "%%")
            command += ["-o", f'UserKnownHostsFile="{named}"']
        return [*command, "--", self.address]

    def run(self, script: str, stdin: bytes = b"", timeout: float = START) -> str:
        """Run a shell script to its end. Raises with its last words where it fails."""
        code, text, said = self.outcome(script, stdin, timeout)
        if code:
            raise self.failed(said)
        return text

    def outcome(self, script: str, stdin: bytes = b"", timeout: float = START) -> tuple[int, str, str]:
        """The exit status of a shell script, what it printed, and its words on standard error; 255 is
        ssh's own. Raises if it does not end."""
        try:
            done = subprocess.run(
                [*self.command(), _shell(script)],
                input=stdin,
                capture_output=True,
                timeout=timeout,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise self.failed(f"no answer within {timeout:g} s") from None
        # what the login shell prints by itself stands before it
        before, begun, printed = done.stdout.decode(errors="replace").partition(f"{BEGINS}\n")
        said = done.stderr.decode(errors="replace")
        if not begun and not done.returncode:
            # a shell that could not unpack it has had nothing to do
            raise self.failed(said)
        return done.returncode, printed if begun else before, said

    def fetch(self, script: str, into: BinaryIO, timeout: float) -> None:
        """Write what a shell script prints to a file. Raises where it fails, or does not end."""
        with into, tempfile.TemporaryFile() as words:
            process = subprocess.Popen(
                [*self.command(), _shell(script)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=words,
            )
            assert process.stdout is not None
            begun = False
            with process, process.stdout as stream:
                late = threading.Timer(timeout, process.kill)
                late.start()
                try:
                    for line in stream:
                        if line.endswith(f"{BEGINS}\n".encode()):
                            begun = True
                            shutil.copyfileobj(stream, into)
                    process.wait()
                finally:
                    late.cancel()
            if process.returncode or not begun:
                words.seek(0)
                raise self.failed(words.read().decode(errors="replace"))

    def failed(self, said: str) -> Error:
        """What it said last, and what to do about it."""
        lines = [line.strip() for line in said.splitlines() if line.strip()]
        what = lines[-1].rstrip(".") if lines else "it ended without a word"
        by_hand = " ".join(["ssh", *(["-p", str(self.port)] if self.port else []), self.address])
        fix = f"Try `{by_hand}`"
        if "shared libraries" in said:
            fix = (
                "Build a netdynod here that needs none (`./do package wheel --portable`), install it there "
                "(Debian: libdpdk-dev), or name another `program:`"
            )
        elif "Permission denied" in said:
            fix = "Let the key in without a password: `ssh-copy-id`, or name it with `key`"
        elif "Host key verification" in said:
            fix = f"Accept the host's key once with `{by_hand}`, or name its file with `known_hosts`"
        return Error(self.code, what, at=self.address, fix=fix)


class Session:
    """A script on a host that runs for as long as its input is open: also when this process is killed, it
    sees its end."""

    def __init__(self, host: SshHost, script: str, notes: Journal, options: Sequence[str] = ()) -> None:
        self.host, self._notes = host, notes
        self._entries: list[int] = []
        self._printed = b""
        self._begun = False
        self._process = subprocess.Popen(
            [*host.command(*options), _shell(script)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        try:
            pid = self._process.pid
            start = proc.start_time(pid)
            self._entries.append(notes.write("process", pid=pid, start=start, program="ssh"))
        except BaseException:
            self.close()
            raise

    def tell(self) -> None:
        """Give its script a line."""
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):
            self._process.stdin.write(b"\n")
            self._process.stdin.flush()

    def line(self, timeout: float) -> str:
        """The next line of its script. Raises with its last words where there is none."""
        until = time.monotonic() + timeout
        while not self._begun:
            # a login shell may have left its last line open
            self._begun = self._line(until, timeout).endswith(BEGINS)
        return self._line(until, timeout)

    def _line(self, until: float, timeout: float) -> str:
        assert self._process.stdout is not None
        while b"\n" not in self._printed:
            left = until - time.monotonic()
            ready, _, _ = select.select([self._process.stdout], [], [], max(0.0, left))
            if not ready:
                raise self.host.failed(f"no answer within {timeout:g} s")
            more = os.read(self._process.stdout.fileno(), 4096)
            if not more:
                raise self.host.failed(self.words())
            self._printed += more
        line, _, self._printed = self._printed.partition(b"\n")
        return line.decode(errors="replace").strip()

    def words(self) -> str:
        """What it has said on standard error, once it has ended."""
        assert self._process.stderr is not None
        return self._process.stderr.read().decode(errors="replace")

    def ended(self) -> bool:
        """Whether the session is over."""
        return self._process.poll() is not None

    def end_input(self) -> None:
        """Have its script see the end of its input."""
        with contextlib.suppress(OSError):
            if self._process.stdin:
                self._process.stdin.close()

    def finish(self, seconds: float) -> None:
        """Have its script see the end of its input, and wait for its own end; then end it."""
        self.end_input()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(seconds)
        self.close()

    def close(self) -> None:
        """End it."""
        for pipe in (self._process.stdin, self._process.stdout, self._process.stderr):
            with contextlib.suppress(OSError):
                if pipe:
                    pipe.close()
        entries, self._entries = self._entries, []
        try:
            self._notes.undo(*entries)
        finally:
            # it was killed by then, unless it cannot be
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(5.0)


def _shell(script: str) -> str:
    """One line that any login shell hands on to sh: csh takes no line breaks in quotes."""
    packed = base64.b64encode(f"echo {BEGINS}\n{script}".encode()).decode()
    return f"sh -c 'eval \"$(echo {packed} | base64 -d)\"'"
