"""DPDK's test forwarder: `testpmd`."""

from __future__ import annotations

import os
import time
from collections.abc import Collection, Mapping
from typing import Any, ClassVar, Literal

from pydantic import Field

from netdyno.errors import Error
from netdyno.lab.dut.base import Settings
from netdyno.switch.chain.vnf.base import ROUTED, Changed, Vnf
from netdyno.switch.chain.vnf.graphs import Over, devices_of, queues_of, ready
from netdyno.system.process import find, last_lines

STARTS = 120.0
"""Seconds that it may take on a busy machine."""
FORWARDS = "packet forwarding - ports=2"
"""What it prints then."""


class Options(Settings):
    """How it forwards."""

    mode: Literal["io", "macswap"] = "io"
    """`io`: frames as they are. `macswap`: with their Ethernet addresses exchanged; a chain passes an even
    number of those, else hosts do not take the frames."""
    over: Over = "packet-sockets"
    """`packet-sockets` of its interfaces; `vhost-user` or `memif`: it shares memory with `ovs-dpdk`."""
    memory: int = Field(default=128, ge=16, le=1 << 16)
    """MiB."""


class Testpmd(Vnf):
    """dpdk-testpmd between both ports, over packet sockets."""

    kind: ClassVar[str] = "testpmd"
    about: ClassVar[str] = "DPDK's test forwarder (packet sockets, vhost-user or memif)"
    Options = Options
    _files: int | None = None
    program: ClassVar[tuple[str, str] | None] = ("dpdk-testpmd", "dpdk-dev")

    @classmethod
    def changes(cls, options: Mapping[str, Any]) -> Collection[Changed]:
        """`macswap` exchanges Ethernet addresses."""
        return ROUTED if options.get("mode") == "macswap" else ()

    def setup(self) -> None:
        """Start it."""
        ready(self)
        first, *more = sorted(os.sched_getaffinity(0))
        # the thread that forwards on the last core; that of a switch which polls is there
        last = (more or [first])[-1]
        cores = f"0@{last},1@{first}" if self.site.sockets else f"0@{first},1@{last}"
        prefix = f"netdyno-{self.site.namespace}"
        # files of DPDK by this name go with it
        self._files = self.site.notes.write("dpdk", prefix=prefix)
        memory = ["--no-huge", "-m", str(self.options.memory), f"--file-prefix={prefix}", "--no-telemetry"]
        devices = [word for device in devices_of(self).values() for word in ("--vdev", device)]
        queues = queues_of(self).get("queues", 1)
        # line by line into its log; with statistics it does not read its input, whose end would end it
        self.start([
            find("stdbuf", "coreutils"), "-oL", find("dpdk-testpmd", "dpdk-dev"), "--lcores", cores, *memory,
            "--no-pci", *devices, "--", f"--forward-mode={self.options.mode}", "--auto-start",
            "--stats-period=86400", "--disable-link-check", "--total-num-mbufs=16384",
            f"--rxq={queues}", f"--txq={queues}",
        ])  # fmt: skip

    def await_ready(self) -> None:
        """Wait until it says that it forwards. Raises Error with its last words."""
        assert self.process is not None, "it is set up"
        until = time.monotonic() + STARTS
        while not any(FORWARDS in line for line in last_lines(self.process.log)):
            if self.process.exited() is not None or time.monotonic() > until:
                how = self.process.ending() or f"it does not forward within {STARTS:g} s"
                words = self.process.tail(3) or "no log"
                what = f"the function {self.site.name} does not start ({how}): {words}"
                raise Error("ND-92-61", what, at=f"vnfs.{self.site.name}")
            time.sleep(0.02)

    def teardown(self) -> None:
        """End it, and remove its files."""
        files, self._files = self._files, None
        try:
            super().teardown()
        finally:
            if files is not None:
                self.site.notes.undo(files)
