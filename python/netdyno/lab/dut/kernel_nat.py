"""The kernel's NAT as a device under test: a namespace that forwards, with rules of nftables."""

from __future__ import annotations

import ipaddress
import subprocess
from pathlib import Path
from typing import ClassVar

from pydantic import Field, field_validator

from netdyno.errors import Error
from netdyno.lab.dut.base import Dut, Settings, url_host
from netdyno.system import namespace
from netdyno.system.process import Process, find

COUNT = Path("/proc/sys/net/netfilter/nf_conntrack_count")
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
    """The address that all subscribers get; default: that of the interface."""

    @field_validator("router", "gateway", "public")
    @classmethod
    def _address(cls, value: str | None) -> str | None:
        return None if value is None else str(ipaddress.IPv4Address(value))

    @field_validator("subscribers")
    @classmethod
    def _prefix(cls, value: str | None) -> str | None:
        return None if value is None else str(ipaddress.IPv4Network(value))


class KernelNat(Dut):
    """Source NAT in a namespace. Its process only watches that nobody changes the rules."""

    driver: ClassVar[str] = "kernel-nat"
    Options = Options

    def setup(self) -> None:
        """Rules, routes, and which cores take the packets that come in."""
        try:
            self._nft(rules(self.options.outside, self.options.public))
            namespace.inside(self.place.namespace, self._routes)
            self._steer()
            self.process = Process(
                [find("nft", "nftables"), "monitor", "ruleset"],
                log=self.place.log or self.folder / "log",
                namespace=self.place.namespace,
                notes=self.place.notes,
            )
        except BaseException:
            self.teardown()
            raise

    def _nft(self, text: str) -> None:
        done = self._run([find("nft", "nftables"), "-f", "-"], text)
        if done.returncode:
            what = f"the kernel's NAT cannot be set up: {done.stderr.strip().splitlines()[-1:]}"
            fix = "It needs the kernel's modules nf_tables and nft_chain_nat"
            raise Error("ND-92-35", what, at=self.place.at, fix=fix)

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

    def _steer(self) -> None:
        """Have its cores do the work (RPS): what comes by a veth pair is else worked on where it was sent."""
        if not self.place.cores or self.place.namespace is None:
            return
        mask = f"{sum(1 << core for core in self.place.cores):x}"
        for interface in {self.options.inside, self.options.outside}:
            file = f"/sys/class/net/{interface}/queues/rx-0/rps_cpus"
            # /sys shows the interfaces of the namespace in which it was mounted, which `ip netns exec` does
            done = self._run(
                [find("ip", "iproute2"), "netns", "exec", self.place.namespace, "tee", file], mask, here=True
            )
            if done.returncode:
                what = f"its packets cannot be given to cores {self.place.cores}: {done.stderr.strip()}"
                raise Error("ND-92-26", what, at=self.place.at, fix="Leave its cores out")

    def _run(self, command: list[str], text: str, *, here: bool = False) -> subprocess.CompletedProcess[str]:
        def work() -> subprocess.CompletedProcess[str]:
            return subprocess.run(command, input=text, capture_output=True, text=True, check=False)

        return work() if here else namespace.inside(self.place.namespace, work)

    def targets(self) -> dict[str, str]:
        return {"udp": f"udp://{url_host(self.place.address)}:7"}

    def counters(self) -> dict[str, float]:
        """Its sessions, and what its interfaces passed on."""
        found: dict[str, float] = {"sessions": float(namespace.inside(self.place.namespace, _sessions))}
        text = namespace.inside(self.place.namespace, Path("/proc/thread-self/net/dev").read_text)
        for line in text.splitlines()[2:]:
            name, _, rest = line.partition(":")
            if name.strip() in (self.options.inside, self.options.outside):
                words = rest.split()
                for key, column in (
                    ("rx_packets", 1),
                    ("rx_dropped", 3),
                    ("tx_packets", 9),
                    ("tx_dropped", 11),
                ):
                    found[f"{name.strip()}.{key}"] = float(words[column])
        return found

    def cpu(self) -> float:
        """Seconds of softirq on its cores: the kernel's network work is no process's."""
        wanted = {f"cpu{core}" for core in self.place.cores} or {"cpu"}
        lines = (line.split() for line in Path("/proc/stat").read_text().splitlines())
        return sum(int(words[SOFTIRQ]) for words in lines if words and words[0] in wanted) / TICKS

    def version(self) -> str:
        """Of the kernel."""
        return Path("/proc/sys/kernel/osrelease").read_text().strip()

    def teardown(self) -> None:
        if self.process is not None:
            self._run([find("nft", "nftables"), "-f", "-"], "table ip netdyno\ndelete table ip netdyno\n")
        super().teardown()


def _sessions() -> int:
    try:
        return int(COUNT.read_text())
    except OSError:
        return 0


def rules(outside: str, public: str | None) -> str:
    """A table of its own: what leaves gets another source. Ports stay as they are where they are free."""
    action = f"snat to {public}" if public else "masquerade"
    return f"""
table ip netdyno
delete table ip netdyno
table ip netdyno {{
  chain leaving {{
    type nat hook postrouting priority srcnat;
    oifname "{outside}" {action}
  }}
}}
"""
