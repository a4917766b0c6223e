"""Answers each message twice."""

from __future__ import annotations

from dataclasses import dataclass

from failing.behaviour import Behaviour, Message, Peer


@dataclass
class Twice(Behaviour):
    """Both in one piece where it is a stream."""

    says: str = "answers each message twice"
    datagrams: bool = False

    def answer(self, peer: Peer, message: Message) -> None:
        """Two copies."""
        if self.datagrams:
            peer.send(message.answer)
            peer.send(message.answer)
        else:
            peer.send(message.answer * 2)
