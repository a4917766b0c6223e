"""FD.io VPP's NAT (nat44-ed) between two memif ports on one core: the peer that other networks run today."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bed import GENERATOR, SERVER, need
from rounds import UnusableError

PATIENCE = 60.0
"""Seconds that it may take to come up, or to answer: it makes its tables first."""
HEAP = 6 << 30
BUFFERS = 32_768
MAC = "02:00:00:00:00:{:02x}"


@dataclass(frozen=True)
class Nat:
    """What it translates: subscribers behind the first port, to the second."""

    inside: str
    outside: str
    router: str
    beyond: str
    pool: tuple[str, str]
    sessions: int
    """As many as there may be; a full table ends the oldest ones."""

    def commands(self, sockets: Sequence[Path]) -> list[str]:
        """Its configuration."""
        made = []
        for n, socket in enumerate(sockets, 1):
            made += [
                f"create memif socket id {n} filename {socket}",
                f"create interface memif id 0 socket-id {n} master hw-addr {MAC.format(1 + n)}",
                f"set interface state memif{n}/0 up",
            ]
        return [
            *made,
            f"set interface ip address memif1/0 {self.inside}",
            f"set interface ip address memif2/0 {self.outside}",
            f"set ip neighbor memif2/0 {self.router} {MAC.format(9)}",
            f"ip route add {self.beyond} via {self.router} memif2/0",
            f"nat44 plugin enable sessions {self.sessions}",
            f"nat44 add address {self.pool[0]} - {self.pool[1]}",
            "set interface nat44 in memif1/0 out memif2/0",
        ]


def huge_pages() -> bool:
    """Whether its heap finds free huge pages, of 2 MiB."""
    free = next(
        int(line.split()[1])
        for line in Path("/proc/meminfo").read_text().splitlines()
        if line.startswith("HugePages_Free")
    )
    return free * (2 << 20) >= HEAP


class Vpp:
    """One that translates for as long as the context lasts.

    `worker`: a worker has the core, and the main thread is on the generator's, where it wakes up now and
    then; else the main thread does all of it.
    """

    def __init__(self, where: Path, nat: Nat, sockets: Sequence[Path], *, worker: bool) -> None:
        self.socket = where / "vpp.sock"
        self.sockets = sockets
        self.words = where / "vpp.log"
        start, commands = where / "vpp.conf", where / "vpp.cli"
        commands.write_text("\n".join([*nat.commands(sockets), ""]))
        cores = f"main-core {GENERATOR} corelist-workers {SERVER}" if worker else f"main-core {SERVER}"
        page = "2M" if huge_pages() else "4K"
        enabled = " ".join(f"plugin {name}_plugin.so {{ enable }}" for name in ("memif", "nat"))
        start.write_text(
            f"unix {{ nodaemon nosyslog cli-listen {self.socket} runtime-dir {where} "
            f"startup-config {commands} }}\n"
            f"cpu {{ {cores} }}\n"
            f"memory {{ main-heap-size {HEAP >> 30}G main-heap-page-size {page} }}\n"
            f"buffers {{ buffers-per-numa {BUFFERS} page-size {page} }}\n"
            f"statseg {{ size 128M page-size 4K socket-name {where}/stats.sock }}\n"
            f"plugins {{ plugin default {{ disable }} {enabled} }}\n"
        )
        with self.words.open("w") as words:
            self.process = subprocess.Popen(
                [need("vpp"), "-c", str(start)],
                stdin=subprocess.DEVNULL,
                stdout=words,
                stderr=subprocess.STDOUT,
            )

    def __enter__(self) -> Vpp:
        # the last command is done once its interfaces are there
        end = time.monotonic() + PATIENCE
        while "memif2/0 out" not in self.asked("show nat44 interfaces"):
            if self.process.poll() is not None or time.monotonic() > end:
                self.close()
                raise UnusableError(f"VPP did not come up: {self.words.read_text()[-300:]}")
            time.sleep(0.1)
        return self

    def __exit__(self, *why: object) -> None:
        self.close()

    def asked(self, words: str) -> str:
        """What it answers; nothing where nobody answers."""
        command = [need("vppctl"), "-s", str(self.socket), *words.split()]
        try:
            done = subprocess.run(command, capture_output=True, check=False, text=True, timeout=PATIENCE)
        except subprocess.TimeoutExpired:
            raise UnusableError(f"VPP did not answer {words!r}") from None
        return done.stdout

    def close(self) -> None:
        """End it."""
        self.process.terminate()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
