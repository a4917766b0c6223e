"""Sockets as `ss` lists them, and how many packets each dropped from one look to the next.

sock_diag tells of each socket how many packets it dropped since it was opened (sk_drops): of a datagram
socket those for which its buffer had no room, of a listening socket the connections that it turned away.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from netdyno.lab.sockets import User, queues, split_lines, user

_RECEIVE, _SEND = re.compile(r"skmem:\(r\d+,rb(\d+)"), re.compile(r"skmem:\(.*?,tb(\d+)")
_DROPS = re.compile(r"skmem:\(.*?,d(\d+)\)")


@dataclass(frozen=True)
class SocketLine:
    """A line of `ss -O` with a state. A socket of no process that can be seen has process 0."""

    state: str
    waiting: int
    longest: int
    local: str
    peer: str
    process: str
    pid: int
    fd: int
    drops: int
    """Packets dropped since it was opened."""
    receive_buffer: int
    send_buffer: int
    """Sizes as the kernel counts them; 0 where `ss` was not asked for memory (`-m`)."""

    @property
    def port(self) -> int:
        """The local port."""
        return port_of(self.local)

    @property
    def socket(self) -> tuple[int, int, str, str]:
        """What tells it from others, as long as it is open."""
        return self.pid, self.fd, self.local, self.peer

    def __str__(self) -> str:
        """Whose it is, and which port."""
        whose = f"{self.process} (process {self.pid})" if self.pid else "a socket of no process seen here"
        return f"{whose}, port {self.port}"


def port_of(address: str) -> int:
    """The port of an address of `ss`; 0 where there is none."""
    text = address.rpartition(":")[2]
    return int(text) if text.isascii() and text.isdigit() else 0


def parse(text: str) -> list[SocketLine]:
    """Lines of `ss -O` with a state; what is no such line is left out."""
    found = []
    for line in split_lines(text):
        cells = line.split()
        if (seen := queues(cells)) is None:
            continue
        by = user(line) or User("", 0, 0)
        sizes = (_number(one, line) for one in (_DROPS, _RECEIVE, _SEND))
        found.append(SocketLine(cells[0], *seen, cells[3], cells[4], by.process, by.pid, by.fd, *sizes))
    return found


def _number(what: re.Pattern[str], line: str) -> int:
    found = what.search(line)
    return int(found[1]) if found else 0


def dropped(before: str, after: str) -> list[tuple[SocketLine, int]]:
    """Sockets that dropped packets from one look to the next, and how many: `ss -OH` with `-m`, twice."""
    had = {one.socket: one.drops for one in parse(before)}
    found = []
    for one in parse(after):
        was = had.get(one.socket, 0)
        # what is less than before is of another socket
        if lost := one.drops - (was if was <= one.drops else 0):
            found.append((one, lost))
    return found
