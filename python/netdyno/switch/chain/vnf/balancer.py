"""A load balancer between the client and several addresses of the server: `balancer`."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, ClassVar, Literal

from pydantic import Field

from netdyno import files
from netdyno.errors import Error
from netdyno.lab.dut.base import Settings
from netdyno.lab.workload.iperf3 import listens
from netdyno.switch.chain.vnf.base import IN, TRANSLATED, Changed, Vnf
from netdyno.switch.chain.vnf.routed import Router
from netdyno.system import namespace
from netdyno.system.process import Process, find

PORT = 60_001
"""Where a program of ours gets connections that go to the server."""
STARTS = 60.0
"""Seconds that a program may take on a busy machine."""
SERVERS = 2
FAMILIES = ("ip", "ip6")


class Relay(Router):
    """A router with a program that ends connections and begins others in their place."""

    program: ClassVar[tuple[str, str] | None] = ("nft", "nftables")

    def redirect(self, ports: str = "1-65535") -> None:
        """Give TCP connections from the client to these ports of the server to the program at `PORT`."""
        self.translate([
            f'iifname "{IN}" {family} daddr {one} tcp dport {{ {ports} }} redirect to :{PORT}'
            for family, one in zip(FAMILIES, self.site.server, strict=False)
        ])  # fmt: skip

    def translate(self, rules: list[str]) -> None:
        """Change destinations by a rule for each version of IP."""
        for family, rule in zip(FAMILIES, rules, strict=False):
            chain = f"type nat hook prerouting priority -100; {rule}"
            self.run(
                "nft", "-f", "-", text=f"table {family} netdyno {{\n  chain to {{\n    {chain}\n  }}\n}}\n"
            )

    def start(self, command: list[str], *, foreign: bool = False, **environment: str) -> Process:
        """The program; a port that another one has would pass for its own."""
        if namespace.inside(self.site.namespace, _listens):
            what = f"the function {self.site.name} cannot listen: another program has port {PORT}"
            fix = "End that program, which runs in the function's namespace"
            raise Error("ND-92-61", what, at=f"vnfs.{self.site.name}", fix=fix)
        return super().start(command, foreign=foreign, **environment)

    def fail(self) -> None:
        """Its program ends, if it has one; else it forwards no more."""
        if self.process is None:
            super().fail()
        else:
            Vnf.fail(self)

    def repair(self) -> bool:
        """It forwards again, unless its program has ended."""
        return super().repair() and self.alive()

    def await_ready(self) -> None:
        """Wait until the program listens, if there is one."""
        if self.process is None:
            return
        until = time.monotonic() + STARTS
        while self.process.exited() is None and time.monotonic() < until:
            if namespace.inside(self.site.namespace, _listens):
                return
            time.sleep(0.02)
        how = self.process.ending() or f"it does not listen within {STARTS:g} s"
        what = f"the function {self.site.name} does not start ({how}): {self.process.tail(3) or 'no log'}"
        raise Error("ND-92-61", what, at=f"vnfs.{self.site.name}")


def _listens() -> bool:
    # that of this thread: the others are in another namespace
    return any(listens(Path(f"/proc/thread-self/net/{name}").read_text(), PORT) for name in ("tcp", "tcp6"))


class Options(Settings):
    """Who balances, and how."""

    by: Literal["nft", "haproxy"] = "nft"
    """`nft`: the kernel changes the destination of each connection (DNAT). `haproxy`: it ends TCP connections
    and begins others to the server, from an address of its own; IPv4 only."""
    servers: int = Field(default=SERVERS, ge=2, le=16)
    """Addresses of the server that new connections go to in turn."""


class Balancer(Relay):
    """New connections to the server go to its further addresses in turn."""

    kind: ClassVar[str] = "balancer"
    about: ClassVar[str] = "a load balancer (nftables or haproxy)"
    Options = Options

    @classmethod
    def changes(cls, options: Mapping[str, Any]) -> Collection[Changed]:
        """The server's address."""
        return TRANSLATED

    @classmethod
    def servers(cls, options: Mapping[str, Any]) -> int:
        """As its options say."""
        number = options.get("servers", SERVERS)
        return number if isinstance(number, int) else 0

    @classmethod
    def ends(cls, options: Mapping[str, Any], protocol: str, port: int) -> bool:
        """haproxy ends all TCP connections."""
        return protocol == "tcp" and options.get("by") == "haproxy"

    @classmethod
    def carries_ipv6(cls, options: Mapping[str, Any]) -> bool:
        """haproxy does not learn where a connection over IPv6 was to go."""
        return options.get("by") != "haproxy"

    def setup(self) -> None:
        """The router, and what chooses."""
        super().setup()
        if self.options.by == "haproxy":
            program = find("haproxy", "haproxy")
            config = self.site.folder / f"vnf-{self.site.name}.cfg"
            files.write(config, self._config())
            self.start([program, "-db", "-f", str(config)])
            self.redirect()
            return
        self.translate([
            f'iifname "{IN}" {family} daddr {server} dnat to numgen inc mod {len(every)} map '
            f"{{ {', '.join(f'{number} : {one}' for number, one in enumerate(every))} }}"
            for family, server, every in zip(FAMILIES, self.site.server, self.site.backends, strict=False)
        ])  # fmt: skip

    def _config(self) -> str:
        """Servers without a port get the one that the client asked for."""
        lines = ["defaults", "  mode tcp", "  timeout connect 10s"]
        lines += ["  timeout client 1h", "  timeout server 1h"]
        lines += ["listen all", f"  bind 0.0.0.0:{PORT}", "  balance roundrobin"]
        lines += [f"  server s{number} {one}" for number, one in enumerate(self.site.backends[0])]
        return "\n".join(lines) + "\n"
