"""Nobody answers, since nobody is there."""

from __future__ import annotations

from dataclasses import dataclass

from failing.behaviour import Behaviour
from failing.carriers import Running


@dataclass
class Closed(Behaviour):
    """The host is there and nobody listens: RST, or ICMP port unreachable."""

    says: str = "nobody listens at the port"


@dataclass
class NoRoute(Behaviour):
    """The kernel knows that no way leads there."""

    says: str = "no route to the host"
    address: str = "10.91.1.9"


@dataclass
class Blackhole(NoRoute):
    """The kernel is told to send nothing there."""

    says: str = "the route to the host is a blackhole"
    address: str = "10.91.3.9"


@dataclass
class Swallowed(Behaviour):
    """Packets leave, and a router drops them without a word."""

    says: str = "a router drops all packets to the host"
    address: str = "10.91.2.9"


class Nowhere(Running):
    """A port of nobody: the others have theirs from the ephemeral range."""

    port = 9
