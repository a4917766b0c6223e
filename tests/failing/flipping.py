"""Changes what it sends back."""

from __future__ import annotations

from dataclasses import dataclass

from failing.behaviour import Behaviour, Message, Peer
from failing.dialects import summed


@dataclass
class Flipping(Behaviour):
    """One bit of the last byte, which is payload in every protocol."""

    says: str = "flips one bit of each payload"
    icmp: bool = False

    def answer(self, peer: Peer, message: Message) -> None:
        """Checksums are right."""
        changed = message.answer[:-1] + bytes([message.answer[-1] ^ 1])
        peer.send(summed(changed) if self.icmp else changed)
