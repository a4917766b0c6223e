"""SIP servers on loopback that are right by RFC 3261 and odd, and registrars that register nothing: one port each."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import re
import socket
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

from failing.sip import reply

Send = Callable[[bytes], Any]
Peer = Callable[[bytes, str, int, Send], None]
SEEN: Counter[str] = Counter()
"""What came, as `PEER METHOD`, and what was wrong with it."""


def header(message: bytes, name: str) -> str:
    found = re.search(rf"^{name}: *(.*?)\r$", message.decode(), re.MULTILINE)
    return found[1] if found else ""


def _later(seconds: float, act: Callable[[], Any]) -> None:
    timer = threading.Timer(seconds, act)
    timer.daemon = True
    timer.start()


def _answered(request: bytes, field: str, realm: str, method: str) -> bool:
    """Whether the request has the right answer to a challenge of this realm."""
    found = {
        key: quoted or plain
        for key, quoted, plain in re.findall(r'(\w+)=(?:"([^"]*)"|([^,\s]+))', header(request, field))
    }
    if found.get("realm") != realm:
        return False

    def md5(*parts: str) -> str:
        return hashlib.md5(":".join(parts).encode()).hexdigest()

    user, action = md5(found["username"], realm, "secret"), md5(method, found["uri"])
    return found["response"] == md5(user, realm, found["nc"], found["cnonce"], "auth", action)


def _good(request: bytes, port: int, **fields: str) -> bytes:
    return reply(request, "200 OK", Contact=f"<sip:127.0.0.1:{port}>", **fields)


def _bye(invite: bytes, port: int) -> bytes:
    contact = header(invite, "Contact").strip("<>")
    lines = [
        f"BYE {contact} SIP/2.0", f"Via: SIP/2.0/UDP 127.0.0.1:{port};branch=z9hG4bK{header(invite, 'Call-ID')[:24]}",
        "Max-Forwards: 70", f"From: {header(invite, 'To').split(';tag=')[0]};tag=srv", f"To: {header(invite, 'From')}",
        f"Call-ID: {header(invite, 'Call-ID')}", "CSeq: 1 BYE", "Content-Length: 0", "", "",
    ]  # fmt: skip
    return "\r\n".join(lines).encode()


def challenged(request: bytes, method: str, port: int, send: Send) -> None:
    """A proxy and the server behind it, each with its challenge (section 22.3)."""
    if method == "ACK":
        # section 22.1: what its INVITE had; that to a failure has none
        if b"Authorization" in request:
            SEEN["challenged ACK"] += all(_answered(request, *one, "INVITE") for one in BOTH)
        return
    for (field, realm), (status, challenge) in zip(BOTH, CHALLENGES, strict=True):
        if not _answered(request, field, realm, method):
            send(
                reply(request, status, **{challenge: f'Digest realm="{realm}", nonce="{realm}", qop="auth"'})
            )
            return
    send(
        reply(
            request,
            "200 OK",
            Contact=header(request, "Contact") if method == "REGISTER" else f"<sip:127.0.0.1:{port}>",
        )
    )


BOTH = (("Proxy-Authorization", "edge"), ("Authorization", "home"))
CHALLENGES = (("407 Who", "Proxy_Authenticate"), ("401 Who", "WWW_Authenticate"))


def unbound(request: bytes, method: str, port: int, send: Send) -> None:
    send(reply(request, "200 OK"))


def ended(request: bytes, method: str, port: int, send: Send) -> None:
    send(reply(request, "200 OK", Contact=header(request, "Contact") + ";expires=0"))


def hangs_up(request: bytes, method: str, port: int, send: Send) -> None:
    """A callee that ends each call before the caller does."""
    if method != "ACK":
        send(_good(request, port))
    if method == "INVITE":
        _later(0.1, lambda: send(_bye(request, port)))


INVITES: dict[str, bytes] = {}


def crosses(request: bytes, method: str, port: int, send: Send) -> None:
    """A callee that hangs up at the very moment at which the caller does."""
    call = header(request, "Call-ID")
    if method == "INVITE":
        INVITES[call] = request
    if method == "BYE":
        send(_bye(INVITES[call], port))
        _later(0.02, lambda: send(_good(request, port)))
    elif method != "ACK":
        send(_good(request, port))


DATAGRAMS = (challenged, unbound, ended, hangs_up, crosses)


@contextlib.contextmanager
def servers() -> Iterator[dict[str, int]]:
    """All of them; their ports. `closes` is a TCP server that closes each connection soon after an ACK."""
    SEEN.clear()
    with contextlib.ExitStack() as stack:
        ports = {}
        for peer in DATAGRAMS:
            ports[peer.__name__] = stack.enter_context(serving(peer))
        listener = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=64))
        stack.callback(lambda: listener.shutdown(socket.SHUT_RDWR))
        ports["closes"] = listener.getsockname()[1]
        threading.Thread(target=_accept, args=(listener,), daemon=True).start()
        yield ports


@contextlib.contextmanager
def serving(peer: Peer) -> Iterator[int]:
    """One of them by itself; its port."""
    stopped = threading.Event()
    one = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    one.bind(("127.0.0.1", 0))
    one.settimeout(0.1)
    port = one.getsockname()[1]
    threading.Thread(target=_datagrams, args=(one, peer, stopped), daemon=True).start()
    try:
        yield port
    finally:
        stopped.set()


def _datagrams(one: socket.socket, peer: Peer, stopped: threading.Event) -> None:
    port = one.getsockname()[1]
    with one:
        while not stopped.is_set():
            with contextlib.suppress(TimeoutError):
                data, address = one.recvfrom(65536)
                if data.startswith(b"SIP/2.0 "):
                    continue
                method = data.split(b" ", 1)[0].decode()
                peer(data, method, port, functools.partial(_send, one, address))


def _send(one: socket.socket, address: Any, data: bytes) -> None:
    with contextlib.suppress(OSError):
        one.sendto(data, address)


def _accept(listener: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while True:
            threading.Thread(target=_closes, args=(listener.accept()[0],), daemon=True).start()


def _closes(one: socket.socket) -> None:
    """Answers, and closes the connection 0.1 s after an ACK, as if nobody had said anything for long (section 18)."""
    data = b""
    with contextlib.suppress(OSError), one:
        while more := one.recv(65536):
            data += more
            while (end := data.find(b"\r\n\r\n")) >= 0:
                size = end + 4 + int(header(data[: end + 2], "Content-Length"))
                if len(data) < size:
                    break
                request, data = data[:size], data[size:]
                method = request.split(b" ", 1)[0].decode()
                SEEN[f"closes {method}"] += 1
                if method != "ACK":
                    one.sendall(_good(request, 5060))
                else:
                    _later(0.1, functools.partial(_shut, one))


def _shut(one: socket.socket) -> None:
    with contextlib.suppress(OSError):
        one.shutdown(socket.SHUT_RDWR)
