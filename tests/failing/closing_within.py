"""Closes in the middle of an answer."""

from __future__ import annotations

from dataclasses import dataclass

from failing.behaviour import Behaviour, Message, Peer


@dataclass
class ClosingWithin(Behaviour):
    """Half an answer, and FIN."""

    says: str = "closes each connection in the middle of its 3rd answer"
    after: int = 3

    def answer(self, peer: Peer, message: Message) -> None:
        """Answer, or half of it."""
        if peer.messages < self.after:
            super().answer(peer, message)
        else:
            peer.send(message.answer[: len(message.answer) // 2])
            peer.close()
