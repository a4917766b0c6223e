"""Actions of flow entries: output, select groups, VLAN tags and network service headers (NSH, RFC 8300).

Each is written in two forms: as `ovs-ofctl` takes it, and as OpenFlow 1.3 has it on the wire. NSH needs the
extensions `encap` and `decap` of Open vSwitch, which are experimenter actions.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

OUTPUT, PUSH_VLAN, POP_VLAN, GROUP, SET_FIELD, EXPERIMENTER = 0, 17, 18, 22, 25, 0xFFFF
VLAN_PRESENT = 0x1000
ETH_P_NSH = 0x894F
SELECT = 1
"""Type of a group that sends each flow to one of its buckets."""
_NICIRA, _ENCAP, _DECAP, _DEC_NSH_TTL = 0x2320, 46, 47, 48
_EXTENDED, _NSH_SPI, _NSH_SI = 0x005AD650, 4, 5
_ANY = 0xFFFFFFFF
FORWARD_MAC, REVERSE_MAC = "02:6e:64:00:00:0f", "02:6e:64:00:00:0e"
"""Ethernet addresses outside an NSH: a bridge between two ports learns one on each side."""


@dataclass(frozen=True)
class PushVlan:
    """Put a VLAN tag on."""

    vid: int

    def text(self) -> str:
        """As ovs-ofctl takes it."""
        return f"push_vlan:0x8100,set_field:{self.vid | VLAN_PRESENT}->vlan_vid"

    def wire(self) -> bytes:
        """As OpenFlow 1.3 has it."""
        vid = struct.pack("!H", self.vid | VLAN_PRESENT)
        return struct.pack("!HHH2x", PUSH_VLAN, 8, 0x8100) + _set_field(0x80000C00, vid)


@dataclass(frozen=True)
class PopVlan:
    """Take the VLAN tag off."""

    def text(self) -> str:
        """As ovs-ofctl takes it."""
        return "pop_vlan"

    def wire(self) -> bytes:
        """As OpenFlow 1.3 has it."""
        return struct.pack("!HH4x", POP_VLAN, 8)


@dataclass(frozen=True)
class SetNsh:
    """Set the path identifier (24 bits) and service index (8 bits) of the network service header."""

    path: int
    index: int

    def text(self) -> str:
        """As ovs-ofctl takes it."""
        return f"set_field:{self.path}->nsh_spi,set_field:{self.index}->nsh_si"

    def wire(self) -> bytes:
        """As OpenFlow 1.3 has it."""
        return _set_field(*nsh_field(_NSH_SPI, self.path)) + _set_field(*nsh_field(_NSH_SI, self.index))


@dataclass(frozen=True)
class DecNshTtl:
    """Take one off the TTL of the network service header; a packet is dropped whose TTL would be 0."""

    def text(self) -> str:
        """As ovs-ofctl takes it."""
        return "dec_nsh_ttl"

    def wire(self) -> bytes:
        """As OpenFlow 1.3 has it."""
        return _extension(_DEC_NSH_TTL, b"")


@dataclass(frozen=True)
class EncapNsh:
    """Put the frame into a network service header of MD type 2 with TTL 63, and that into Ethernet."""

    path: int
    index: int
    source: str = FORWARD_MAC
    to: str = REVERSE_MAC

    def text(self) -> str:
        """As ovs-ofctl takes it."""
        outer = f"set_field:{self.source}->eth_src,set_field:{self.to}->eth_dst"
        header = SetNsh(self.path, self.index).text()
        return f"encap(nsh(md_type=2)),{header},encap(ethernet),{outer}"

    def wire(self) -> bytes:
        """As OpenFlow 1.3 has it."""
        # a property of class 4 (NSH) and type 1: the MD type
        metadata = struct.pack("!HBBB3x", 4, 1, 5, 2)
        made = _extension(_ENCAP, struct.pack("!HI", 0, 1 << 16 | ETH_P_NSH) + metadata)
        made += SetNsh(self.path, self.index).wire() + _extension(_ENCAP, struct.pack("!HI", 0, 0))
        for header, address in ((0x80000800, self.source), (0x80000600, self.to)):
            made += _set_field(header, bytes.fromhex(address.replace(":", "")))
        return made


@dataclass(frozen=True)
class DecapNsh:
    """Take the outer Ethernet header and the network service header off."""

    def text(self) -> str:
        """As ovs-ofctl takes it."""
        return "decap(),decap()"

    def wire(self) -> bytes:
        """As OpenFlow 1.3 has it: the type of what is inside is for the switch to find."""
        return 2 * _extension(_DECAP, struct.pack("!HI", 0, 0xFFFE))


@dataclass(frozen=True)
class Select:
    """Send each flow to one of these ports, by a group of type `select`."""

    ports: tuple[str | int, ...]

    def group(self) -> Group:
        """The group. Its ports are numbers."""
        actions = [struct.pack("!HHIH6x", OUTPUT, 16, int(port), 0) for port in self.ports]
        head = (struct.pack("!HHII4x", 16 + len(one), 1, _ANY, _ANY) for one in actions)
        return Group(b"".join(map(bytes.__add__, head, actions)), tuple(map(int, self.ports)))

    def text(self) -> str:
        """As ovs-ofctl takes it."""
        return f"group:{self.group().number}"

    def wire(self) -> bytes:
        """As OpenFlow 1.3 has it."""
        return struct.pack("!HHI", GROUP, 8, self.group().number)


@dataclass(frozen=True)
class Group:
    """A group of type `select`. Its number follows from its buckets: it never changes, it is replaced."""

    buckets: bytes
    """As on the wire."""
    ports: tuple[int, ...] = ()

    @property
    def number(self) -> int:
        """Of the group, 1 … 0x7fffffff."""
        return (zlib.crc32(self.buckets) & 0x7FFFFFFF) or 1

    def text(self) -> str:
        """As ovs-ofctl takes it."""
        buckets = ",".join(f"bucket=weight:1,actions=output:{port}" for port in self.ports)
        return f"group_id={self.number},type=select,{buckets}"


@dataclass(frozen=True)
class Back:
    """Send it out by the port that it came in by."""

    def text(self) -> str:
        """As ovs-ofctl takes it."""
        return "in_port"

    def wire(self) -> bytes:
        """As OpenFlow 1.3 has it: the reserved port OFPP_IN_PORT."""
        return struct.pack("!HHIH6x", OUTPUT, 16, 0xFFFFFFF8, 0)


Action = Back | str | int | PushVlan | PopVlan | EncapNsh | SetNsh | DecNshTtl | DecapNsh | Select
"""A name or number is that of the port to output to."""


def ports(actions: Sequence[Action]) -> list[str | int]:
    """All ports that actions can send to."""
    found: list[str | int] = []
    for one in actions:
        if isinstance(one, str | int):
            found.append(one)
        elif isinstance(one, Select):
            found += one.ports
    return found


def renamed(actions: Sequence[Action], names: Mapping[str, str] | Mapping[str, int]) -> list[Action]:
    """The same with other names or with numbers of ports."""
    found: list[Action] = []
    for one in actions:
        if isinstance(one, str):
            found.append(names[one])
        elif isinstance(one, Select):
            found.append(replace(one, ports=tuple(names[str(port)] for port in one.ports)))
        else:
            found.append(one)
    return found


def groups(actions: Sequence[Action]) -> list[Group]:
    """Groups that actions name; ports are numbers."""
    return [one.group() for one in actions if isinstance(one, Select)]


def text(actions: Sequence[Action]) -> str:
    """Actions as ovs-ofctl takes them; ports are numbers."""
    return ",".join(f"output:{one}" if isinstance(one, str | int) else one.text() for one in actions)


def wire(actions: Sequence[Action]) -> bytes:
    """Actions as OpenFlow 1.3 has them; ports are numbers."""
    return b"".join(
        struct.pack("!HHIH6x", OUTPUT, 16, int(one), 0) if isinstance(one, str | int) else one.wire()
        for one in actions
    )


def nsh_field(field: int, value: int) -> tuple[int, bytes]:
    """A field of the network service header as header and body of an OXM, without the length."""
    return 0xFFFF0000 | field << 9, struct.pack("!I", _EXTENDED) + value.to_bytes(_NSH_BYTES[field], "big")


_NSH_BYTES = {_NSH_SPI: 4, _NSH_SI: 1}


def _set_field(header: int, value: bytes) -> bytes:
    made = struct.pack("!I", header | len(value)) + value
    length = -(-(4 + len(made)) // 8) * 8
    return struct.pack("!HH", SET_FIELD, length) + made.ljust(length - 4, b"\0")


def _extension(subtype: int, body: bytes) -> bytes:
    length = -(-(10 + len(body)) // 8) * 8
    return struct.pack("!HHIH", EXPERIMENTER, length, _NICIRA, subtype) + body.ljust(length - 10, b"\0")
