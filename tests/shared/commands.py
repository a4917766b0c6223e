"""Processes of the command line that need not load it: they are forked from one process that has.

Loading Python, typer, rich and pydantic takes longer than most of what tests ask of the command line, and they start it
some thousands of times. `Command` is a `subprocess.Popen` of `netdyno`, with the same pipes, signals and exit codes;
its process is forked from a server, one for each process that runs tests, which has loaded all verbs and run none.

The command line itself is started (by `subprocess.Popen`) where it matters how it is loaded: below another program, with
closed streams, in other limits, and in what tests of the command line do themselves.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import select
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, NoReturn

LENGTH = struct.Struct("!I")
STREAMS = {"stdin", "stdout", "stderr"}


def fits(environment: Mapping[str, str], options: Iterable[str]) -> bool:
    """Whether a `Command` is the same as the command line started: nothing asked for that Python reads when it starts."""

    def read_at_start(of: Mapping[str, str]) -> dict[str, str]:
        return {name: value for name, value in of.items() if name.startswith(("LC_", "LANG", "PYTHON"))}

    return STREAMS.issuperset(options) and read_at_start(environment) == read_at_start(os.environ)


class Command(subprocess.Popen[str]):
    """`netdyno` with these arguments."""

    # ---- what subprocess.Popen does otherwise

    def _execute_child(self, args: list[str], *more: Any) -> None:
        """Have it forked; called by the constructor, which has made the pipes."""
        cwd, env = more[4], more[5]
        pipes = more[9:15]
        stdin, _, _, stdout, _, stderr = pipes
        self._told = SERVER.start(
            {"arguments": args[1:], "cwd": str(cwd or Path.cwd()), "environment": dict(env or os.environ)},
            [number if one == -1 else one for number, one in enumerate((stdin, stdout, stderr))],
        )
        self.pid = json.loads(_received(self._told))["pid"]
        self._child_created = True
        self._close_pipe_fds(*pipes)

    def _internal_poll(self, *_: Any, **__: Any) -> int | None:
        return self._ended(0)

    def poll(self) -> int | None:
        return self._ended(0)

    def wait(self, timeout: float | None = None) -> int:
        code = self._ended(timeout)
        if code is None:
            raise subprocess.TimeoutExpired(self.args, timeout or 0)
        return code

    def _ended(self, timeout: float | None) -> int | None:
        if self.returncode is None and select.select([self._told], [], [], timeout)[0]:
            status = json.loads(_received(self._told))["status"]
            self.returncode = os.waitstatus_to_exitcode(status)
            self._told.close()
        return self.returncode


def _received(one: socket.socket) -> bytes:
    (length,) = LENGTH.unpack(_exactly(one, LENGTH.size))
    return _exactly(one, length)


def _exactly(one: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        more = one.recv(size - len(data))
        if not more:
            raise EOFError("the server of commands is gone")
        data += more
    return data


def _sent(one: socket.socket, document: dict[str, Any]) -> None:
    data = json.dumps(document).encode()
    one.sendall(LENGTH.pack(len(data)) + data)


class Server:
    """The process that commands are forked from; it is started by the first and ends with this one."""

    def __init__(self) -> None:
        self._control: socket.socket | None = None
        self._lock = threading.Lock()

    def start(self, asked: dict[str, Any], files: list[int]) -> socket.socket:
        """Ask for a command with these files as its streams; the socket says its `pid` and, in the end, its `status`."""
        with self._lock:
            control = self._control = self._control or self._begin()
            mine, its = socket.socketpair()
            with its:
                socket.send_fds(control, [b"c"], [its.fileno(), *files])
        _sent(mine, asked)
        return mine

    def _begin(self) -> socket.socket:
        mine, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with its:
            environment = {
                **os.environ,
                "OPENBLAS_NUM_THREADS": "1",
                "PYTHONPATH": str(Path(__file__).parent),
            }
            subprocess.Popen(
                [sys.executable, "-m", "commands", str(its.fileno())],
                pass_fds=[its.fileno()], env=environment, stdin=subprocess.DEVNULL, start_new_session=True,
            )  # fmt: skip
        atexit.register(mine.close)
        return mine


SERVER = Server()


# ---------------------------------------------------------------------------------------- the server's side


def _load() -> None:
    """All that verbs load when they run."""
    from importlib import import_module

    from netdyno.cli import app

    for where in app.verbs().values():
        module = where.partition(":")[0]
        import_module(module, "netdyno.cli")
    from netdyno.core.result import Result

    Result.model_rebuild()


def _serve(control: socket.socket) -> Callable[[], NoReturn] | None:
    """Fork a command for each that asks; the function of the command in its process, nothing when all is over."""
    woken, wake = os.pipe()
    os.set_blocking(wake, False)
    os.set_blocking(woken, False)
    signal.set_wakeup_fd(wake)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    running: dict[int, socket.socket] = {}
    open_ = True
    while open_ or running:
        ready, _, _ = select.select([woken, *([control] if open_ else [])], [], [])
        if woken in ready:
            with contextlib.suppress(BlockingIOError):
                os.read(woken, 4096)
            for pid, status in _reaped():
                with contextlib.suppress(OSError), running.pop(pid) as one:
                    _sent(one, {"status": status})
        if control in ready:
            data, files, _, _ = socket.recv_fds(control, 1, 4)
            if not data:
                open_ = False
                continue
            one = socket.socket(fileno=files[0])
            asked = json.loads(_received(one))
            pid = os.fork()
            if pid == 0:
                for other in (control, one, *running.values()):
                    other.close()
                signal.set_wakeup_fd(-1)
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                signal.signal(signal.SIGINT, signal.default_int_handler)
                for number in (woken, wake):
                    os.close(number)
                return lambda: _command(asked, files[1:])
            running[pid] = one
            for file in files[1:]:
                os.close(file)
            _sent(one, {"pid": pid})
    return None


def _reaped() -> list[tuple[int, int]]:
    found = []
    with contextlib.suppress(ChildProcessError):
        while (one := os.waitpid(-1, os.WNOHANG))[0]:
            found.append(one)
    return found


def _command(asked: dict[str, Any], files: list[int]) -> NoReturn:
    """The command, in its own process."""
    for number, file in enumerate(files):
        os.dup2(file, number)
    for file in files:
        os.close(file)
    os.chdir(asked["cwd"])
    os.environ.clear()
    os.environ.update(asked["environment"])
    time.tzset()
    sys.argv = ["netdyno", *asked["arguments"]]
    sys.stdin, sys.stdout = open(0), open(1, "w")  # noqa: SIM115 - the streams of this process
    sys.stderr = open(2, "w", buffering=1)  # noqa: SIM115
    from netdyno.__main__ import main

    main()
    raise SystemExit


if __name__ == "__main__":
    import gc

    _load()
    gc.freeze()
    command = _serve(socket.socket(fileno=int(sys.argv[1])))
    if command is not None:
        command()
