"""Packet captures of the agents: each writes a file, which is collected into the run's folder."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from netdyno.core.client import Client
from netdyno.core.result import CaptureReport
from netdyno.errors import Error
from netdyno.fleet.agents import Agent
from netdyno.fleet.launchers import launcher
from netdyno.system.ssh import SshHost

STATES = ("stopped", "full", "failed")
"""How a capture ended, the worst last."""
COLLECT = 600.0
"""Seconds that a file may take from another machine."""


class HostCapture:
    """The capture of one host."""

    def __init__(self, agent: Agent, client: Client, path: Path) -> None:
        self.file = path.with_name(f"{path.stem}-{agent.host.name}{path.suffix}")
        """Where it is in the end."""
        self._agent, self._client = agent, client
        self._there = f"{agent.folder}/{self.file.name}" if launcher(agent.host).remote else ""

    def start(self, settings: Mapping[str, Any]) -> None:
        """Begin."""
        self._client.call("capture.start", path=self._there or str(self.file), **settings)

    def stop(self) -> CaptureReport:
        """End it, and have the file."""
        found = CaptureReport.model_validate(self._client.call("capture.stop"))
        found.path = str(self.file)
        if self._there:
            try:
                self._collect()
            except (Error, OSError) as e:
                found.state, found.error = "failed", f"its file was not collected: {e}"
        return found

    def _collect(self) -> None:
        host = self._agent.host
        way = SshHost(host.address or host.name, "ND-92-90", host.port, host.key, host.known_hosts)
        private = os.open(self.file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            way.fetch(f"cat {self._there} && rm {self._there}", os.fdopen(private, "wb"), COLLECT)
        except BaseException:
            with contextlib.suppress(OSError):
                self.file.unlink()
            raise


def merged(found: Mapping[str, CaptureReport], path: Path) -> dict[str, Any]:
    """The captures of all hosts as one."""
    every = list(found.values())
    return CaptureReport(
        path=str(path.with_name(f"{path.stem}-HOST{path.suffix}")),
        interface=", ".join(dict.fromkeys(one.interface for one in every)),
        packets=sum(one.packets for one in every),
        bytes=sum(one.bytes for one in every),
        dropped=sum(one.dropped for one in every),
        state=max((one.state for one in every), key=STATES.index, default="stopped"),
        error=next((f"host {host}: {one.error}" for host, one in found.items() if one.error), None),
    ).model_dump()
