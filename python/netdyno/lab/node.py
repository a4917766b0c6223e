"""Kinds of hosts: what a host of a topology is made of, behind one interface.

A kind costs its class and a line in `NODES`. Today a host is a network namespace of this machine; a virtual
machine, a remote machine or a switch is another kind.
"""

from __future__ import annotations

import contextlib
import ipaddress
import socket
import subprocess
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, ClassVar

from netdyno.errors import Error
from netdyno.system import namespace, namespaces, sysctl
from netdyno.system.journal import Journal
from netdyno.system.process import find

IFA_F_NODAD = 0x02
"""An IPv6 address that is usable at once: nobody else can have it in a network of our own."""


class Node(ABC):
    """A host, made real for one run; everything in it goes with it."""

    kind: ClassVar[str]
    namespace: str | None
    """The network namespace of this machine in which its programs run; None: they run elsewhere."""

    def __init__(self, name: str, run: str, notes: Journal) -> None:
        self.name, self.run, self.notes = name, run, notes

    @abstractmethod
    def up(self) -> None:
        """Make it. What is made is in the journal before."""

    @abstractmethod
    def settle(self, parameters: Mapping[str, str | int]) -> None:
        """When its links are there: set its kernel parameters, and let it speak."""

    @abstractmethod
    def address(self, interface: str, addresses: list[str], mtu: int, mac: str | None) -> None:
        """Set an interface up, with its addresses."""

    @abstractmethod
    def offloads(self, interface: str, wanted: Mapping[str, bool]) -> None:
        """Turn work of an interface on and off, as `ethtool -K`."""

    @abstractmethod
    def carries(self, *interfaces: str) -> bool:
        """Whether interfaces that are up carry packets by now, all of them."""

    @abstractmethod
    def interfaces(self) -> set[str]:
        """Names of what is there now. Raises FileNotFoundError when the host itself is gone."""

    def busy(self) -> AbstractContextManager[None]:
        """While much is done to it in small pieces, which may be quicker so."""
        return nullcontext()

    @abstractmethod
    def down(self) -> None:
        """Take it away; a second call does nothing."""


class NamespaceNode(Node):
    """A network namespace."""

    kind: ClassVar[str] = "namespace"

    def __init__(self, name: str, run: str, notes: Journal) -> None:
        super().__init__(name, run, notes)
        self.namespace: str = f"nd-{run}-{name}"
        self._resident: tuple[namespace.Resident, Any] | None = None
        """A thread in it with an open netlink socket, while it is busy."""
        self._entries: list[int] = []
        self._settings: list[int] = []

    def up(self) -> None:
        """Make the namespace."""
        self._entries.append(namespaces.make(self.notes, self.namespace))

    def settle(self, parameters: Mapping[str, str | int]) -> None:
        """Set loopback up, and the parameters."""
        self.inside(lambda ip: ip.link("set", index=1, state="up"))
        for key, value in parameters.items():
            self._settings.append(sysctl.change(self.notes, self.namespace, key, value))

    def address(self, interface: str, addresses: list[str], mtu: int, mac: str | None) -> None:
        """Over netlink; an address without a prefix is one of its own."""

        def work(ip: Any) -> None:
            index = socket.if_nametoindex(interface)
            ip.link("set", index=index, mtu=mtu, state="up", **({"address": mac} if mac else {}))
            for text in addresses:
                add_address(ip, index, ipaddress.ip_interface(text))

        self.inside(work)

    def offloads(self, interface: str, wanted: Mapping[str, bool]) -> None:
        """By ethtool, from within."""
        words = [word for key, on in wanted.items() for word in (key, "on" if on else "off")]
        command = [find("ethtool", "ethtool"), "-K", interface, *words]
        done = namespace.inside(
            self.namespace, lambda: subprocess.run(command, capture_output=True, text=True, check=False)
        )
        if done.returncode:
            raise Error(
                "ND-92-26",
                f"ethtool -K {interface} {' '.join(words)}: {done.stderr.strip()}",
                at=self.name,
                fix="`ethtool -k` lists the offloads that an interface has",
            )

    def carries(self, *interfaces: str) -> bool:
        """The kernel notices the carrier beside the call that set the other end up.

        What is sent until then is dropped, and no counter says so.
        """
        return namespace.inside(self.namespace, lambda: all(map(namespace.carries, interfaces)))

    def interfaces(self) -> set[str]:
        """Asked of the kernel, from within."""
        return {name for _, name in namespace.inside(self.namespace, socket.if_nameindex)}

    def inside(self, work: Callable[[Any], None]) -> None:
        """Do netlink work in it."""
        if self._resident:
            thread, opened = self._resident
            thread.inside(lambda: work(opened))
            return
        # a large library, of which runs without a topology need nothing
        from pyroute2 import IPRoute

        def connected() -> None:
            with IPRoute() as ip:
                work(ip)

        namespace.inside(self.namespace, connected)

    @contextmanager
    def busy(self) -> Iterator[None]:
        """Netlink work has one thread and one socket."""
        from pyroute2 import IPRoute

        with contextlib.closing(namespace.Resident(self.namespace)) as thread:
            opened = thread.inside(IPRoute)
            self._resident = thread, opened
            try:
                yield
            finally:
                self._resident = None
                thread.inside(opened.close)

    def down(self) -> None:
        """Links and parameters in it go with the namespace."""
        entries, self._entries = self._entries, []
        settings, self._settings = self._settings, []
        try:
            self.notes.undo(*entries)
        finally:
            self.notes.undo(*settings)


NODES: dict[str, type[Node]] = {one.kind: one for one in (NamespaceNode,)}


def add_address(ip: Any, index: int, interface: ipaddress.IPv4Interface | ipaddress.IPv6Interface) -> None:
    """Give an interface an address that is usable at once."""
    flags = {"flags": IFA_F_NODAD} if interface.version == 6 else {}
    ip.addr("add", index=index, address=str(interface.ip), prefixlen=interface.network.prefixlen, **flags)
