"""DPDK's own test program: the peer that sends or forwards, and the far end that both sides have."""

from __future__ import annotations

import re
import subprocess
import threading
import time
from collections.abc import Sequence

from bed import CORES, GENERATOR, SERVER, Skipped, need
from rounds import UnusableError

FRAME = 60
"""Bytes in the smallest frame, without FCS."""
TXONLY = ("--forward-mode=txonly", "--txonly-multi-flow")
RXONLY = ("--forward-mode=rxonly",)
PATIENCE = 60.0
"""Seconds that it may take to come up, or to answer: a busy machine lets it wait."""


class Testpmd:
    """One that forwards on a core when it is told to, for as long as the context lasts.

    Without huge pages: its memory is a file that other processes can map, which is what memif and vhost need.
    """

    def __init__(self, core: int, vdevs: Sequence[str], *words: str, burst: int = 32) -> None:
        if len(CORES) < 2:
            raise Skipped("a core for testpmd and one to command it from are needed; there is one in all")
        other = SERVER if core == GENERATOR else GENERATOR
        command = [need("stdbuf"), "-oL", need("dpdk-testpmd")]
        command += ["--no-huge", "-m", "512", "--no-pci", "--no-shconf", "--no-telemetry"]
        command += [f"--vdev={vdev}" for vdev in vdevs]
        command += ["--main-lcore", str(other), "-l", f"{SERVER},{GENERATOR}"]
        command += ["--file-prefix", f"nd-bench-{core}"]
        command += ["--", "-i", "--nb-cores=1", "--total-num-mbufs=16384", f"--txpkts={FRAME}"]
        command += [f"--burst={burst}", *words]
        self.ports = range(len(vdevs))
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        # what does not answer is ended, and reading from it then as well
        self.guard = threading.Timer(2 * PATIENCE, self.process.kill)
        self.guard.start()

    def __enter__(self) -> Testpmd:
        # an answer means that its ports are open: sockets are there before, and refuse
        try:
            self.asked("show port info 0", r"Link status: (\w+)")
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *why: object) -> None:
        self.close()

    def close(self) -> None:
        """End it."""
        self.guard.cancel()
        self.process.terminate()
        try:
            self.process.communicate(timeout=10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.communicate()

    def say(self, words: str) -> None:
        """Give a command."""
        assert self.process.stdin
        try:
            self.process.stdin.write(words + "\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            raise UnusableError("testpmd has ended") from None

    def asked(self, words: str, pattern: str) -> str:
        """Give a command: what the pattern's group is in the answer."""
        assert self.process.stdout
        self.say(words)
        for line in self.process.stdout:
            if found := re.search(pattern, line):
                return found[1]
        raise UnusableError(f"testpmd did not answer {words!r}")

    def count(self, way: str) -> int:
        """Packets that all its ports have received (`RX`) or sent (`TX`)."""
        return sum(
            int(self.asked(f"show port stats {port}", rf"{way}-packets:\s*(\d+)")) for port in self.ports
        )

    def connected(self) -> None:
        """Wait until there is somebody at the other end of each port."""
        end = time.monotonic() + PATIENCE
        for port in self.ports:
            while self.asked(f"show port info {port}", r"Link status: (\w+)") != "up":
                if time.monotonic() > end:
                    raise UnusableError(f"nobody is at the other end of testpmd's port {port}")
                time.sleep(0.1)

    def rate(self, way: str, seconds: float) -> float:
        """Packets a second, over so many seconds after the first packets."""
        end = time.monotonic() + PATIENCE
        while self.count(way) == 0:
            if time.monotonic() > end:
                raise UnusableError(f"nothing came through testpmd within {PATIENCE:g} s")
            time.sleep(0.1)
        time.sleep(0.5)
        before, began = self.count(way), time.monotonic()
        time.sleep(seconds)
        after, took = self.count(way), time.monotonic() - began
        return (after - before) / took
