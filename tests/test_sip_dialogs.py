"""Dialogs with peers that are right and seldom: another remote target, lower case, requests that must be refused."""

from __future__ import annotations

import contextlib
import select
import socket
import threading
from collections import Counter
from collections.abc import Iterator

from failing.sip import reply
from lab import Lab, root

pytestmark = root


def bound() -> socket.socket:
    one = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    one.bind(("127.0.0.1", 0))
    return one


@contextlib.contextmanager
def elsewhere() -> Iterator[tuple[int, Counter[tuple[str, str]]]]:
    """A user agent whose Contact is at another port: its port, and the requests that came to each.

    Its status lines are in lower case.
    """
    server, contact = bound(), bound()
    got: Counter[tuple[str, str]] = Counter()
    stopped = threading.Event()

    def serve() -> None:
        while not stopped.is_set():
            for one in select.select([server, contact], [], [], 0.05)[0]:
                data, peer = one.recvfrom(65_535)
                method = data.split(b" ", 1)[0].decode()
                got[method, "server" if one is server else "contact"] += 1
                if method != "ACK":
                    target = f"<sip:bob@127.0.0.1:{contact.getsockname()[1]}>"
                    status = "200 OK" if method == "INVITE" or one is contact else "481 Not Here"
                    answer = reply(data, status, Contact=target)
                    one.sendto(answer.replace(b"SIP/2.0", b"sip/2.0", 1), peer)

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield server.getsockname()[1], got
    finally:
        stopped.set()
        thread.join()
        server.close()
        contact.close()


def test_a_message_by_hand_goes_to_the_remote_target(lab: Lab) -> None:
    with elsewhere() as (port, got):
        done = lab.run("sip", "send", f"sip:bob@127.0.0.1:{port}", "--method", "INVITE", "--sdp")
    assert done.code == 0, done.text
    assert (got["ACK", "contact"], got["BYE", "contact"], got["BYE", "server"]) == (1, 1, 0)
