"""SIP servers that fail: scripted over UDP, each with one fault, with a second socket at a third address."""

from __future__ import annotations

import contextlib
import heapq
import itertools
import select
import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from lab import Wire, sh

from netdyno.system import namespace

THIRD = "10.91.0.3"
"""Another address at the servers' end."""
PORT = 5060


@dataclass(frozen=True)
class Answer:
    """A datagram to send: after how many seconds, and whether from the third address."""

    data: bytes
    after: float = 0.0
    third: bool = False


Script = Callable[[bytes], list[Answer]]


def reply(request: bytes, status: str, tag: str = ";tag=srv", **fields: str) -> bytes:
    """A response with all that each has to repeat (RFC 3261 section 8.2.6.2)."""
    lines = request.decode().split("\r\n")
    kept = [line for line in lines if line.startswith(("Via:", "From:", "Call-ID:", "CSeq:"))]
    to = next(line for line in lines if line.startswith("To:"))
    more = [f"{name.replace('_', '-')}: {value}" for name, value in fields.items()]
    own = "" if ";tag=" in to else tag
    return "\r\n".join([f"SIP/2.0 {status}", *kept, to + own, *more, "Content-Length: 0", "", ""]).encode()


def good(request: bytes) -> bytes:
    """The right answer to any request but ACK."""
    return reply(request, "200 OK", Contact=f"<sip:{Wire.FAR}>")


def right(request: bytes) -> list[Answer]:
    """A server without a fault."""
    return [Answer(good(request))]


def unavailable(request: bytes) -> list[Answer]:
    """Refuses everything for some time (RFC 3261 section 21.5.4)."""
    return [Answer(reply(request, "503 Service Unavailable", Retry_After="5"))]


class Storm:
    """A server that answers well until so many requests have come, and then refuses all for a time (Retry-After)."""

    def __init__(self, after: int) -> None:
        self.after, self.taken, self.refused = after, 0, 0

    def __call__(self, request: bytes) -> list[Answer]:
        if self.taken < self.after:
            self.taken += 1
            return right(request)
        self.refused += 1
        return [Answer(reply(request, "503 Service Unavailable", Retry_After="30"))]


def late(request: bytes) -> list[Answer]:
    """Answers only when the client has given up, after Timer B or F."""
    return [Answer(good(request), after=2.5)]


def mirror(request: bytes) -> list[Answer]:
    """A proxy that routes each request back to where it came from."""
    return [Answer(request)]


def forged(request: bytes) -> list[Answer]:
    """Never answers; a third address does."""
    return [Answer(good(request), third=True)]


def disputed(request: bytes) -> list[Answer]:
    """Answers well, after a third address has rejected the request in its name."""
    return [Answer(reply(request, "503 Service Unavailable"), third=True), Answer(good(request), after=0.02)]


def untagged(request: bytes) -> list[Answer]:
    """Accepts without the tag that makes a dialog (RFC 3261 section 12.1.1)."""
    return [Answer(reply(request, "200 OK", tag="", Contact=f"<sip:{Wire.FAR}>"))]


def foreign(request: bytes) -> list[Answer]:
    """Answers with the branch of another transaction."""
    return [Answer(good(request).replace(b"branch=z9hG4bK", b"branch=z9hG4bKother"))]


def other_call(request: bytes) -> list[Answer]:
    """Answers with the CSeq of a request that was never sent."""
    return [Answer(good(request).replace(b"CSeq: ", b"CSeq: 9"))]


@contextlib.contextmanager
def server(cable: Wire, script: Script) -> Iterator[str]:
    """A server at the far end of the cable; its URI."""
    sh("ip", "-n", cable.far, "addr", "add", f"{THIRD}/24", "dev", "w1")
    near = "02:00:00:00:91:02"
    sh("ip", "-n", cable.near, "neigh", "replace", THIRD, "lladdr", near, "dev", "w0", "nud", "permanent")
    main, third = (namespace.inside(cable.far, lambda at=at: _bound(at)) for at in (Wire.FAR, THIRD))  # type: ignore[misc]
    stopped = threading.Event()
    thread = threading.Thread(target=_serve, args=(main, third, script, stopped))
    thread.start()
    try:
        yield f"sip:{Wire.FAR}"
    finally:
        stopped.set()
        thread.join()
        main.close()
        third.close()


def _bound(address: str) -> socket.socket:
    one = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    one.bind((address, PORT))
    return one


def _serve(main: socket.socket, third: socket.socket, script: Script, stopped: threading.Event) -> None:
    due: list[tuple[float, int, Answer, tuple[str, int]]] = []
    numbers = itertools.count()
    while not stopped.is_set():
        wait = min(0.05, max(0.0, due[0][0] - time.monotonic())) if due else 0.05
        if select.select([main], [], [], wait)[0]:
            data, peer = main.recvfrom(65536)
            if not data.startswith((b"ACK ", b"SIP/2.0 ")):
                now = time.monotonic()
                for one in script(data):
                    heapq.heappush(due, (now + one.after, next(numbers), one, peer))
        while due and due[0][0] <= time.monotonic():
            _, _, one, peer = heapq.heappop(due)
            (third if one.third else main).sendto(one.data, peer)
