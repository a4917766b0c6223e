"""What a server does with messages. As it stands here: what it should."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol


@dataclass(frozen=True)
class Message:
    """What a client sent, and the bytes that a good server answers it with; none: it asks for no answer."""

    sent: bytes
    answer: bytes
    greeting: bool = False
    """It opens or keeps the conversation (CONNECT, PINGREQ, PUBREL) and is no message of the load."""
    last: bool = False
    """The connection ends after the answer."""


class Peer(Protocol):
    """A client's connection, or the place that datagrams come from."""

    number: int
    """Of this client: 1 for the first that came."""
    messages: int
    """How many it sent, the present one with them."""

    def send(self, data: bytes) -> None:
        """Send it."""

    def later(self, seconds: float, data: bytes) -> None:
        """Send it after a while, without keeping others waiting."""

    def close(self) -> None:
        """Close in good order (FIN), both ways."""

    def half_close(self) -> None:
        """Close our way only, and read on."""

    def reset(self) -> None:
        """Break it off (RST)."""

    def vanish(self, seconds: float) -> None:
        """Break off all connections of the server, which comes back after a while."""


@dataclass
class Behaviour:
    """A server as it should be."""

    says: str = "answers each message once"
    """What it does, in the words of the table."""
    messages: Callable[[], int] = field(default_factory=lambda: itertools.count(1).__next__, repr=False)
    """Numbers the messages of all clients, from 1."""

    def accepted(self, peer: Peer) -> None:
        """A client came."""

    def greeted(self, peer: Peer, message: Message) -> None:
        """A client says what is no message of the load."""
        Behaviour.answer(self, peer, message)

    def answer(self, peer: Peer, message: Message) -> None:
        """A message came."""
        peer.send(message.answer)
        if message.last:
            peer.close()


Healthy = Behaviour
