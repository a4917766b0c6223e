"""Ends its own way of a connection and goes on reading."""

from __future__ import annotations

from dataclasses import dataclass

from failing.behaviour import Behaviour, Message, Peer


@dataclass
class HalfClosing(Behaviour):
    """FIN in place of an answer."""

    says: str = "half-closes each connection (FIN) in place of its 3rd answer, and reads on"
    after: int = 3

    def answer(self, peer: Peer, message: Message) -> None:
        """Answer, or say that no more will come."""
        if peer.messages < self.after:
            super().answer(peer, message)
        elif peer.messages == self.after:
            peer.half_close()
