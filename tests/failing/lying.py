"""Answers that lie about how long they are."""

from __future__ import annotations

from dataclasses import dataclass

from failing.behaviour import Behaviour, Message, Peer
from failing.dialects import BODY, response

CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


@dataclass
class TooLong(Behaviour):
    """A length for which there are no bytes."""

    says: str = "promises a longer body than it sends (Content-Length)"

    def answer(self, peer: Peer, message: Message) -> None:
        """One byte short."""
        peer.send(response(length=len(BODY) + 1))


@dataclass
class TooShort(Behaviour):
    """Bytes that belong to nothing."""

    says: str = "sends a longer body than it promises (Content-Length)"

    def answer(self, peer: Peer, message: Message) -> None:
        """Two bytes over."""
        peer.send(response(length=len(BODY) - 2))


@dataclass
class ContentToHead(Behaviour):
    """Bytes that belong to nothing: a response to HEAD ends with its head (RFC 9112 section 6.3)."""

    says: str = "answers HEAD with a body"

    def answer(self, peer: Peer, message: Message) -> None:
        """What would be right for GET."""
        peer.send(response())


@dataclass
class ChunkTooLong(Behaviour):
    """A chunk that takes the end of the body for its own bytes."""

    says: str = "sends a chunk shorter than its size says"

    def answer(self, peer: Peer, message: Message) -> None:
        """Far less than was promised: the next chunk's size is taken for the body."""
        peer.send(CHUNKED + b"3e8\r\n%b\r\n0\r\n\r\n" % BODY)


@dataclass
class ChunkTooShort(Behaviour):
    """A chunk with no line end where its size says."""

    says: str = "sends a chunk longer than its size says"

    def answer(self, peer: Peer, message: Message) -> None:
        """Two bytes over."""
        peer.send(CHUNKED + b"%x\r\n%b\r\n0\r\n\r\n" % (len(BODY) - 2, BODY))


@dataclass
class RemainingLength(Behaviour):
    """An acknowledgement with another remaining length (MQTT 3.1.1 section 2.2.3)."""

    says: str = "acknowledges with too short a remaining length"
    length: bytes = b"\x01"

    def answer(self, peer: Peer, message: Message) -> None:
        """The rest as it should be."""
        if message.answer:
            peer.send(message.answer[:1] + self.length + message.answer[2:])


@dataclass
class Truncating(Behaviour):
    """Less comes back than was sent."""

    says: str = "sends datagrams back one byte shorter"

    def answer(self, peer: Peer, message: Message) -> None:
        """All but the last byte."""
        peer.send(message.answer[:-1])
