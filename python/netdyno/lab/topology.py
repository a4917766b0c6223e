"""The network under test, as data: hosts, and the links between them. `network.py` makes it real."""

from __future__ import annotations

import ipaddress
import os
import re
from collections import Counter
from collections.abc import Iterator
from typing import Any, Literal

from pydantic import Field, field_validator, model_validator

from netdyno.config import Config
from netdyno.errors import Error
from netdyno.lab.node import NODES
from netdyno.system import sysctl

MOST_HOSTS, MOST_LINKS, MOST_ADDRESSES = 256, 1024, 65_536
"""A topology may have so many: each is made, one after the other, in the kernel that all others run on."""
_NAME = re.compile(r"[a-z0-9][a-z0-9_]{0,31}")
_ADDRESS = re.compile(r"[0-9A-Fa-f:.]{2,45}")
"""No scope (`%eth0`): what stands there may be anything, and an address goes into files and command lines."""
_MAC = re.compile(r"[0-9a-fA-F]{2}(:[0-9a-fA-F]{2}){5}")
_OFFLOAD = re.compile(r"[a-z][a-z0-9-]{0,63}")


FORGET: dict[str, str | int] = {"net.ipv4.tcp_no_metrics_save": 1}
"""Of hosts that stay for all trials: no connection begins with what one of an earlier trial has learned."""


class Host(Config):
    """A machine of the topology."""

    kind: str = "namespace"
    """What it is: a `namespace` of this machine."""
    role: Literal["generator", "dut", "router"] = "dut"
    """What it is for; the daemon runs on the generator."""
    sysctl: dict[str, str | int] = Field(default_factory=dict)
    """Kernel parameters inside the namespace, `net.…` and no others."""

    @field_validator("kind")
    @classmethod
    def _kind(cls, value: str) -> str:
        if value not in NODES:
            raise ValueError(f"the kind of host {value[:80]!r} is not known; use {' or '.join(NODES)}")
        return value

    @field_validator("sysctl")
    @classmethod
    def _sysctl(cls, value: dict[str, str | int]) -> dict[str, str | int]:
        for key, text in value.items():
            try:
                sysctl.checked(key, text)
            except Error as e:
                raise ValueError(f"{e.what}. {e.fix}") from None
        return value


class End(Config):
    """One end of a link: an interface of a host."""

    host: str
    """Name of the host."""
    name: str = Field(default="eth0", pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.-]{0,14}$")
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
            address, slash, prefix = text.partition("/")
            if not slash:
                raise ValueError(f"{text} has no prefix length; write it like 10.9.0.1/24")
            if not _ADDRESS.fullmatch(address) or not re.fullmatch(r"[0-9]{1,3}", prefix):
                raise ValueError(f"{text[:80]!r} is not an address with its prefix, like 10.9.0.1/24")
            ipaddress.ip_interface(text)
        return value

    @field_validator("pool")
    @classmethod
    def _pool(cls, value: list[str]) -> list[str]:
        if sum(size(text) for text in value) > MOST_ADDRESSES:
            raise ValueError(f"these are more than {MOST_ADDRESSES} addresses")
        found = Counter(address for text in value for address in expand(text))
        if twice := [address for address, count in found.items() if count > 1]:
            raise ValueError(f"{twice[0]} is in the pool twice")
        return value

    @field_validator("mac")
    @classmethod
    def _mac(cls, value: str | None) -> str | None:
        if value is not None and (not _MAC.fullmatch(value) or int(value[:2], 16) & 1):
            raise ValueError("write an Ethernet address of one interface like 02:00:00:00:00:01")
        return value

    @field_validator("offloads")
    @classmethod
    def _offloads(cls, value: dict[str, bool]) -> dict[str, bool]:
        for key in value:
            if not _OFFLOAD.fullmatch(key):
                raise ValueError(f"{key[:80]!r} is no offload; `ethtool -k` lists them")
        return value

    def own(self) -> list[str]:
        """What nobody else on the link or the host can have."""
        addresses = [str(ipaddress.ip_interface(text).ip) for text in self.addresses]
        return addresses + ([self.mac.lower()] if self.mac else [])

    def __str__(self) -> str:
        return f"{self.host}.{self.name}"


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
        if len(self.hosts) > MOST_HOSTS or len(self.links) > MOST_LINKS:
            raise ValueError(f"there can be {MOST_HOSTS} hosts and {MOST_LINKS} links at most")
        for name in self.hosts:
            if not _NAME.fullmatch(name):
                raise ValueError(f"the host name {name[:80]!r} must be of small letters, digits and _")
        seen: set[tuple[str, str]] = set()
        for link in self.links:
            for end in (link.a, link.b):
                if end.host not in self.hosts:
                    raise ValueError(f"a link names the host {end.host!r}, which is not in hosts")
                if (end.host, end.name) in seen:
                    raise ValueError(f"the host {end.host!r} has two interfaces named {end.name!r}")
                seen.add((end.host, end.name))
            _distinct([*link.a.own(), *link.b.own()], f"the link {link.a} – {link.b}")
        for name in self.hosts:
            _distinct([one for end in self.ends(name) for one in end.own()], f"the host {name!r}")
        if sum(host.role == "generator" for host in self.hosts.values()) > 1:
            raise ValueError("only one host can be the generator")
        if sum(size(text) for end in self._ends() for text in end.pool) > MOST_ADDRESSES:
            raise ValueError(f"the pools have more than {MOST_ADDRESSES} addresses together")
        return self

    def _ends(self) -> Iterator[End]:
        return (end for link in self.links for end in (link.a, link.b))

    @property
    def generator(self) -> str | None:
        """The host that the daemon runs on."""
        return next((name for name, host in self.hosts.items() if host.role == "generator"), None)

    def address(self, host: str, version: int = 4) -> str:
        """The first address of a host that others can reach it at."""
        for end in self.ends(host):
            for text in end.addresses:
                address = ipaddress.ip_interface(text).ip
                if address.version == version:
                    return str(address)
        if version == 4:
            return self.address(host, 6)
        raise Error("ND-104-29", f"the host {host!r} has no address", at=f"topology.hosts.{host}")

    def ends(self, host: str) -> Iterator[End]:
        """The interfaces of a host."""
        return (end for end in self._ends() if end.host == host)


def _distinct(addresses: list[str], at: str) -> None:
    twice = [one for one, count in Counter(addresses).items() if count > 1]
    if twice:
        raise ValueError(f"{at} has the address {twice[0]} twice")


def need_root() -> None:
    """Refuse to make network namespaces without the rights for it."""
    if os.geteuid() != 0:
        raise Error(
            "ND-92-22",
            "network namespaces need root",
            fix="Run it with sudo",
        )


def expand(text: str) -> Iterator[str]:
    """The addresses of `10.9.1.1`, `10.9.1.0/28` (its hosts) or `10.9.1.1-10.9.1.9`."""
    size(text)
    if "-" in text:
        first, last = _range(text)
        make = type(first)
        for number in range(int(first), int(last) + 1):
            yield str(make(number))
    elif "/" in text:
        yield from (str(address) for address in ipaddress.ip_network(text).hosts())
    else:
        yield str(ipaddress.ip_address(text))


def size(text: str) -> int:
    """How many addresses these are at most; raises when they are none, or more than anybody needs."""
    if not all(_ADDRESS.fullmatch(part.strip()) for part in re.split(r"-|/[0-9]{1,3}$", text) if part):
        raise ValueError(f"{text[:80]!r} is no address, network or range of addresses")
    if "-" in text:
        first, last = _range(text)
        found = int(last) - int(first) + 1
    else:
        found = ipaddress.ip_network(text).num_addresses if "/" in text else 1
        if "/" not in text:
            ipaddress.ip_address(text)
    if found > MOST_ADDRESSES:
        raise ValueError(f"{text} has more than {MOST_ADDRESSES} addresses")
    return found


def _range(text: str) -> tuple[ipaddress.IPv4Address | ipaddress.IPv6Address, ...]:
    first, last = (ipaddress.ip_address(part.strip()) for part in text.split("-", 1))
    if first.version != last.version or int(last) < int(first):
        raise ValueError(f"{text} is not a range of addresses")
    return first, last
