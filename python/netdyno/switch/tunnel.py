"""Tunnels between two switches: their description, and their headers on the underlay; pure."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, ip_interface
from typing import Any, Literal

from pydantic import Field, field_validator, model_validator

from netdyno import config
from netdyno.config import Config, parse_text
from netdyno.errors import Error
from netdyno.lab import impairment
from netdyno.lab.topology import End, Host, Link

Kind = Literal["vxlan", "geneve", "gre"]
SWITCH, REMOTE = "switch", "switch_remote"
"""Hosts of the switches: the client's, and the server's at the far end of the tunnel."""
SIDES = (SWITCH, REMOTE)
PROBER = "prober"
"""A host at the client's switch that probes the paths to the other."""
GATEWAYS = ("gateway", "gateway_remote")
"""Hosts between the switches if their tunnel is encrypted."""
LAN, WAN = "lan", "wan"
"""Interfaces of a gateway: to its switch, and to the other gateway."""
WIREGUARD_PORT = 51820
UNDERLAY, PORT, UNDER = "underlay", "tunnel", "under0"
"""Interface of each switch towards the other, the port of the tunnel on it, and the bridge of the underlay.
The bridge's own interface has the endpoint's address: the datapath finds the way by it."""
NETWORKS: Mapping[bool, tuple[str, int]] = {False: ("198.19.{}.", 24), True: ("2001:2:0:ff0{}::", 64)}
"""Networks of the underlay without and with IPv6 (RFC 2544 appendix C.2.2, RFC 5180 section 8), and their
prefix lengths. 0 is that of the endpoints; gateways have 1 and 2 at their switches, and 3 between them. The
next line has the next four, and so on."""
WIREGUARD = 60
"""Bytes that WireGuard adds over IPv4: headers of IP and UDP, its own, and the authentication tag."""
IPV6_MORE, IPV6_MTU = 20, 1280
"""Bytes by which a header of IPv6 is longer than one of IPv4, and its least MTU (RFC 8200 section 5)."""
HOST_MTU, LEAST_MTU = 1500, 576
_ETHERNET, _IPV4, _IPV6, _UDP = 14, 20, 40, 8
HEADERS: Mapping[Kind, int] = {
    "vxlan": _IPV4 + _UDP + 8 + _ETHERNET,
    "geneve": _IPV4 + _UDP + 8 + _ETHERNET,
    "gre": _IPV4 + 8 + _ETHERNET,
}
"""Bytes of an underlay packet before the IP packet of a host, over IPv4: RFC 7348, RFC 8926, RFC 2890."""
IP_MTU_DISCOVER, PROBE = 10, 3
"""Option of a socket: do not fragment, and ignore what the kernel knows of the path. See ip(7)."""
_KEYS = {"vxlan": 24, "geneve": 24, "gre": 32}
"""Bits of the virtual network identifier (VNI), or of the GRE key."""
_VXLAN_PORT, _GENEVE_PORT, _GRE = 4789, 6081, 47
_TRANSPARENT_ETHERNET = 0x6558


class Tunnel(Config):
    """A tunnel between two switches."""

    kind: Kind
    """`vxlan`, `geneve` or `gre` (with Ethernet frames inside)."""
    key: int = Field(default=42, ge=0)
    """Virtual network identifier (VNI), or GRE key."""
    mtu: int = Field(default=1500, ge=700, le=9000)
    """Largest packet on the underlay, bytes."""
    host_mtu: int | None = Field(default=None, ge=LEAST_MTU, le=HOST_MTU)
    """Largest packet that client and server send, bytes; default: the largest that fits."""
    ipv6: bool = False
    """Whether the underlay is IPv6; default: IPv4."""
    wireguard: bool = False
    """Whether gateways between the switches encrypt the underlay by WireGuard (wireguard-go)."""
    path: impairment.PathSpec | None = None
    """How the underlay treats packets, as in `netdyno impair`; default: a plain cable."""

    @model_validator(mode="after")
    def _key(self) -> Tunnel:
        bits = _KEYS[self.kind]
        if self.key >= 1 << bits:
            raise ValueError(f"a key of {self.kind} has {bits} bits: {self.key} is too large")
        if self.ipv6 and self.wire_mtu < IPV6_MTU:
            least = IPV6_MTU + self.mtu - self.wire_mtu
            raise ValueError(f"an underlay of IPv6 needs an mtu of {least} here: {self.mtu} is too small")
        return self

    def room(self, more: int = 0) -> int:
        """Largest packet of a host that fits, if frames have so many more bytes of headers."""
        return self.wire_mtu - self.own_headers - more

    @property
    def wire_mtu(self) -> int:
        """Largest packet between the switches, bytes: what encryption leaves of the underlay's."""
        return self.mtu - self._encryption

    @property
    def own_headers(self) -> int:
        """Bytes of the tunnel itself before the IP packet of a host."""
        return HEADERS[self.kind] + IPV6_MORE * self.ipv6

    @property
    def headers(self) -> int:
        """Bytes of an underlay packet before the IP packet of a host, and after it."""
        return self.own_headers + self._encryption

    @property
    def _encryption(self) -> int:
        return (WIREGUARD + IPV6_MORE * self.ipv6) * self.wireguard

    def hosts(self, more: int = 0) -> int:
        """Largest packet that hosts send."""
        return self.host_mtu or min(HOST_MTU, self.room(more))

    def __str__(self) -> str:
        below = ["WireGuard"] * self.wireguard + ["IPv6"] * self.ipv6
        return f"{NAMES[self.kind]} {self.key}{''.join(f' over {one}' for one in below)}"


NAMES: Mapping[Kind, str] = {"vxlan": "VXLAN", "geneve": "Geneve", "gre": "GRE"}


class ChainTunnel(Tunnel):
    """A tunnel of a chain: the server and some functions are on a second switch behind it."""

    server_side: list[str] = Field(default_factory=list)
    """Functions at the server's switch; the others are at the client's."""

    @field_validator("server_side")
    @classmethod
    def _once(cls, value: list[str]) -> list[str]:
        if twice := next((one for one in value if value.count(one) > 1), None):
            raise ValueError(f"{twice[:80]!r} is there twice")
        return value


def read(text: str, at: str = "--tunnel") -> dict[str, Any]:
    """`vxlan,key=7,mtu=1600,delay=20ms,loss=0.1%` or `geneve,path=wan` as a description."""
    kind, *parts = (part.strip() for part in text.split(","))
    found: dict[str, Any] = {"kind": kind}
    path: list[str] = []
    for part in parts:
        key, equals, value = part.partition("=")
        if not equals or not value:
            raise Error("ND-104-04", f"{part!r} says nothing of a tunnel", at=at, fix=_FIX)
        if key in impairment.KEYS:
            path.append(part)
        else:
            found[key] = value if key == "path" else parse_text(value, at)
    if path:
        if "path" in found:
            raise Error("ND-104-04", f"{path[0]!r} and a preset are both given", at=at, fix=_FIX)
        said = impairment.words(",".join(path), at)
        found["path"] = impairment.changed({}, dict.fromkeys(impairment.WAYS, said))
    checked(found, at)
    return found


def checked(given: str | Mapping[str, Any], at: str = "--tunnel") -> Tunnel:
    """A tunnel from its description, or from the words that `read` takes."""
    plain = read(given, at) if isinstance(given, str) else dict(given)
    return config.check(Tunnel, plain, "ND-104-85", at)


_FIX = "Write it like vxlan,key=42,mtu=1500,delay=20ms"


@dataclass(frozen=True)
class Line:
    """A way between the two switches: a tunnel over an underlay of its own, or a cable without one."""

    tunnel: Tunnel | None
    name: str = ""
    """Where there are several; empty: it is the only one."""
    number: int = 0
    path: str | dict[str, Any] | None = None
    """How it treats packets; None: a plain cable."""
    mtu: int = HOST_MTU
    """Largest packet on it, bytes."""

    @staticmethod
    def only(tunnel: Tunnel) -> Line:
        """That of a tunnel which is the only one."""
        return Line(tunnel, path=tunnel.path, mtu=tunnel.mtu)

    @property
    def port(self) -> str:
        """The name that rules have for its port at either switch."""
        return self.name or PORT

    @property
    def interface(self) -> str:
        """Of each switch's namespace, towards the other end."""
        return f"wan-{self.name}" if self.name else UNDERLAY

    @property
    def device(self) -> str:
        """The switch's own name of its port."""
        if self.tunnel is None:
            return self.interface
        return f"tun-{self.name}" if self.name else PORT

    @property
    def bridge(self) -> str:
        """Of the underlay."""
        return f"br-{self.name}" if self.name else UNDER

    @property
    def gateways(self) -> tuple[str, str]:
        """Hosts at both ends that encrypt it."""
        client, server = GATEWAYS
        return (f"{client}_{self.name}", f"{server}_{self.name}") if self.name else GATEWAYS

    def hosts(self, more: int = 0) -> int:
        """Largest packet that hosts send over it, if frames have so many more bytes of headers."""
        return self.tunnel.hosts(more) if self.tunnel else min(HOST_MTU, self.mtu - more)

    def address(self, network: int, host: int) -> str:
        """Of a host of a network of its underlay."""
        ipv6 = self.tunnel is not None and self.tunnel.ipv6
        number = 4 * self.number + network
        return f"{NETWORKS[ipv6][0].format(f'{number:x}' if ipv6 else number)}{f'{host:x}' if ipv6 else host}"

    def lan(self, side: int) -> str:
        """The network of a gateway and its switch."""
        return f"{ip_interface(f'{self.address(1 + side, 1)}/{self.prefix}').network}"

    def wan(self, side: int) -> str:
        """The address of a gateway towards the other."""
        return self.address(3, 1 + side)

    @property
    def prefix(self) -> int:
        """Length of the prefix of each network of the underlay."""
        return NETWORKS[self.tunnel is not None and self.tunnel.ipv6][1]

    def __str__(self) -> str:
        return ", ".join(part for part in (self.name, str(self.tunnel or "")) if part)


@dataclass(frozen=True)
class LineEnd:
    """An end of a line at a switch."""

    line: Line
    local: str = ""
    """Address of the endpoint of its tunnel; empty: it has none."""
    remote: str = ""
    gateway: str = ""
    """Address by which the other end is reached; empty: it is in the same network."""
    network: str = ""
    """Of the other end, if there is a gateway."""

    @staticmethod
    def of(line: Line, host: str) -> LineEnd:
        """That of the client's or the server's switch."""
        if line.tunnel is None:
            return LineEnd(line)
        side = SIDES.index(host)
        if not line.tunnel.wireguard:
            return LineEnd(line, line.address(0, 1 + side), line.address(0, 2 - side))
        local, remote, gateway = (
            line.address(*one) for one in ((1 + side, 1), (2 - side, 1), (1 + side, 254))
        )
        return LineEnd(line, local, remote, gateway=gateway, network=line.lan(1 - side))

    def options(self) -> dict[str, str]:
        """Options of Open vSwitch's port; none: it has no tunnel."""
        if self.line.tunnel is None:
            return {}
        return {"remote_ip": self.remote, "local_ip": self.local, "key": str(self.line.tunnel.key)}


def underlay(line: Line) -> tuple[dict[str, Host], list[Link]]:
    """Hosts and links between both switches."""
    off = {"tx": False, "tso": False, "gso": False, "gro": False}
    if line.tunnel is None or not line.tunnel.wireguard:
        a, b = (End(host=host, name=line.interface, offloads=off) for host in SIDES)
        return {}, [Link(a=a, b=b, mtu=line.mtu, impair=line.path)]
    links = [
        Link(
            a=End(host=switch, name=line.interface, offloads=off),
            b=End(
                host=gateway,
                name=LAN,
                addresses=[f"{line.address(number, 254)}/{line.prefix}"],
                offloads=off,
            ),
            mtu=line.mtu,
        )
        for number, (switch, gateway) in enumerate(zip(SIDES, line.gateways, strict=True), 1)
    ]
    a, b = (
        End(host=one, name=WAN, addresses=[f"{line.wan(side)}/{line.prefix}"], offloads=off)
        for side, one in enumerate(line.gateways)
    )
    links.append(Link(a=a, b=b, mtu=line.mtu, impair=line.path))
    forwarding = "net.ipv6.conf.all.forwarding" if line.tunnel.ipv6 else "net.ipv4.ip_forward"
    return {one: Host(sysctl={forwarding: 1}) for one in line.gateways}, links


@dataclass(frozen=True)
class Outer:
    """Headers that a tunnel put around a frame."""

    kind: Kind
    key: int
    source: str
    to: str

    def __str__(self) -> str:
        return f"{NAMES[self.kind]} {self.key} {self.source} → {self.to}"


def unwrapped(frame: bytes) -> tuple[Outer, bytes] | None:
    """The tunnel's headers of a frame on the underlay, and the frame inside; None: it has none."""
    if len(frame) >= _ETHERNET + _IPV6 and frame[12:14] == b"\x86\xdd":
        at, protocol = _ETHERNET + _IPV6, frame[20]
        source, to = (str(IPv6Address(frame[start : start + 16])) for start in (22, 38))
    elif len(frame) >= _ETHERNET + _IPV4 and frame[12:14] == b"\x08\x00":
        at, protocol = _ETHERNET + (frame[_ETHERNET] & 15) * 4, frame[23]
        source, to = (str(IPv4Address(frame[start : start + 4])) for start in (26, 30))
    else:
        return None
    if protocol == _GRE and len(frame) >= at + 4:
        flags, inner = struct.unpack_from("!HH", frame, at)
        if inner != _TRANSPARENT_ETHERNET or flags & 0x4007:
            return None
        start = at + 4 + 4 * bool(flags & 0x8000)
        key = 0
        if flags & 0x2000:
            if len(frame) < start + 4:
                return None
            (key,) = struct.unpack_from("!I", frame, start)
            start += 4
        return Outer("gre", key, source, to), frame[start + 4 * bool(flags & 0x1000) :]
    if protocol != 17 or len(frame) < at + 16:
        return None
    (port,) = struct.unpack_from("!H", frame, at + 2)
    key = struct.unpack_from("!I", frame, at + 12)[0] >> 8
    if port == _VXLAN_PORT and frame[at + 8] & 0x08:
        return Outer("vxlan", key, source, to), frame[at + 16 :]
    if port == _GENEVE_PORT and frame[at + 10 : at + 12] == b"\x65\x58":
        return Outer("geneve", key, source, to), frame[at + 16 + (frame[at + 8] & 0x3F) * 4 :]
    return None
