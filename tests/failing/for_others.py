"""Answers that are not for who gets them, or not from whom they should be."""

from __future__ import annotations

from dataclasses import dataclass, field

from failing.behaviour import Behaviour, Message, Peer
from failing.carriers import Sender
from failing.dialects import summed


@dataclass
class OtherIdentifier(Behaviour):
    """The acknowledgement of a message that was never sent."""

    says: str = "acknowledges with the packet identifier of no message"

    def answer(self, peer: Peer, message: Message) -> None:
        """The identifiers in use are small."""
        if message.answer:
            peer.send(message.answer[:2] + b"\xee\xee")


@dataclass
class OtherClient(Behaviour):
    """What one client sent goes to another one."""

    says: str = "sends each client what another one sent"
    last: dict[int, tuple[Peer, bytes]] = field(default_factory=dict)

    def answer(self, peer: Peer, message: Message) -> None:
        """To every other client that is known, each time one."""
        self.last[peer.number] = peer, message.answer
        for number, (other, _) in self.last.items():
            if number != peer.number:
                other.send(message.answer)
                return


@dataclass
class OtherAddress(Behaviour):
    """The right answer comes from elsewhere."""

    says: str = "answers from another address or port than it was asked at"

    def answer(self, peer: Peer, message: Message) -> None:
        """Through the other socket."""
        assert isinstance(peer, Sender)
        peer.send(message.answer, elsewhere=True)


@dataclass
class OtherEcho(Behaviour):
    """Echo replies with another identifier or sequence number (RFC 792)."""

    says: str = "answers pings with another identifier"
    at: int = 4

    def answer(self, peer: Peer, message: Message) -> None:
        """Two bytes of the header are others."""
        changed = bytes(byte ^ 0x55 for byte in message.answer[self.at : self.at + 2])
        peer.send(summed(message.answer[: self.at] + changed + message.answer[self.at + 2 :]))
