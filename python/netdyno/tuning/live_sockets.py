"""Sockets of running processes, for which a new default comes too late.

A listening socket's queue is cut to somaxconn when the program calls listen(), a datagram socket's buffer is
chosen when it is made. Both can be set again on the socket itself, by a copy of the program's descriptor
(pidfd_getfd, Linux 5.6). A connection's receive buffer the kernel grows by itself, but only when more came in
a round trip than ever before, which a window that is full does not let happen: it needs a push.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import re
import shutil
import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from netdyno.errors import Error
from netdyno.lab.counters import program_output
from netdyno.lab.sockets import Connection, parse, queues, split_lines, user
from netdyno.system import namespace, proc
from netdyno.system.journal import Journal

PIDFD_GETFD = 438
"""The number of the system call, the same on all machines since Linux 5.6."""
SO_SNDBUFFORCE, SO_RCVBUFFORCE = 32, 33
SO_BUF_LOCK, SENDING, RECEIVING = 72, 1, 2
"""Which buffers the kernel leaves as a program has set them (Linux 5.14)."""
GONE = (errno.ESRCH, errno.EBADF)
"""What is said of a process, or of a descriptor, that is not there any more."""
SocketKind = Literal["backlog", "udp", "tcp"]

_MEMORY = re.compile(r"skmem:\(r(\d+),rb(\d+),.*?,d(\d+)\)")
_BUFFER, _SINCE = re.compile(r"skmem:\(r\d+,rb(\d+)"), re.compile(r" lastrcv:(\d+)")
_libc = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True)
class LiveSocket:
    """A socket of a running process."""

    what: SocketKind
    pid: int
    fd: int
    size: int
    """Its longest queue of connections; or its receive buffer, as the kernel counts it."""
    full: bool
    """Whether it turns away what comes."""
    local: str
    peer: str = ""
    """Its ends as `ss` tells them, the peer's of a connection only."""
    process: str = ""

    def __str__(self) -> str:
        """In words: whose it is, where, and how large."""
        port = self.local.rpartition(":")[2]
        return f"{self.process} (process {self.pid}), port {port}: {self.size:,}"


@dataclass(frozen=True)
class OwnedConnection:
    """A connection, and a descriptor of a process that has it open."""

    seen: Connection
    pid: int
    fd: int


def parse_owned(text: str) -> list[OwnedConnection]:
    """The lines of `ss -tinpOH` that a process has open."""
    found = []
    for line in split_lines(text):
        by, seen = user(line), parse(line)
        if by and seen and seen[0].state == "ESTAB":
            found.append(OwnedConnection(seen[0], by.pid, by.fd))
    return found


def owned_connections(where: str | None) -> list[OwnedConnection]:
    """The connections of a namespace that processes have open now."""
    return parse_owned(listed("-tinpOH", where))


def parse_listeners(text: str) -> list[LiveSocket]:
    """The lines of `ss -ltnpOH`: what waits and the longest queue stand before the address."""
    found = []
    for line in split_lines(text):
        cells, by = line.split(), user(line)
        if by and (seen := queues(cells)):
            waiting, longest = seen
            full = 2 * waiting >= longest
            found.append(LiveSocket("backlog", by.pid, by.fd, longest, full, cells[3], process=by.process))
    return found


def parse_datagrams(text: str) -> list[LiveSocket]:
    """The lines of `ss -uanpmOH`: the buffer, and what was dropped for want of it."""
    found = []
    for line in split_lines(text):
        cells, memory, by = line.split(), _MEMORY.search(line), user(line)
        if by and memory and queues(cells):
            full = int(memory[3]) > 0
            found.append(LiveSocket("udp", by.pid, by.fd, int(memory[2]), full, cells[3], process=by.process))
    return found


def listed(options: str, where: str | None) -> str:
    """What `ss` prints of a namespace, from sock_diag."""
    program = shutil.which("ss") or "/usr/bin/ss"
    return namespace.inside(where, lambda: program_output(program, options))


def datagrams(where: str | None) -> str:
    """Sockets of datagrams as `ss` tells them, with what each dropped since it was opened."""
    return listed("-uanpmOH", where)


def listeners(where: str | None) -> str:
    """Listening sockets as `ss` tells them, with what each dropped since it was opened."""
    return listed("-ltnpmOH", where)


def full_queues(where: str | None) -> str:
    """Listeners as `ss -ltnpOH` tells them, if the queue of one is full; each with the longer of two looks.

    To find out whose they are takes longer than a queue may be full, so the first look does without.
    """
    first = _queues(listed("-ltnOH", where))
    if not any(2 * waiting >= longest for waiting, longest in first.values()):
        return ""
    return with_queues(listed("-ltnpOH", where), first)


def with_queues(text: str, first: Mapping[str, tuple[int, int]]) -> str:
    """Lines of `ss -ltnpOH`, none with a shorter queue than it had before."""
    found = []
    for line in split_lines(text):
        cells = line.split(None, 4)
        if (seen := queues(cells)) and cells[3] in first:
            cells[1] = str(max(seen[0], first[cells[3]][0]))
        found.append(" ".join(cells))
    return "\n".join(found)


def _queues(text: str) -> dict[str, tuple[int, int]]:
    """What waits and how much may, by the address of the listener."""
    rows = (line.split() for line in split_lines(text))
    return {cells[3]: seen for cells in rows if (seen := queues(cells))}


def sockets(what: SocketKind, where: str | None) -> list[LiveSocket]:
    """The sockets of a namespace that may be bound by a parameter."""
    if what == "backlog":
        return parse_listeners(listed("-ltnpOH", where))
    return parse_datagrams(datagrams(where))


def parse_receivers(text: str) -> list[LiveSocket]:
    """The lines of `ss -tinpmOH`: those that received within the last second, with their buffers.

    `ss` leaves out what is zero, and so says nothing of when something came if that is now.
    """
    found = []
    for line in split_lines(text):
        cells, by = line.split(), user(line)
        memory, since = _BUFFER.search(line), _SINCE.search(line)
        if not (by and memory and queues(cells)):
            continue
        if "bytes_received:" in line and (since is None or int(since[1]) < 1000):
            found.append(LiveSocket("tcp", by.pid, by.fd, int(memory[1]), True, cells[3], cells[4]))
    return found


def grow_receive_buffers(where: str | None, old: int, new: int) -> Iterator[LiveSocket]:
    """Give connections that receive, and whose buffers have grown to the old bound, a larger one.

    All of the new one at once: the kernel grows it only when more comes in a round trip than ever before, and
    where once much came late and together, that may be never again. It stays the kernel's to grow; nothing is
    to be put back, as it goes with the connection.
    """
    for one in parse_receivers(listed("-tinpmOH", where)):
        if old <= one.size < new:
            with contextlib.suppress(OSError), borrowed(one.pid, one.fd, one.local, one.peer) as copy:
                if copy.getsockopt(socket.SOL_SOCKET, SO_BUF_LOCK) & RECEIVING:
                    continue
                _set(copy, "tcp", new)
                # and the window may be as large as the buffer has room for
                copy.setsockopt(socket.IPPROTO_TCP, socket.TCP_WINDOW_CLAMP, new)
                copy.setsockopt(socket.SOL_SOCKET, SO_BUF_LOCK, 0)
                yield one


def limiting(found: list[LiveSocket], size: int) -> list[LiveSocket]:
    """Those that turn things away, and are as large as the parameter let them be."""
    return [one for one in found if one.full and one.size == size]


def resize(one: LiveSocket, size: int, notes: Journal) -> int | None:
    """Give a socket another size, noted first: the entry; None when it is gone."""
    entry = note(one, notes)
    return entry if entry is not None and set_noted(one, size, entry, notes) else None


def note(one: LiveSocket, notes: Journal) -> int | None:
    """Note a socket as it is: the entry; None when it is gone."""
    start = proc.start_time(one.pid)
    link = _link(one.pid, one.fd)
    if start is None or link is None:
        return None
    names = {"backlog": "the queue", "udp": "the buffer"}
    words = f"{names[one.what]} of socket {one.fd} of process {one.pid}"
    return notes.write(
        "socket", words=words, what=one.what, pid=one.pid, start=start, fd=one.fd, link=link, old=one.size
    )


def set_noted(one: LiveSocket, size: int, entry: int, notes: Journal) -> bool:
    """Give a socket that was noted another size; whether it was there still."""
    try:
        with borrowed(one.pid, one.fd, one.local, one.peer) as copy:
            if _link_of(copy) != notes.entry(entry)["link"]:
                raise ProcessLookupError(errno.ESRCH, os.strerror(errno.ESRCH))
            _set(copy, one.what, size)
    except OSError as e:
        notes.undo(entry)
        if e.errno in GONE:
            return False
        what = f"the socket {one.fd} of process {one.pid} cannot be set: {e.strerror}"
        raise Error("ND-92-33", what, at=str(one.pid), fix="Run it as root, on Linux 5.6 or newer") from e
    return True


def restore_size(entry: dict[str, Any]) -> bool:
    """Give a socket its old size again, if it is still that socket of that process."""
    pid, fd = int(entry["pid"]), int(entry["fd"])
    if not proc.alive(pid, entry["start"]):
        return False
    try:
        with borrowed(pid, fd) as copy:
            if _link_of(copy) != entry["link"]:
                return False
            _set(copy, entry["what"], int(entry["old"]))
    except OSError as e:
        if e.errno in GONE:
            return False
        raise
    return True


def _set(copy: socket.socket, what: str, size: int) -> None:
    if what == "backlog":
        # to listen again only changes the length of the queue
        copy.listen(size)
        return
    locks = None
    with contextlib.suppress(OSError):
        locks = copy.getsockopt(socket.SOL_SOCKET, SO_BUF_LOCK)
    # the kernel doubles what it is given, for its own bookkeeping
    copy.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, size // 2)
    if locks is not None:
        # it is not the program that fixed it
        copy.setsockopt(socket.SOL_SOCKET, SO_BUF_LOCK, locks)


@contextmanager
def borrowed(pid: int, fd: int, local: str = "", peer: str = "") -> Iterator[socket.socket]:
    """The socket of another process, for as long as a block lasts.

    ProcessLookupError where it does not have the ends that `ss` told, if they are given: the descriptor, or
    the number of the process, is of something else by now.
    """
    handle = os.pidfd_open(pid)
    try:
        got = _libc.syscall(PIDFD_GETFD, handle, fd, 0)
        if got < 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))
    finally:
        os.close(handle)
    try:
        copy = socket.socket(fileno=got)
    except OSError as e:
        # no socket
        os.close(got)
        raise ProcessLookupError(errno.ESRCH, os.strerror(errno.ESRCH)) from e
    with copy:
        if not (_is(local, copy.getsockname) and _is(peer, copy.getpeername)):
            raise ProcessLookupError(errno.ESRCH, os.strerror(errno.ESRCH))
        yield copy


def _is(told: str, ask: Callable[[], Any]) -> bool:
    """Whether the end of a socket is that which `ss` told."""
    if not told:
        return True
    try:
        now = ask()
    except OSError:
        # not connected any more
        return False
    if not isinstance(now, tuple) or len(now) < 2 or not isinstance(now[0], str):
        return False
    host, _, port = told.rpartition(":")
    # an interface stands behind a %
    plain, mine = host.strip("[]").partition("%")[0], now[0].partition("%")[0]
    return port == str(now[1]) and (plain == mine or (plain == "*" and mine in ("::", "0.0.0.0")))


def _link_of(copy: socket.socket) -> str:
    """What the descriptor of a socket leads to, as in /proc/PID/fd."""
    return f"socket:[{os.fstat(copy.fileno()).st_ino}]"


def _link(pid: int, fd: int) -> str | None:
    try:
        return str(Path(f"/proc/{pid}/fd/{fd}").readlink())
    except OSError:
        return None
