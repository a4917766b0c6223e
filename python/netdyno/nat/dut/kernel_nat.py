"""The kernel's NAT as a device under test: a namespace that forwards, with rules of nftables."""

from __future__ import annotations

import ipaddress
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

from pydantic import Field, field_validator

from netdyno.errors import Error
from netdyno.lab.counters import devices
from netdyno.lab.dut.base import Dut, Settings, url_host
from netdyno.nat.access import kernel_nat
from netdyno.nat.dut.sessions import KeepsSessions
from netdyno.system import namespace
from netdyno.system.process import Process, find

COUNT = Path("/proc/sys/net/netfilter/nf_conntrack_count")
TIMEOUTS = tuple(COUNT.with_name(f"nf_conntrack_udp_timeout{of}") for of in ("", "_stream"))
IDLE = 3600
"""Seconds for which a session of UDP is kept without a packet: what is measured is room, not age."""
SOFTIRQ, TICKS = 7, 100.0
"""Which column of /proc/stat is the kernel's network work, and its unit: a hundredth of a second."""


class Options(Settings):
    """Interfaces and addresses."""

    inside: str = Field(default="eth0", pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.-]{0,14}$")
    """Interface towards subscribers."""
    outside: str = Field(default="eth0", pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.-]{0,14}$")
    """Interface away from them."""
    subscribers: str | None = None
    """Their prefix, where a router leads to it."""
    router: str | None = None
    """That router, on the inside."""
    gateway: str | None = None
    """The router outside, to which everything else goes."""
    public: str | None = None
    """What subscribers get, an address or a prefix; default: the address of the interface."""

    @field_validator("router", "gateway")
    @classmethod
    def _address(cls, value: str | None) -> str | None:
        return None if value is None else str(ipaddress.IPv4Address(value))

    @field_validator("subscribers", "public")
    @classmethod
    def _prefix(cls, value: str | None) -> str | None:
        return None if value is None else str(ipaddress.IPv4Network(value))


class KernelNat(Dut, KeepsSessions):
    """Source NAT in a namespace. Its process only watches that nobody changes the rules."""

    driver: ClassVar[str] = "kernel-nat"
    Options = Options

    def setup(self) -> None:
        """Rules, routes, and which cores take the packets that come in."""
        space = self.place.namespace
        if space is None:
            what = "the kernel's NAT would change the rules and routes of this machine itself"
            raise Error("ND-104-07", what, at=f"duts.{self.place.name}", fix="Give it a host of a topology")
        try:
            rules = kernel_nat.rules(self.options.outside, self.options.public)
            kernel_nat.translate(space, rules, self.place.at)
            namespace.inside(space, self._keep)
            namespace.inside(space, self._routes)
            self._steer(space)
            self.process = Process(
                [find("nft", "nftables"), "monitor", "ruleset"],
                log=self.place.log or self.folder / "log",
                namespace=space,
                notes=self.place.notes,
            )
        except BaseException:
            self.teardown()
            raise

    def _keep(self) -> None:
        """Its rules loaded the module that has these settings; each namespace has its own."""
        try:
            for file in TIMEOUTS:
                file.write_text(str(IDLE))
        except OSError as e:
            what = f"the kernel's NAT cannot be told how long it keeps sessions: {e}"
            fix = "It needs the kernel's module nf_conntrack, and /proc/sys to be writable"
            raise Error("ND-92-35", what, at=self.place.at, fix=fix) from e

    def _routes(self) -> None:
        # a large library, of which runs without a topology need nothing
        from pyroute2 import IPRoute
        from pyroute2.netlink.exceptions import NetlinkError

        o = self.options
        wanted = {o.subscribers: o.router} if o.subscribers and o.router else {}
        wanted |= {"default": o.gateway} if o.gateway else {}
        try:
            with IPRoute() as ip:
                for to, by in wanted.items():
                    ip.route("replace", dst=to, gateway=by)
        except (NetlinkError, OSError) as e:
            what = f"the kernel's NAT has no route: {e}"
            fix = "Routers must be in networks of its interfaces"
            raise Error("ND-92-26", what, at=self.place.at, fix=fix) from e

    def _steer(self, space: str) -> None:
        """Have its cores do the work (RPS): what comes by a veth pair is else worked on where it was sent."""
        if not self.place.cores:
            return
        for interface in {self.options.inside, self.options.outside}:
            file = f"/sys/class/net/{interface}/queues/rx-0/rps_cpus"
            # /sys shows the interfaces of the namespace in which it was mounted, which `ip netns exec` does
            command = [find("ip", "iproute2"), "netns", "exec", space, "tee", file]
            done = subprocess.run(
                command, input=mask(self.place.cores), capture_output=True, text=True, check=False
            )
            if done.returncode:
                what = f"its packets cannot be given to cores {self.place.cores}: {done.stderr.strip()}"
                raise Error("ND-92-26", what, at=self.place.at, fix="Leave its cores out")

    def targets(self) -> dict[str, str]:
        return {"udp": f"udp://{url_host(self.place.address)}:7"}

    def counters(self) -> dict[str, float]:
        """Its sessions, and what its interfaces passed on."""
        found: dict[str, float] = {"sessions": float(self.sessions()), **self.cleared}
        there = namespace.inside(self.place.namespace, devices)
        for name in {self.options.inside, self.options.outside} & set(there):
            for key in ("rx_packets", "rx_dropped", "tx_packets", "tx_dropped"):
                found[f"{name}.{key}"] = there[name][key]
        return found

    def sessions(self) -> int:
        return namespace.inside(self.place.namespace, _sessions)

    def clear_sessions(self) -> float:
        return namespace.inside(self.place.namespace, self._flush)

    def _flush(self) -> float:
        """What `conntrack -F` does."""
        # a large library, of which most runs need nothing
        from pyroute2 import NFCTSocket
        from pyroute2.netlink.exceptions import NetlinkError

        try:
            with NFCTSocket() as conntrack:
                began = time.monotonic()
                conntrack.flush()
                return time.monotonic() - began
        except (NetlinkError, OSError) as e:
            what = f"the kernel's sessions cannot be cleared: {e}"
            fix = "It needs the kernel's module nf_conntrack_netlink"
            raise Error("ND-92-35", what, at=self.place.at, fix=fix) from e

    def cpu(self) -> float:
        """Seconds of softirq on its cores: the kernel's network work is no process's."""
        wanted = {f"cpu{core}" for core in self.place.cores} or {"cpu"}
        lines = (line.split() for line in Path("/proc/stat").read_text().splitlines())
        return sum(int(words[SOFTIRQ]) for words in lines if words and words[0] in wanted) / TICKS

    def version(self) -> str:
        """Of the kernel."""
        return Path("/proc/sys/kernel/osrelease").read_text().strip()

    def teardown(self) -> None:
        try:
            if self.process is not None and self.place.namespace is not None:
                kernel_nat.translate(self.place.namespace, kernel_nat.NONE, self.place.at)
        finally:
            super().teardown()


def _sessions() -> int:
    try:
        return int(COUNT.read_text())
    except OSError:
        return 0


def mask(cores: Sequence[int]) -> str:
    """Cores as /sys takes them: words of 32, the highest first, with commas between."""
    bits = sum(1 << core for core in set(cores))
    words = [bits >> at & 0xFFFF_FFFF for at in range(0, max(1, bits.bit_length()), 32)]
    return ",".join([f"{words[-1]:x}", *(f"{word:08x}" for word in reversed(words[:-1]))])
