"""Listens and accepts nobody: the queue of connections is full, so that the kernel drops each SYN."""

from __future__ import annotations

import contextlib
import socket
from dataclasses import dataclass

from failing.behaviour import Behaviour
from failing.carriers import Running


@dataclass
class Unaccepting(Behaviour):
    """Nobody gets as far as sending."""

    says: str = "never accepts: its queue of connections is full"


class FullQueue(Running):
    """The port of such a server."""

    def open(self) -> None:
        """Listen with the shortest queue and fill it."""
        self.listener = socket.socket()
        self.listener.bind((self.address, 0))
        self.listener.listen(0)
        self.port = self.listener.getsockname()[1]
        self.ours = [socket.socket() for _ in range(8)]
        for one in self.ours:
            one.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                one.connect((self.address, self.port))

    def shut(self) -> None:
        """Close all."""
        for one in [*self.ours, self.listener]:
            one.close()
