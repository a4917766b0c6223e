"""User agents that share connections: counts of Kamailio and of our own server, TLS, and a connection that is lost."""

from __future__ import annotations

import json
import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from lab import Lab, root
from ports import free_port
from sip_lab import patient
from test_sip import SERVER, group, measured, moved, options

from netdyno.sip import profile

USERS = 40


@contextmanager
def served(lab: Lab, role: str, *more: str) -> Iterator[tuple[int, dict[str, Any]]]:
    """Our own server on a port; its counters when it is over."""
    port, counted = free_port(), dict[str, Any]()
    child = lab.start(
        "sip", "serve", role, "--listen", f"127.0.0.1:{port}", "--domain", "example.net", *more, "--json"
    )
    assert child.stderr
    child.stderr.readline()
    try:
        yield port, counted
    finally:
        child.send_signal(signal.SIGINT)
        done = lab.wait(child)
    counted |= json.loads(done.out)["counters"]


@root
@pytest.mark.parametrize(("connections", "opened"), [("one", 1), (3, 3), ("each", USERS)])
def test_registrations_are_what_kamailio_counted(lab: Lab, connections: str | int, opened: int) -> None:
    uri = f"sip:{SERVER};transport=tcp"
    document = patient(
        profile.register(options(uri, connections=connections, users=USERS, keep_bindings=True))
    )
    document["phases"]["warmup"] = "0s"
    done = measured(lab, document)
    assert done.code == 0, done.text
    count = group(done, "phones").total.own
    assert count["registrations"] == count["registrations_accepted"] == count["challenges"] > USERS
    assert moved(done, "core_rcv_requests_register") == 2 * count["registrations"]
    assert moved(done, "tcp_established") == opened


@root
def test_calls_over_two_connections_are_what_kamailio_counted(lab: Lab) -> None:
    """One connection has the callers, the other the callees: requests of the server find theirs by Contact."""
    uri = f"sip:{SERVER};transport=tcp"
    document = patient(profile.call(options(uri, hold=0.2, connections="one")))
    done = measured(lab, document, role="proxy", call_auth=True)
    assert done.code == 0, done.text
    callers, callees = group(done, "callers"), group(done, "callees")
    count = callers.total.own
    assert count["session_requests"] == count["sessions_answered"] == count["sessions_completed"] > 20
    assert callees.total.own["calls_received"] == callees.total.own["answers_acknowledged"]
    assert callees.total.own["calls_received"] == count["session_requests"]
    for one in (callers, callees):
        assert one.total.own["unrelated_messages"] == one.total.own["malformed_messages"] == 0
    assert moved(done, "tcp_established") == 2


def test_calls_over_one_tls_connection_are_what_our_server_counted(lab: Lab) -> None:
    authority, tls = str(lab.base / "ca.pem"), free_port()
    more = ("--tls-self-signed", authority, "--tls-listen", f"127.0.0.1:{tls}")
    with served(lab, "proxy", *more) as (_, counted):
        words = ("sip", "call", f"sips:127.0.0.1:{tls}", "--domain", "example.net", "--cacert", authority)
        load = ("--rate", "30/s", "--users", "30", "--duration", "2s", "--connections", "one", "--quiet")
        done = lab.run(*words, *load, "--threshold", "callers.index.ser >= 100%")
        assert done.code in (0, 90, 99), done.text
    callers, callees = group(done, "callers").total.own, group(done, "callees").total.own
    assert callers["session_requests"] == callers["sessions_completed"] > 20
    assert counted["connections"] == {"TLS": 2}
    assert counted["requests"]["INVITE"] == callers["session_requests"] == callees["calls_received"]
    assert counted["requests"]["BYE"] == callers["disconnect_requests"]


class Losing:
    """A server that answers OPTIONS, and closes its first connection in the midst of them, perhaps after a 100."""

    def __init__(self, after: int, word: bool) -> None:
        self.after, self.word, self.accepted, self.answered = after, word, 0, 0
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.listener.settimeout(0.1)
        self.stopped = threading.Event()
        self.thread = threading.Thread(target=self._serve)
        self.thread.start()

    @property
    def port(self) -> int:
        return int(self.listener.getsockname()[1])

    def close(self) -> None:
        self.stopped.set()
        self.thread.join()
        self.listener.close()

    def _serve(self) -> None:
        while not self.stopped.is_set():
            try:
                one, _ = self.listener.accept()
            except TimeoutError:
                continue
            self.accepted += 1
            with one:
                one.settimeout(0.1)
                self._answer(one)

    def _answer(self, one: socket.socket) -> None:
        rest = b""
        while not self.stopped.is_set():
            try:
                came = one.recv(65536)
            except TimeoutError:
                continue
            if not came:
                return
            rest += came
            while (end := rest.find(b"\r\n\r\n")) >= 0:
                head, rest = rest[:end].decode(), rest[end + 4 :]
                closes = self.accepted == 1 and self.answered == self.after
                names = ("Via:", "From:", "To:", "Call-ID:", "CSeq:")
                kept = [line for line in head.split("\r\n") if line.startswith(names)]
                status = "100 Trying" if closes else "200 OK"
                reply = [f"SIP/2.0 {status}", *kept, "Content-Length: 0", "", ""]
                if self.word or not closes:
                    one.sendall("\r\n".join(reply).encode())
                if closes:
                    return
                self.answered += 1


@pytest.mark.parametrize("word", [False, True])
def test_a_lost_connection_is_opened_again_and_named(lab: Lab, word: bool) -> None:
    """Who has heard nothing of its request asks again (RFC 5923 section 8); for who has, the loss is a failure."""
    server = Losing(after=20, word=word)
    try:
        words = ("sip", "load", f"sip:127.0.0.1:{server.port};transport=tcp", "--scenario", "options")
        load = (
            "--rate",
            "30/s",
            "--users",
            "10",
            "--duration",
            "3s",
            "--warmup",
            "0s",
            "--connections",
            "one",
            "--quiet",
        )
        done = lab.run(*words, *load)
    finally:
        server.close()
    assert done.code in ((99, 90) if word else (0, 90)), done.text
    assert server.accepted == 2, done.text
    phones = group(done, "phones")
    assert phones.total.messages_delivered == server.answered > 40
    assert {one.kind for one in phones.errors} == ({"closed"} if word else set())
    said = "on a connection that 10 devices share" in (done.folder / "result.json").read_text()
    assert said is word, done.text


@pytest.mark.parametrize(
    ("uri", "more", "said"),
    [
        ("sip:127.0.0.1", ("--connections", "one"), "not over UDP"),
        ("ws://127.0.0.1:80", ("--connections", "2"), "not over WS"),
        ("sip:127.0.0.1;transport=tcp", ("--connections", "0"), "1 or more"),
        ("sip:127.0.0.1;transport=tcp", ("--connections", "many"), "whole number"),
    ],
)
def test_what_cannot_be_shared_is_refused(lab: Lab, uri: str, more: tuple[str, ...], said: str) -> None:
    done = lab.run("sip", "register", uri, "--rate", "1/s", *more, "--quiet")
    assert done.code == 104 and said in done.text, done.text
    assert "--connections" in done.text
