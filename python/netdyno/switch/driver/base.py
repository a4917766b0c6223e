"""The contract of a switch driver: set-up, ports, flows, counters, tear-down.

A switch is a device under test of the platform (`lab/dut/base.py`) that joins interfaces of its namespace.
Without flows it learns Ethernet addresses; one with OpenFlow can be programmed with `Flow`s instead.
"""

from __future__ import annotations

import re
import socket
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from pydantic import Field, field_validator

from netdyno.errors import Error
from netdyno.lab.counters import devices
from netdyno.lab.dut.base import Dut, DutSite, Settings
from netdyno.switch.openflow import action
from netdyno.switch.openflow.action import Action
from netdyno.switch.tunnel import Line, LineEnd
from netdyno.system import namespace
from netdyno.system.process import Process, find

STATISTICS = ("rx_packets", "rx_bytes", "rx_dropped", "tx_packets", "tx_bytes", "tx_dropped")
"""Counters of each port, seen from the switch."""


class PortSettings(Settings):
    """Settings of every switch."""

    ports: list[str] = Field(default_factory=list, max_length=4096)
    """Interfaces that it joins; default: all of its host but loopback."""

    @field_validator("ports")
    @classmethod
    def _ports(cls, value: list[str]) -> list[str]:
        for name in value:
            if not namespace.is_interface(name):
                raise ValueError(f"{name[:80]!r} cannot be the name of an interface")
        if twice := next((name for name in value if value.count(name) > 1), None):
            raise ValueError(f"the port {twice} is there twice")
        return value


@dataclass(frozen=True)
class Flow:
    """One rule of a flow table: what it matches, and what is done with such packets."""

    cookie: int
    """Its number; counters are read by it."""
    in_port: str
    """Port that packets come in by; empty: any."""
    actions: Sequence[Action]
    """What is done with them, in order; a name is the port to send them to. None: they are dropped."""
    match: Mapping[str, str] = field(default_factory=dict)
    """Further fields by their names in ovs-fields(7), like `{"tcp": "", "tp_dst": "80"}`."""
    priority: int = 100


@dataclass(frozen=True)
class Wiring:
    """How a bench or a chain joins a switch: nothing that a user sets."""

    ports: Sequence[str] = ()
    """Interfaces that it joins in place of those of its options; none: these."""
    learning: bool = True
    """It learns Ethernet addresses until flows are programmed; false: it forwards nothing until then."""
    sockets: Path | None = None
    """Folder in which processes that share memory with it listen, each by its port: `PORT.vhost`; none: one
    of its own."""
    shared: Sequence[str] = ()
    """Ports over shared memory beside others. Copies of what passes them go to the interfaces of their names,
    and of their names with `-sent`, while somebody watches."""
    memif: Sequence[str] = ()
    """Those of `shared` that are over memif: the switch listens, and a process connects to it."""


class Switch(Dut):
    """A virtual switch between interfaces of one namespace."""

    about: ClassVar[str]
    """In a sentence."""
    openflow: ClassVar[bool] = False
    """Whether flows can be programmed."""
    tunnels: ClassVar[bool] = False
    """Whether it has tunnels to another switch."""
    reached: ClassVar[bool] = False
    shares_memory: ClassVar[bool] = False
    """Whether it can have ports over shared memory beside interfaces: `shared` of its wiring."""
    most_ports: ClassVar[int | None] = None
    """Ports that it can have at most; None: as many as the kernel has interfaces."""
    Options: ClassVar[type[Settings]] = PortSettings

    def __init__(
        self, place: DutSite, options: Mapping[str, Any] | None = None, wiring: Wiring | None = None
    ) -> None:
        super().__init__(place, options)
        self.wiring = wiring or Wiring()
        self.ports: Sequence[str] = ()
        """Interfaces that it joins, once it is set up."""
        self.ends: Sequence[LineEnd] = ()
        """Its ends of lines to another switch; each is a further port."""

    @property
    def segments(self) -> bool:
        """Whether it carries segments of TCP beyond the MTU, with checksums left to be filled in."""
        return False

    @property
    def vhost_user(self) -> bool:
        """Whether its ports are of other processes, over vhost-user, in place of interfaces."""
        return False

    @property
    def interfaces(self) -> bool:
        """Whether its ports are interfaces of its namespace."""
        return True

    @property
    def visible(self) -> bool:
        """Whether captures at its interfaces show what it takes and sends."""
        return self.interfaces

    @classmethod
    @abstractmethod
    def missing(cls) -> str:
        """Why this machine cannot run it; empty: it can."""

    def program(self, flows: Sequence[Flow]) -> None:
        """Replace all flows by these. Nothing else is forwarded then."""
        raise Error(
            "ND-104-80",
            f"{self.driver} has no flow table",
            at=self.place.at,
            fix="Use a switch with OpenFlow, such as ovs-netdev",
        )

    @property
    def numbers(self) -> Mapping[str, int]:
        """OpenFlow's number of each port."""
        every = (*self.ports, *(end.line.device for end in self.ends))
        return {port: number for number, port in enumerate(every, 1)}

    def join(self, end: LineEnd) -> None:
        """Have an end of a line to another switch as a further port. Raises Error."""
        raise Error(
            "ND-104-80",
            f"{self.driver} has no tunnels",
            at=self.place.at,
            fix="Use Open vSwitch in user space, such as ovs-netdev",
        )

    def await_joined(self) -> None:
        """Wait until the other ends of its tunnels answer over their underlays. Raises Error."""

    def watch_shared(self, on: bool) -> None:
        """Whether copies of what passes its ports over shared memory, beside others, go to interfaces."""

    def tunnel_options(self, line: Line) -> dict[str, str]:
        """Settings that its end of a tunnel has now, by name."""
        return {}

    def change_tunnel(self, line: Line, options: Mapping[str, str]) -> None:
        """Give its end of a tunnel other settings, for a test of faults."""

    def check_ports(self, flow: Flow) -> None:
        """Raises if a flow names a port that it does not have."""
        for port in (*[flow.in_port] * bool(flow.in_port), *action.ports(flow.actions)):
            if port not in self.numbers:
                fix = f"There are: {', '.join(self.numbers)}"
                raise Error("ND-104-81", f"a flow names the port {port!r}", at=self.place.at, fix=fix)

    def internals(self) -> dict[str, float]:
        """What it counts beside its ports: `packets` that it processed, `cycles` that this took, packets by
        how their flow was found (`found.…`), and drops by its own reasons (`drop.…`). Default: nothing."""
        return {}

    def queues(self) -> dict[str, float]:
        """What it counts of the queues of ports that it shares with other processes: `PORT.full` (packets
        dropped because nobody made room), `PORT.too_large`, and `PORT.retries`. Default: nothing."""
        return {}

    def connect(self, *targets: str) -> None:
        """Have these controllers program it, such as `tcp:127.0.0.1:6653`; without any, nobody does."""
        raise Error(
            "ND-104-80",
            f"{self.driver} speaks no OpenFlow",
            at=self.place.at,
            fix="Use a switch with OpenFlow, such as ovs-netdev",
        )

    def await_connected(self, *targets: str) -> None:
        """Wait until it is connected to all of these. Raises Error that says why it is not."""

    def drop_fragments(self, drop: bool) -> None:
        """Whether it drops fragments of IP: all but the first have no ports that rules could match."""

    def settle(self) -> None:
        """Wait until packets meet the flows that were programmed."""

    def flow_cookies(self) -> list[int]:
        """Cookies of all flows that are in its table, in ascending order."""
        return []

    def flow_texts(self) -> list[str]:
        """All flows in its table, as its own tool words them."""
        return []

    def commands(self) -> dict[str, str]:
        """Commands by which it is looked at while it runs, by what they show. Default: none."""
        return {}

    def groups(self) -> set[int]:
        """Numbers of the groups that it has."""
        return set()

    def datapath_id(self) -> str:
        """By which controllers know it, in hexadecimal."""
        return "0"

    def flow_packets(self) -> dict[int, int]:
        """Packets that matched each flow, by cookie."""
        return {}

    def targets(self) -> dict[str, str]:
        """None: frames go through it, and it serves nothing."""
        return {}

    def urls(self) -> dict[str, str]:
        """None: it has no address."""
        return {}

    def counters(self) -> dict[str, float]:
        """What the kernel counts of each port: `PORT.rx_packets`, … of frames that came from outside."""
        return namespace.inside(self.place.namespace, lambda: _statistics(self.ports))

    def open(self) -> str:
        """The namespace, with `ports` filled in. Raises when it or a port is not there."""
        space = self.place.namespace
        if space is None:
            what = f"{self.driver} would join interfaces of this machine itself"
            raise Error("ND-104-07", what, at=f"duts.{self.place.name}", fix="Give it a host of a topology")
        if why := self.missing():
            raise Error("ND-92-60", f"{self.driver} cannot run here: {why}", at=self.place.at, fix=LISTED)
        there = {name for _, name in namespace.inside(space, socket.if_nameindex)} - {"lo"}
        self.ports = tuple(self.wiring.ports or self.options.ports or sorted(there, key=_natural))
        gone = next((name for name in self.ports if name not in there), None)
        if gone and self.interfaces:
            what = f"the port {gone} is no interface of {space}"
            fix = f"There are: {', '.join(sorted(there, key=_natural)) or 'none'}"
            raise Error("ND-104-81", what, at=f"duts.{self.place.name}.options.ports", fix=fix)
        if self.most_ports is not None and len(self.ports) > self.most_ports:
            what = f"{self.driver} joins {self.most_ports} ports, and there are {len(self.ports)}"
            raise Error("ND-104-81", what, at=f"duts.{self.place.name}.options.ports", fix="Name fewer")
        if self.most_ports == 2 and len(self.ports) < 2:
            what = f"{self.driver} joins two ports, and there is {'one' if self.ports else 'none'}"
            raise Error("ND-104-81", what, at=f"duts.{self.place.name}.options.ports", fix="Give it two")
        return space

    def _watch(self, space: str) -> None:
        """A process that watches links, for a switch in the kernel: with it, the switch ends."""
        command = [find("ip", "iproute2"), "monitor", "link"]
        log = self.place.log or self.folder / "log"
        self.process = Process(command, log=log, namespace=space, notes=self.place.notes)


LISTED = "`netdyno switch list` shows which switches work here"


def remove_interfaces(*names: str) -> None:
    """Delete interfaces of the thread's namespace; those that are not there are passed over."""
    # a large library, of which most commands need nothing
    from pyroute2 import IPRoute

    with IPRoute() as ip:
        for name in names:
            for index in ip.link_lookup(ifname=name):
                ip.link("del", index=index)


def _natural(name: str) -> list[tuple[int, str]]:
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", name)]


def _statistics(ports: Sequence[str]) -> dict[str, float]:
    there = devices()
    return {f"{port}.{key}": there[port][key] for port in ports if port in there for key in STATISTICS}
