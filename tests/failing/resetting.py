"""Breaks connections off."""

from __future__ import annotations

from dataclasses import dataclass

from failing.behaviour import Behaviour, Message, Peer


@dataclass
class Resetting(Behaviour):
    """RST in place of an answer."""

    says: str = "resets each connection in place of its 3rd answer"
    after: int = 3

    def answer(self, peer: Peer, message: Message) -> None:
        """Answer, or break off."""
        if peer.messages < self.after:
            super().answer(peer, message)
        else:
            peer.reset()
