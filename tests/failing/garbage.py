"""Says what the protocol does not know."""

from __future__ import annotations

from dataclasses import dataclass

from failing.behaviour import Behaviour, Message, Peer


@dataclass
class Garbage(Behaviour):
    """Another protocol's greeting."""

    says: str = "answers with bytes of another protocol"

    def greeted(self, peer: Peer, message: Message) -> None:
        """Not even a greeting is one."""
        self.answer(peer, message)

    def answer(self, peer: Peer, message: Message) -> None:
        """More than the shortest length that these bytes can stand for."""
        peer.send(b"SSH-2.0-nonsense\r\n" * 8)
