"""Kinds of links: what joins two hosts of a topology, behind one interface.

A kind costs its class, and its line in `network.py`, where a link of a topology becomes one. Today there
are a plain cable (a veth pair) and an impaired one, which the core carries; a tap or memif is another.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

from netdyno.errors import Error
from netdyno.lab.links import ImpairedLink, Links, Side, Spec
from netdyno.lab.node import NamespaceNode, Node


@dataclass(frozen=True)
class Plug:
    """One end of a link: an interface, by the name that it is to have, of a host."""

    node: Node
    interface: str
    mac: str | None = None

    @property
    def namespace(self) -> NamespaceNode:
        """The host, where it is a namespace, as all are today that a cable of the kernel can reach."""
        if not isinstance(self.node, NamespaceNode):
            what = f"a host of kind {self.node.kind} cannot be at the end of such a link"
            raise Error("ND-104-29", what, at=f"topology.hosts.{self.node.name}")
        return self.node


class Cable(ABC):
    """A link, made real for one run."""

    def __init__(self, a: Plug, b: Plug, mtu: int) -> None:
        self.a, self.b, self.mtu = a, b, mtu

    @abstractmethod
    def up(self) -> None:
        """Make both interfaces and join them. They go with their hosts."""

    def counters(self) -> dict[str, Any] | None:
        """What it did to packets, if it does anything. Raises when it carries nothing any more."""
        return None

    def watched(self, plug: Plug) -> bool:
        """Whether an end that is gone has to be looked for, as nothing else would say so."""
        return True


class Veth(Cable):
    """A pair of virtual Ethernet interfaces."""

    def up(self) -> None:
        """One end here, the other there."""
        a, b = self.a.namespace, self.b.namespace
        peer = {"ifname": self.b.interface, "net_ns_fd": b.namespace}
        a.inside(lambda ip: ip.link("add", ifname=self.a.interface, kind="veth", peer=peer))


class ImpairedCable(Cable):
    """A cable that delays, loses and reorders as is asked: two taps, and the core between them."""

    def __init__(self, a: Plug, b: Plug, mtu: int, spec: Spec, links: Links) -> None:
        super().__init__(a, b, mtu)
        self._spec, self._links = spec, links
        self._made: ImpairedLink | None = None

    def up(self) -> None:
        """The core makes the taps."""
        left, right = (Side(p.namespace.namespace, p.interface, p.mac) for p in (self.a, self.b))
        self._made = self._links.start(left, right, self._spec, self.mtu)

    def draw_anew(self, seed: int) -> None:
        """Losses, delays and all else that is drawn begin anew by this seed, and the timeline with them."""
        assert self._made is not None, "it was made"
        self._links.set(self._made, self._spec, seed)

    @property
    def link(self) -> str:
        """Its name in the daemon; empty before it is up."""
        return self._made.id if self._made else ""

    def counters(self) -> dict[str, Any] | None:
        """Of both directions."""
        assert self._made is not None, "it was made"
        return self._links.stats(self._made)

    def watched(self, plug: Plug) -> bool:
        """The core says itself that an end is gone."""
        return False
