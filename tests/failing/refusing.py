"""Says no in the words of the protocol."""

from __future__ import annotations

from dataclasses import dataclass

from failing.behaviour import Behaviour, Message, Peer
from failing.dialects import response


@dataclass
class ServerError(Behaviour):
    """Status 503 for everything."""

    says: str = "answers with status 503"

    def answer(self, peer: Peer, message: Message) -> None:
        """No."""
        peer.send(response(status="503 Service Unavailable"))


@dataclass
class RefusingClients(Behaviour):
    """CONNACK with a code that says no, and the connection is closed (MQTT 3.1.1 section 3.2.2.3)."""

    says: str = "refuses clients in its CONNACK: not authorised"

    def greeted(self, peer: Peer, message: Message) -> None:
        """5.0 has a code of its own for this, 0x87."""
        v5 = len(message.answer) == 5
        peer.send(b"\x20\x03\x00\x87\x00" if v5 else b"\x20\x02\x00\x05")
        peer.close()
