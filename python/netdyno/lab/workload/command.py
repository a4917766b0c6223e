"""A service of the user as a workload: any command serves, any loads, metrics come from its output."""

from __future__ import annotations

import contextlib
import shlex
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import Field, field_validator

from netdyno.core import redaction, secret
from netdyno.errors import Error
from netdyno.lab.counters import NET
from netdyno.lab.dut.base import Settings
from netdyno.lab.workload import printed
from netdyno.lab.workload.base import (
    Site,
    Workload,
    WorkloadResult,
    metric_table,
    run_generator,
    start_server,
)
from netdyno.system import namespace, proc
from netdyno.system.process import Process

LISTENING = {"tcp": "0A", "tcp6": "0A", "udp": "07", "udp6": "07"}
"""State of a socket that takes what comes, in the files of /proc/net."""
UNIX_LISTENING = 0x10000
"""Flag of a listening socket in /proc/net/unix."""
SYSTEM = "/usr/sbin:/sbin:/usr/local/sbin:/usr/bin:/bin"
"""Where programs are that the PATH of a user may not name."""
LOOK = 0.02
"""Seconds between two looks at whether a server listens."""


class CommandOptions(Settings):
    """Settings of a command as a workload. In both commands `{address}` stands for the IPv4 address of the
    server, `{address6}` for that of IPv6 (in a URL in brackets), `{seed}` for the trial's seed; `{env:NAME}`
    and `{file:PATH}` for a secret that stands there."""

    load: str = Field(min_length=1)
    """Command that loads the service and prints its result; without a shell."""
    metrics: list[str]
    """Metrics in its output: `NAME=REGEX` or `NAME=$.json.path`. `NAME[ms]=` names the unit, `NAME[count]=` a
    count whose best is 0."""
    better: list[str] = Field(default_factory=list)
    """Direction: `lower`, `higher`, or `NAME=lower` for one metric."""
    slo: list[str] = Field(default_factory=list)
    """Bounds that must hold: `p99 <= 50ms`."""
    server: str | None = None
    """Command that serves, in the foreground; default: the service runs already."""
    ready: float = Field(default=30, gt=0, le=3600)
    """Seconds within which the server must listen."""
    limit: float = Field(default=600, gt=0, le=86400)
    """Seconds within which the load must end."""

    @field_validator("load", "server")
    @classmethod
    def _words(cls, value: str | None) -> str | None:
        if value is not None:
            try:
                if not shlex.split(value):
                    raise ValueError("it is empty")
            except ValueError as e:
                raise ValueError(f"{value!r} is no command: {e}") from None
        return value


class CommandLoad(Workload):
    """Any load tool."""

    name = "command"
    about = "any command as the load, any command as the server, metrics from what the load prints"
    Options = CommandOptions
    in_containers = True

    def __init__(self, options: Mapping[str, Any] | None = None) -> None:
        super().__init__(options)
        o = self.options
        redaction.learn(*redaction.in_command(o.load), *redaction.in_command(o.server or ""))
        self._printed = printed.metrics(o.metrics, o.better, o.slo)
        self.metrics = metric_table(*(one.metric for one in self._printed))
        self.slos = tuple(printed.slo(text) for text in o.slo)

    def open(self, site: Site, stack: contextlib.ExitStack) -> None:
        """Start the server, if there is one, and wait until it listens."""
        if self.options.server is None:
            return
        command = words(self.options.server, site, 0)
        server = start_server(site, command, "server", stack)
        until = time.monotonic() + self.options.ready
        while server.exited() is None:
            if listens(server, site.server):
                return
            if time.monotonic() >= until:
                what = f"it listens on no socket after {self.options.ready:g} s: {server.tail() or 'no log'}"
                raise Error("ND-92-25", what, at="--server", fix="Give it more time with --set ready=60")
            time.sleep(LOOK)
        what = f"it ended with {server.ending()} before it listened: {server.tail() or 'no log'}"
        fix = (
            "Correct the command: what it said tells what is wrong"
            if server.exited()
            else "The command must stay in the foreground: switch off its daemon mode"
        )
        raise Error("ND-92-25", what, at="--server", fix=fix)

    def run(self, site: Site, seed: int) -> WorkloadResult:
        """Load it once, to the end of the command."""
        text = run_generator(site, words(self.options.load, site, seed), self.options.limit)
        return WorkloadResult(printed.values(text, self._printed))


def words(command: str, site: Site, seed: int) -> list[str]:
    """A command as it is started: words by the rules of a shell, without one."""
    if "{address6}" in command and not site.address6:
        what = "there is no IPv6 between the hosts of this bench"
        raise Error("ND-104-07", what, at=command, fix="Use {address}, or enable IPv6 in the kernel")
    values = {"{address}": site.address, "{address6}": site.address6, "{seed}": str(seed)}
    filled = shlex.split(command)
    for name, value in values.items():
        filled = [word.replace(name, value) for word in filled]
    filled = [
        redaction.REFERENCE.sub(lambda found: secret.from_option(found[0][1:-1], command), w) for w in filled
    ]
    if site.launchers:
        return filled
    program = shutil.which(filled[0]) or shutil.which(filled[0], path=SYSTEM)
    if program is None:
        what = f"the program {filled[0]} is missing"
        raise Error("ND-92-23", what, at=command, fix="Install it, or give its path")
    return [program, *filled[1:]]


def listens(server: Process, space: str | None) -> bool:
    """Whether the server, or a process that it started, listens on TCP, UDP or a Unix socket."""
    mine = set(_sockets(server.pid))
    return bool(mine) and bool(mine & namespace.inside(space, lambda: set(_listening())))


def _sockets(leader: int) -> Iterator[str]:
    """Inodes of the sockets that a process and all that it started have open."""
    for pid in proc.family(leader):
        with contextlib.suppress(OSError):
            for handle in Path(f"/proc/{pid}/fd").iterdir():
                with contextlib.suppress(OSError):
                    target = str(handle.readlink())
                    if target.startswith("socket:["):
                        yield target[8:-1]


def _listening() -> Iterator[str]:
    """Inodes of the sockets of the thread's namespace that take connections or datagrams."""
    for name, state in LISTENING.items():
        for cells in _rows(NET / name):
            if len(cells) > 9 and cells[3] == state:
                yield cells[9]
    for cells in _rows(NET / "unix"):
        if len(cells) > 6 and int(cells[3], 16) & UNIX_LISTENING:
            yield cells[6]


def _rows(path: Path) -> Sequence[Sequence[str]]:
    try:
        return [line.split() for line in path.read_text().splitlines()[1:]]
    except OSError:
        return []
