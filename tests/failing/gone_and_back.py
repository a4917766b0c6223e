"""Is killed and started again, once."""

from __future__ import annotations

from dataclasses import dataclass

from failing.behaviour import Behaviour, Message, Peer


@dataclass
class GoneAndBack(Behaviour):
    """All connections break, the port is closed for a moment, and then all is well again."""

    says: str = "breaks all connections at the 6th message, and comes back 0.3 s later"
    at: int = 6
    away: float = 0.3

    def answer(self, peer: Peer, message: Message) -> None:
        """Answer, but for the one message."""
        if self.messages() == self.at:
            peer.vanish(self.away)
        else:
            super().answer(peer, message)
