"""Work inside a network namespace without moving the whole process there.

`setns` moves one thread; so each piece of work gets a thread of its own, which ends with it. A socket stays
in the namespace in which it was made, wherever it is used later.
"""

from __future__ import annotations

import contextlib
import contextvars
import ctypes
import errno
import fcntl
import itertools
import os
import re
import shutil
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")

FOLDER = Path("/var/run/netns")
CLONE_NEWNET = 0x40000000
SO_NETNS_COOKIE = 71
NS_GET_NSTYPE = 0xB703
SIOCGIFFLAGS, IFF_RUNNING = 0x8913, 0x40
_INTERFACE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.@-]{0,14}")
_libc = ctypes.CDLL(None, use_errno=True)


def is_interface(name: str) -> bool:
    """Whether it can name an interface: no path, no option, nothing that a rule or a shell reads."""
    return _INTERFACE.fullmatch(name) is not None


def create(name: str) -> None:
    """Make a named network namespace."""
    _ip("add", name)


def remove(name: str) -> bool:
    """Remove a namespace; whether there was one."""
    if not (FOLDER / name).exists():
        return False
    _ip("delete", name)
    return True


def names() -> list[str]:
    """The named network namespaces."""
    return sorted(path.name for path in FOLDER.glob("*")) if FOLDER.is_dir() else []


def _ip(verb: str, name: str) -> None:
    # a program of its own: the library's way forks this process with all its threads and handlers
    program = shutil.which("ip") or "/usr/sbin/ip"
    command = [program, "netns", verb, name]
    # a session of its own: Ctrl-C at the terminal is not for it
    done = subprocess.run(command, capture_output=True, text=True, check=False, start_new_session=True)
    if done.returncode:
        if "File exists" in done.stderr:
            raise FileExistsError(errno.EEXIST, f"there is a namespace {name} already")
        raise OSError(errno.EIO, f"ip netns {verb} {name}: {done.stderr.strip()}")


def inside(name: str | None, work: Callable[[], T]) -> T:
    """Run `work` in the named network namespace, or that of a file; None is the one we are in."""
    if name is None:
        return work()

    def entered() -> T:
        _enter(name)
        return work()

    return in_thread(entered)


def _enter(name: str) -> None:
    handle = os.open(FOLDER / name, os.O_RDONLY | os.O_CLOEXEC)
    try:
        if _libc.setns(handle, CLONE_NEWNET):
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number), name)
    finally:
        os.close(handle)


class Resident:
    """A thread that stays in a namespace, for many small pieces of work one after the other."""

    def __init__(self, name: str) -> None:
        self._pool = ThreadPoolExecutor(1, "resident")
        try:
            self.inside(lambda: _enter(name))
        except BaseException:
            self.close()
            raise

    def inside(self, work: Callable[[], T]) -> T:
        """Run `work` in it."""
        return self._pool.submit(contextvars.copy_context().run, work).result()

    def close(self) -> None:
        """End it: it keeps the namespace until then."""
        self._pool.shutdown()


def in_thread(work: Callable[[], T]) -> T:
    """Run `work` in a thread of its own: what it does to the thread's namespaces ends with it."""
    result: list[T] = []
    failure: list[BaseException] = []

    def run() -> None:
        try:
            result.append(work())
        except BaseException as e:  # noqa: BLE001 - handed to the caller's thread
            failure.append(e)

    # what is of this run is so there, too
    thread = threading.Thread(target=contextvars.copy_context().run, args=(run,), name="elsewhere")
    thread.start()
    thread.join()
    if failure:
        raise failure[0]
    return result[0]


def carries(interface: str) -> bool:
    """Whether an interface of the thread's namespace is up and has a carrier, or a kind that knows none."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as made:
        try:
            found = fcntl.ioctl(made, SIOCGIFFLAGS, struct.pack("16s24x", interface.encode()))
        except OSError:
            return False
    return bool(struct.unpack_from("H", found, 16)[0] & IFF_RUNNING)


def cookie(name: str | None) -> int | None:
    """Tells a namespace from a later one of the same name; None is the one that we are in."""

    def ask() -> int:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
            return int.from_bytes(one.getsockopt(socket.SOL_SOCKET, SO_NETNS_COOKIE, 8), sys.byteorder)

    try:
        return inside(name, ask)
    except OSError as e:
        if e.errno != errno.ENOPROTOOPT:
            raise
        # before Linux 5.14; this number may be given out again
        return (FOLDER / (name or "/proc/thread-self/ns/net")).stat().st_ino


def is_ours(name: str) -> bool:
    """Whether a name or a file is of the namespace that we are in."""
    try:
        theirs, ours = (FOLDER / name).stat(), Path("/proc/thread-self/ns/net").stat()
    except OSError:
        return False
    return (theirs.st_dev, theirs.st_ino) == (ours.st_dev, ours.st_ino)


def is_network(path: Path) -> bool:
    """Whether a file is a network namespace."""
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        return fcntl.ioctl(handle, NS_GET_NSTYPE) == CLONE_NEWNET
    except OSError:
        return False
    finally:
        os.close(handle)


def every_namespace() -> Iterator[str | None]:
    """Every namespace that can be entered, once: the one we are in, those with names, those of processes."""
    seen = set[tuple[int, int]]()
    # not `[0-9]*/ns/net`: that looks into each, and raises where one has just ended
    processes = (f"{path}/ns/net" for path in sorted(Path("/proc").glob("[0-9]*")))
    for place in ("/proc/self/ns/net", *names(), *processes):
        try:
            about = (FOLDER / place).stat()
        except OSError:
            # ended, or none of ours to look into
            continue
        if (about.st_dev, about.st_ino) not in seen:
            seen.add((about.st_dev, about.st_ino))
            yield None if place == "/proc/self/ns/net" else place


@dataclass(frozen=True)
class FoundNamespace:
    """A namespace found again by its cookie."""

    where: str | None


def find_by_cookie(where: str | None, identity: int | None) -> FoundNamespace | None:
    """The namespace of this cookie, whatever its name is by now: another may have it; None: it is gone.

    Without a cookie it is the one that was named.
    """
    if identity is None:
        return FoundNamespace(where)
    for place in itertools.chain((where,), every_namespace()):
        with contextlib.suppress(OSError):
            if cookie(place) == identity:
                return FoundNamespace(place)
    return None


def connect(name: str | None, address: tuple[str, int], timeout: float = 2.0) -> socket.socket:
    """A TCP connection made from inside a namespace."""
    return inside(name, lambda: socket.create_connection(address, timeout=timeout))
