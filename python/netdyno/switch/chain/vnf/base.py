"""The contract of a network function: a namespace with the ports `in` and `out`, set up once."""

from __future__ import annotations

import signal
import subprocess
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal

from netdyno import config
from netdyno.errors import Error
from netdyno.lab.dut.base import Settings
from netdyno.system import namespace
from netdyno.system.journal import Journal, journal
from netdyno.system.process import Process, find

Changed = Literal[
    "macs", "addresses", "ports", "dscp", "payload", "ttl", "ecn", "identity", "ip_options", "segment",
    "unchecked",
]  # fmt: skip
"""Parts of a packet, as of `Content`: Ethernet addresses, IP addresses, ports, DSCP, what TCP or UDP carries,
TTL, ECN, IP identification and DF, IP options, TCP's window and options, whether UDP has a checksum."""
ROUTED: tuple[Changed, ...] = ("macs",)
"""What a router changes, beside the TTL, which it takes one from."""
TRANSLATED: tuple[Changed, ...] = ("macs", "addresses", "ports")
"""What a NAT changes."""
IN, OUT = "in", "out"
"""Its ports: towards the client and towards the server. A mirror has the first only."""


@dataclass(frozen=True)
class VnfSite:
    """Where a function runs, and the networks on its sides."""

    name: str
    namespace: str
    folder: Path
    """For logs."""
    inside: Sequence[str] = ()
    """Its addresses towards the client, with the prefix, one of each version of IP; none: it has none."""
    outside: Sequence[str] = ()
    """Its addresses towards the server."""
    routes: Mapping[str, str] = field(default_factory=dict)
    """Networks beyond its neighbours, and by which address they are reached."""
    server: Sequence[str] = ()
    """Addresses of the server, without the prefix."""
    backends: Sequence[Sequence[str]] = ()
    """Its further addresses, of each version, that a load balancer chooses between."""
    notes: Journal = field(default_factory=journal)
    sockets: Mapping[str, Path] = field(default_factory=dict)
    """Where it and the switch meet, by port, if it shares memory with it."""


class Vnf(ABC):
    """One function."""

    kind: ClassVar[str]
    about: ClassVar[str]
    """In a sentence."""
    routed: ClassVar[bool] = False
    """Whether it forwards by IP addresses; else it is transparent."""
    only_ipv4: ClassVar[bool] = False
    """Whether it forwards no IPv6."""
    hides: ClassVar[bool] = False
    """Whether what passes it has one address towards the server."""
    mirror: ClassVar[bool] = False
    """Whether it gets copies of packets, and sends none on."""
    passes: ClassVar[frozenset[str]] = frozenset()
    """Encapsulations that it passes on as they are: `vlan`, `nsh`. Of others it gets plain frames."""
    Options: ClassVar[type[Settings]] = Settings
    program: ClassVar[tuple[str, str] | None] = None
    """A program that it needs, and its package."""

    def __init__(self, site: VnfSite, options: Mapping[str, Any] | None = None) -> None:
        self.site = site
        self.options: Any = config.check(
            self.Options, dict(options or {}), "ND-104-82", f"vnfs.{site.name}.options"
        )
        self.process: Process | None = None

    @classmethod
    def carries_ipv6(cls, options: Mapping[str, Any]) -> bool:
        """Whether it forwards IPv6, with these options."""
        return not cls.only_ipv4

    @classmethod
    def shares(cls, options: Mapping[str, Any]) -> bool:
        """Whether it shares memory with the switch, over vhost-user or memif. Its interfaces then
        show copies of what the switch gives to it and gets from it."""
        return options.get("over") in ("vhost-user", "memif")

    @classmethod
    def memif(cls, options: Mapping[str, Any]) -> bool:
        """Whether it does so over memif."""
        return options.get("over") == "memif"

    @classmethod
    def changes(cls, options: Mapping[str, Any]) -> Collection[Changed]:
        """What it may change of packets that it passes on, with these options."""
        return ROUTED if cls.routed else ()

    @classmethod
    def servers(cls, options: Mapping[str, Any]) -> int:
        """Further addresses of the server that it chooses between, with these options."""
        return 0

    @classmethod
    def denies(cls, options: Mapping[str, Any]) -> list[str]:
        """Ports of the server whose packets it drops, like `tcp/23`."""
        return []

    @classmethod
    def http(cls, options: Mapping[str, Any]) -> list[int]:
        """Ports of the server at which it takes HTTP only."""
        return []

    @classmethod
    def ends(cls, options: Mapping[str, Any], protocol: str, port: int) -> bool:
        """Whether it ends connections to a port of the server, and begins others in their place."""
        return False

    @abstractmethod
    def setup(self) -> None:
        """Make it forward. What it makes goes with its namespace, programs excepted."""

    def await_ready(self) -> None:  # noqa: B027 - most have nothing to wait for
        """Wait until it forwards, if `setup` has only begun that. All functions are set up before.

        Raises Error.
        """

    def alive(self) -> bool:
        """Whether its program, if it has one, runs."""
        return self.process is None or self.process.exited() is None

    def fail(self) -> None:
        """Have it end to forward, for a test of failures, while its ports stay up."""
        if self.process is None:
            raise Error(
                "ND-104-82", f"a {self.kind} has no program that could end", at=f"vnfs.{self.site.name}"
            )
        self.process.send_all(signal.SIGKILL)

    def repair(self) -> bool:
        """Have it forward again; whether it can."""
        return False

    def denied(self) -> int:
        """Packets that its rules have dropped so far."""
        return 0

    def report(self) -> str:
        """What it saw, in a line, if it tells; read after `teardown`."""
        return ""

    def teardown(self) -> None:
        """End its program."""
        process, self.process = self.process, None
        if process:
            process.stop()

    def run(self, *command: str, text: str | None = None) -> str:
        """What a short program in its namespace writes. Raises with its words when it fails."""
        full = [find(command[0], self.program[1] if self.program else command[0]), *command[1:]]
        done = namespace.inside(
            self.site.namespace,
            lambda: subprocess.run(full, capture_output=True, text=True, check=False, input=text),
        )
        if done.returncode:
            said = (done.stderr or done.stdout).strip().splitlines()
            what = f"the function {self.site.name} ({self.kind}) cannot be set up: {' '.join(command[:3])}: "
            raise Error("ND-92-61", what + (said[0] if said else f"status {done.returncode}"), at="vnfs")
        return done.stdout

    def start(self, command: list[str], *, foreign: bool = False, **environment: str) -> Process:
        """A program that runs in its namespace until `teardown`; `foreign`: of the user's own."""
        log = self.site.folder / f"vnf-{self.site.name}.log"
        self.process = Process(
            command, log=log, namespace=self.site.namespace, environment=environment, foreign=foreign,
            notes=self.site.notes,
        )  # fmt: skip
        return self.process
