"""Answers for a while and then no more; connections stay open."""

from __future__ import annotations

from dataclasses import dataclass

from failing.behaviour import Behaviour, Message, Peer


@dataclass
class Freezing(Behaviour):
    """All clients at once."""

    says: str = "answers 6 messages, then no more"
    after: int = 6
    frozen: bool = False

    def answer(self, peer: Peer, message: Message) -> None:
        """Only the first ones."""
        self.frozen = self.frozen or self.messages() > self.after
        self.greeted(peer, message)

    def greeted(self, peer: Peer, message: Message) -> None:
        """A frozen server greets nobody."""
        if not self.frozen:
            super().greeted(peer, message)


@dataclass
class FreezingInPart(Behaviour):
    """Every second client, and its later connections too."""

    says: str = "freezes for every second client after 2 messages of it; the others are served"
    after: int = 2

    def answer(self, peer: Peer, message: Message) -> None:
        """All of the even ones."""
        if peer.number % 2 == 0 or peer.messages <= self.after:
            super().answer(peer, message)
