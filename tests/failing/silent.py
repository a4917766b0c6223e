"""Takes connections and messages, and never answers."""

from __future__ import annotations

from dataclasses import dataclass

from failing.behaviour import Behaviour, Message, Peer


@dataclass
class Silent(Behaviour):
    """Not even a greeting is answered."""

    says: str = "takes what comes and never answers"

    def greeted(self, peer: Peer, message: Message) -> None:
        """Nothing."""

    def answer(self, peer: Peer, message: Message) -> None:
        """Nothing."""
