"""`netdyno sip redirect`: against Kamailio and our own server, with calls that follow, and circles that end."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from lab import Lab, root
from sip_lab import patient
from test_sip import SERVER, group, measured, moved, options
from test_sip_connections import served

from netdyno.sip import profile


@root
def test_redirections_are_what_kamailio_counted(lab: Lab) -> None:
    document = patient(profile.redirect(options(f"sip:{SERVER}")))
    document["phases"]["warmup"] = "1s"
    done = measured(lab, document, role="redirect")
    assert done.code == 0, done.text
    callers = group(done, "callers")
    count = callers.total.own
    assert count["session_requests"] == count["sessions_redirected"] > 20
    assert callers.indices["redirect_success"] == 1.0
    assert callers.delays["redirect"].count == callers.measured.own["sessions_redirected"]
    again = count["invite_retransmissions"]
    assert moved(done, "core_rcv_requests_invite") == count["session_requests"] + again


WORDS = (
    "--domain",
    "example.net",
    "--rate",
    "20/s",
    "--users",
    "20",
    "--duration",
    "2s",
    "--warmup",
    "0s",
    "--quiet",
)


def register(port: int, contacts: str) -> None:
    """Bind `alice` to these Contacts."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
        one.bind(("127.0.0.1", 0))
        one.settimeout(30)
        own = f"127.0.0.1:{one.getsockname()[1]}"
        lines = [
            "REGISTER sip:example.net SIP/2.0",
            f"Via: SIP/2.0/UDP {own};branch=z9hG4bKalice",
            "From: <sip:alice@example.net>;tag=1",
            "To: <sip:alice@example.net>",
            f"Call-ID: alice@{own}",
            "CSeq: 1 REGISTER",
            "Max-Forwards: 70",
            f"Contact: {contacts}",
            "Expires: 600",
            "Content-Length: 0",
            "",
            "",
        ]
        one.sendto("\r\n".join(lines).encode(), ("127.0.0.1", port))
        assert one.recv(65536).startswith(b"SIP/2.0 200")


def test_calls_follow_to_who_answers(lab: Lab) -> None:
    with served(lab, "uas") as (phone, answered), served(lab, "redirect") as (port, redirected):
        register(port, f"<sip:alice@127.0.0.1:{phone}>")
        done = lab.run("sip", "redirect", f"sip:alice@127.0.0.1:{port}", "--follow", *WORDS)
        assert done.code in (0, 90, 99), done.text
    count = group(done, "callers").total.own
    calls = count["sessions_redirected"]
    assert calls == count["sessions_answered"] == count["sessions_completed"] > 20
    assert count["session_requests"] == 2 * calls
    assert group(done, "callers").indices["ser"] == 1.0
    assert redirected["responses"]["302"] == redirected["requests"]["INVITE"] == calls
    assert answered["calls_answered"] == answered["requests"]["BYE"] == calls


@contextmanager
def answering(status: str, contacts: str) -> Iterator[int]:
    """A server that answers each INVITE so; `{port}` in the Contacts is its own."""
    stopped = threading.Event()
    server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    server.bind(("127.0.0.1", 0))
    server.settimeout(0.1)
    port = int(server.getsockname()[1])

    def serve() -> None:
        while not stopped.is_set():
            try:
                data, peer = server.recvfrom(65536)
            except TimeoutError:
                continue
            if data.startswith(b"ACK"):
                continue
            names = ("Via:", "From:", "Call-ID:", "CSeq:")
            head = data.decode().split("\r\n\r\n")[0].split("\r\n")
            kept = [line for line in head if line.startswith(names)]
            to = next(line for line in head if line.startswith("To:"))
            uri = head[0].split(" ")[1]
            contact = f"Contact: {contacts.format(port=port, uri=uri)}"
            reply = [f"SIP/2.0 {status}", *kept, f"{to};tag=s", contact, "Content-Length: 0", "", ""]
            server.sendto("\r\n".join(reply).encode(), peer)

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield port
    finally:
        stopped.set()
        thread.join()
        server.close()


@pytest.mark.parametrize(
    ("contacts", "said"),
    [
        ("<{uri}>", "redirected in a circle"),
        ("<sip:a@127.0.0.1:{port}>, <sip:b@127.0.0.1:{port}>;q=0.5", "redirected in a circle"),
        ("<{uri}x>", "redirected over 10 times"),
    ],
)
def test_redirections_in_a_circle_end(lab: Lab, contacts: str, said: str) -> None:
    with answering("302 Moved Temporarily", contacts) as port:
        done = lab.run("sip", "redirect", f"sip:127.0.0.1:{port}", "--to", "alice", "--follow", *WORDS)
    assert done.code in (99, 90), done.text
    (error,) = group(done, "callers").errors
    assert (error.kind, [one.cause for one in error.causes]) == ("rejected", [said])


@pytest.mark.parametrize(
    ("more", "said"), [(("--follow",), "--to"), (("--to", "alice", "--hold", "2s"), "--follow")]
)
def test_what_does_not_go_together_is_named(lab: Lab, more: tuple[str, ...], said: str) -> None:
    done = lab.run("sip", "redirect", "sip:127.0.0.1", *more, "--quiet")
    assert done.code == 104 and "ND-104-03" in done.text and said in done.text, done.text
