"""The network under test: hosts are network namespaces, links are veth pairs, or impaired.

A topology is data. `Network` makes it real, journalled piece by piece before it is made, and takes it away:
what lives in a namespace of ours goes with that namespace.
"""

from __future__ import annotations

import contextlib
import ipaddress
import os
import subprocess
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Literal

from pydantic import Field, field_validator, model_validator

from netdyno import namespace
from netdyno.config import Config
from netdyno.errors import Error
from netdyno.journal import Journal, journal
from netdyno.links import Impaired, Links, Side
from netdyno.process import find

IFA_F_NODAD = 0x02
"""An IPv6 address that is usable at once: nobody else can have it in a network of our own."""

_NAME = r"^[a-z0-9][a-z0-9_]{0,31}$"


class Host(Config):
    """A machine of the topology."""

    role: Literal["generator", "dut", "router"] = "dut"
    """What it is for; the daemon runs on the generator."""
    sysctl: dict[str, str | int] = Field(default_factory=dict)
    """Kernel parameters inside the namespace, `net.…`."""


class End(Config):
    """One end of a link: an interface of a host."""

    host: str
    """Name of the host."""
    name: str = Field(default="eth0", pattern=r"^[A-Za-z0-9_.-]{1,15}$")
    """Name of the interface."""
    addresses: list[str] = Field(default_factory=list)
    """Addresses with their prefix, like `10.9.0.1/24`."""
    pool: list[str] = Field(default_factory=list)
    """Further addresses to send from: `10.9.1.0/28` (its hosts) or `10.9.1.1-10.9.1.9`."""
    mac: str | None = None
    """Ethernet address; default: the kernel chooses."""
    offloads: dict[str, bool] = Field(default_factory=dict)
    """As in `ethtool -K`: `{tx: false}`."""

    @field_validator("addresses")
    @classmethod
    def _addresses(cls, value: list[str]) -> list[str]:
        for text in value:
            if "/" not in text:
                raise ValueError(f"{text} has no prefix length; write it like 10.9.0.1/24")
            ipaddress.ip_interface(text)
        return value

    @field_validator("pool")
    @classmethod
    def _pool(cls, value: list[str]) -> list[str]:
        for text in value:
            list(expand(text))
        return value


class Link(Config):
    """A cable between two hosts."""

    a: End
    """One end."""
    b: End
    """The other."""
    mtu: int = Field(default=1500, ge=68, le=65535)
    """Largest packet, bytes."""
    impair: str | dict[str, Any] | None = None
    """How it treats packets from `a` to `b` and back: a [specification](impair.md), or a preset like `lte`.
    Default: a plain cable."""


class Topology(Config):
    """Hosts and the links between them."""

    hosts: dict[str, Host]
    """Machines by name: small letters, digits and `_`."""
    links: list[Link] = Field(default_factory=list)
    """Cables between them."""

    @model_validator(mode="after")
    def _consistent(self) -> Topology:
        import re

        seen: set[tuple[str, str]] = set()
        for name in self.hosts:
            if not re.match(_NAME, name):
                raise ValueError(f"the host name {name!r} must be of small letters, digits and _")
        for link in self.links:
            for end in (link.a, link.b):
                if end.host not in self.hosts:
                    raise ValueError(f"a link names the host {end.host!r}, which is not in hosts")
                if (end.host, end.name) in seen:
                    raise ValueError(f"the host {end.host!r} has two interfaces named {end.name!r}")
                seen.add((end.host, end.name))
        if sum(host.role == "generator" for host in self.hosts.values()) > 1:
            raise ValueError("only one host can be the generator")
        return self

    @property
    def generator(self) -> str | None:
        """The host that the daemon runs on."""
        return next((name for name, host in self.hosts.items() if host.role == "generator"), None)

    def ends(self, host: str) -> Iterator[End]:
        """The interfaces of a host."""
        for link in self.links:
            for end in (link.a, link.b):
                if end.host == host:
                    yield end


def need_root() -> None:
    """Refuse to make network namespaces without the rights for it."""
    if os.geteuid() != 0:
        raise Error(
            "ND-92-22",
            "a topology of network namespaces needs root",
            fix="Run it with sudo, or point a profile at a server that is there: netdyno run mqtt://HOST",
        )


def expand(text: str) -> Iterator[str]:
    """The addresses of `10.9.1.1`, `10.9.1.0/28` (its hosts) or `10.9.1.1-10.9.1.9`."""
    if "-" in text:
        first, last = (ipaddress.ip_address(part.strip()) for part in text.split("-", 1))
        if first.version != last.version or int(last) < int(first):
            raise ValueError(f"{text} is not a range of addresses")
        if int(last) - int(first) >= 65536:
            raise ValueError(f"{text} has more than 65536 addresses")
        for number in range(int(first), int(last) + 1):
            yield str(ipaddress.ip_address(number) if first.version == 4 else ipaddress.IPv6Address(number))
    elif "/" in text:
        network = ipaddress.ip_network(text)
        if network.num_addresses > 65536:
            raise ValueError(f"{text} has more than 65536 addresses")
        yield from (str(address) for address in network.hosts())
    else:
        yield str(ipaddress.ip_address(text))


class Network:
    """A topology made real for one run."""

    def __init__(
        self, topology: Topology, run: str, notes: Journal | None = None, log: Path = Path(os.devnull)
    ) -> None:
        self.topology = topology
        self.run = run
        self.log = log
        """Where the daemon that carries impaired links logs."""
        self.links: Links | None = None
        self._notes = notes or journal()
        self._entries: list[int] = []
        self._impaired: list[tuple[Link, Impaired]] = []

    def namespace(self, host: str) -> str:
        """The network namespace of a host."""
        return f"nd-{self.run}-{host}"

    def address(self, host: str, version: int = 4) -> str:
        """The first address of a host that others can reach it at."""
        for end in self.topology.ends(host):
            for text in end.addresses:
                address = ipaddress.ip_interface(text).ip
                if address.version == version:
                    return str(address)
        if version == 4:
            return self.address(host, 6)
        raise Error("ND-104-29", f"the host {host!r} has no address", at=f"topology.hosts.{host}")

    def up(self) -> None:
        """Make everything; on failure what was made is taken away again."""
        need_root()
        # a large library, of which runs without a topology need nothing
        from pyroute2.netlink.exceptions import NetlinkError

        try:
            for host in self.topology.hosts:
                self._entries.append(self._notes.write("namespace", name=self.namespace(host)))
                namespace.create(self.namespace(host))
            for link in self.topology.links:
                self._link(link)
            for name, host_model in self.topology.hosts.items():
                self._inside(name, lambda ip: ip.link("set", index=1, state="up"))
                for key, value in host_model.sysctl.items():
                    namespace.write_sysctl(self.namespace(name), key, str(value))
        except (NetlinkError, OSError) as e:
            with contextlib.suppress(Error):
                self.down()
            raise Error(
                "ND-92-26",
                f"the topology could not be made: {e}",
                fix="`netdyno doctor` shows whether namespaces and veth links work here",
            ) from e
        except BaseException:
            with contextlib.suppress(Error):
                self.down()
            raise

    def down(self) -> None:
        """Take everything away."""
        entries, self._entries = self._entries, []
        links, self.links = self.links, None
        self._impaired.clear()
        try:
            if links:
                links.stop()
        finally:
            self._notes.undo(*entries)

    def impaired(self) -> Iterator[tuple[Link, dict[str, Any]]]:
        """Each impaired link and its counters. Raises when one carries nothing any more."""
        for link, made in self._impaired:
            assert self.links is not None
            yield link, self.links.stats(made)

    def _inside(self, host: str, work: Callable[[Any], None]) -> None:
        """Do netlink work in the namespace of a host."""

        from pyroute2 import IPRoute

        def connected() -> None:
            with IPRoute() as ip:
                work(ip)

        namespace.inside(self.namespace(host), connected)

    def _link(self, link: Link) -> None:
        a, b = link.a, link.b
        if link.impair is None:
            self._cable(a, b)
        else:
            self.links = self.links or Links(self.run, self.log, self._notes)
            left, right = (Side(self.namespace(end.host), end.name, end.mac) for end in (a, b))
            self._impaired.append((link, self.links.start(left, right, link.impair, link.mtu)))
        for end in (a, b):
            self._inside(end.host, partial(self._interface, end, link.mtu))

    def _cable(self, a: End, b: End) -> None:
        peer = {"ifname": b.name, "net_ns_fd": self.namespace(b.host)}
        self._inside(a.host, lambda ip: ip.link("add", ifname=a.name, kind="veth", peer=peer))

    def _interface(self, end: End, mtu: int, ip: Any) -> None:
        index = ip.link_lookup(ifname=end.name)[0]
        ip.link("set", index=index, mtu=mtu, **({"address": end.mac} if end.mac else {}))
        if end.offloads:
            self._offloads(end)
        ip.link("set", index=index, state="up")
        for text in end.addresses:
            add_address(ip, index, ipaddress.ip_interface(text))
        for text in end.pool:
            for address in expand(text):
                add_address(ip, index, ipaddress.ip_interface(address))

    def _offloads(self, end: End) -> None:
        words = [word for key, on in end.offloads.items() for word in (key, "on" if on else "off")]
        command = [find("ethtool", "ethtool"), "-K", end.name, *words]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise Error(
                "ND-92-26",
                f"ethtool -K {end.name} {' '.join(words)}: {done.stderr.strip()}",
                at=end.host,
                fix="`ethtool -k` lists the offloads that an interface has",
            )

    def __enter__(self) -> Network:
        self.up()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.down()


def add_address(ip: Any, index: int, interface: ipaddress.IPv4Interface | ipaddress.IPv6Interface) -> None:
    """Give an interface an address that is usable at once."""
    flags = {"flags": IFA_F_NODAD} if interface.version == 6 else {}
    ip.addr("add", index=index, address=str(interface.ip), prefixlen=interface.network.prefixlen, **flags)
