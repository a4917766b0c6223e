"""A server of ours that a test starts, `netdyno serve`, and what it counted."""

from __future__ import annotations

import json
import signal
import subprocess
from pathlib import Path

from lab import NETDYNO, Lab, Wire, sh, until

OWN, PEER = "10.91.0.9", "10.91.0.8"
"""Addresses of DPDK ports at the far and the near end of a cable, which no kernel has."""


def fill_checksums(cable: Wire) -> None:
    """Have the kernels of a cable fill checksums in, as what comes to a DPDK port is checked."""
    for space, name in ((cable.at_near, "w0"), (cable.at_far, "w1")):
        sh(*space, "ethtool", "-K", name, "tx", "off")


class Served:
    """`netdyno serve`, started behind a prefix of commands, which listens when this is made, or is waited for later."""

    def __init__(
        self, lab: Lab, at: tuple[str, ...], protocol: str, listen: str, *words: str, wait: bool = True
    ) -> None:
        self.host = listen.rpartition(":")[0]
        self._listens = f"on {listen}"
        self._out = lab.base / f"served-{protocol}-{listen}.json"
        with self._out.open("w") as out:
            self._process = lab.spawn(
                *at, NETDYNO, "serve", protocol, "--listen", listen, "--json", *words,
                stdout=out, stderr=subprocess.STDOUT,
            )  # fmt: skip
        if wait:
            self.wait()

    def wait(self) -> None:
        """Until it listens."""
        until(lambda: self._listens in self.text(), 60, "it does not listen")

    def text(self) -> str:
        """What it has said."""
        return self._out.read_text()

    def daemon(self) -> int:
        """The process that serves: a child of the command, or of its child."""
        found = self._process.pid
        while below := Path(f"/proc/{found}/task/{found}/children").read_text().split():
            found = int(below[0])
        return found

    def counters(self) -> dict[str, int]:
        """End it with Ctrl-C: what it counted."""
        self._process.send_signal(signal.SIGINT)
        assert self._process.wait(60) == 0, self.text()
        text = self.text()
        counters: dict[str, int] = json.loads(text[text.index("{") :])["counters"]
        return counters
