"""Right answers that come late."""

from __future__ import annotations

from dataclasses import dataclass

from failing.behaviour import Behaviour, Message, Peer


@dataclass
class Slow(Behaviour):
    """It fails nothing; it takes its time."""

    says: str = "answers each message 1 s late"
    seconds: float = 1.0

    def answer(self, peer: Peer, message: Message) -> None:
        """After a while."""
        if message.answer:
            peer.later(self.seconds, message.answer)


@dataclass
class Late(Slow):
    """So late that the run is over."""

    says: str = "answers when the run is over"
    seconds: float = 20.0
