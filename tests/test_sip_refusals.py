"""Requests that a user agent server has to refuse, from real sockets: to `sip serve`, and to user agents that are called."""

from __future__ import annotations

import contextlib
import json
import signal
import socket
from collections.abc import Iterator

import pytest
from failing.sip_odd import header
from lab import Lab, until
from ports import free_port

pytestmark = pytest.mark.slow
SDP = "v=0\r\no=- 1 1 IN IP4 127.0.0.1\r\ns=-\r\nc=IN IP4 127.0.0.1\r\nt=0 0\r\nm=audio 40000 RTP/AVP 0\r\n"
MIXED = "multipart/mixed;boundary=b"
PARTS = f"--b\r\nContent-Type: application/sdp\r\n\r\n{SDP}\r\n--b\r\nContent-Type: text/plain\r\n\r\nhi\r\n--b--\r\n"


class Caller:
    """A user agent that sends what it is told over one socket."""

    def __init__(self, one: socket.socket, reliable: bool, uri: str) -> None:
        self.one, self.uri, self.reliable = one, uri, reliable
        self.branches, self.rest = 0, b""
        host, port = one.getsockname()[:2]
        self.own = f"{host}:{port}"

    def request(
        self,
        method: str,
        call: str,
        cseq: int = 1,
        more: str = "",
        body: str = "",
        tag: str = "",
        uri: str = "",
    ) -> str:
        self.branches += 1
        transport, of = ("TCP" if self.reliable else "UDP"), f";tag={tag}" if tag else ""
        return (
            f"{method} {uri or self.uri} SIP/2.0\r\n"
            f"Via: SIP/2.0/{transport} {self.own};rport;branch=z9hG4bK{self.branches}\r\nMax-Forwards: 70\r\n"
            f"From: <sip:tester@{self.own}>;tag=t\r\nTo: <{self.uri}>{of}\r\nCall-ID: {call}\r\n"
            f"CSeq: {cseq} {method}\r\nContact: <sip:tester@{self.own}>\r\n{more}Content-Length: {len(body)}\r\n\r\n{body}"
        )

    def send(self, request: str) -> None:
        self.one.sendall(request.encode())

    def message(self) -> bytes:
        """The next message."""
        if not self.reliable:
            return self.one.recv(65536)
        while True:
            head = self.rest.find(b"\r\n\r\n")
            size = head + 4 + int(header(self.rest[: head + 2], "Content-Length")) if head >= 0 else -1
            if 0 <= size <= len(self.rest):
                found, self.rest = self.rest[:size], self.rest[size:]
                return found
            more = self.one.recv(65536)
            assert more, "the connection ended"
            self.rest += more

    def final(self, request: str) -> bytes:
        """The final response to a request; what comes again of others is passed over."""
        self.send(request)
        asked = [header(request.encode(), name) for name in ("Call-ID", "CSeq")]
        branch = header(request.encode(), "Via").rpartition("branch=")[2]
        while True:
            found = self.message()
            ours = asked == [header(found, name) for name in ("Call-ID", "CSeq")]
            if ours and f"branch={branch}" in header(found, "Via") and not found.startswith(b"SIP/2.0 1"):
                return found


@contextlib.contextmanager
def over_udp(port: int) -> Iterator[Caller]:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
        one.bind(("127.0.0.1", 0))
        one.settimeout(1)
        caller = Caller(one, False, f"sip:anna@127.0.0.1:{port}")
        one.connect(("127.0.0.1", port))

        def answers() -> bool:
            with contextlib.suppress(OSError):
                return caller.final(caller.request("OPTIONS", "ready")).startswith(b"SIP/2.0 200")
            return False

        until(answers, 60)
        one.settimeout(30)
        yield caller


@contextlib.contextmanager
def server(lab: Lab) -> Iterator[Caller]:
    """`sip serve uas`."""
    port = free_port()
    lab.start("sip", "serve", "uas", "--listen", f"127.0.0.1:{port}")
    with over_udp(port) as caller:
        yield caller


@contextlib.contextmanager
def server_over_tcp(lab: Lab) -> Iterator[Caller]:
    with server(lab) as ready, socket.create_connection(ready.one.getpeername(), 30) as one:
        yield Caller(one, True, ready.uri)


@contextlib.contextmanager
def callee(lab: Lab) -> Iterator[Caller]:
    """User agents of a load that are called, without a server between."""
    port, target = free_port(), f"sip:127.0.0.1:{free_port()}"
    words = (
        "--scenario",
        "uas",
        "--listen",
        f"127.0.0.1:{port}",
        "--duration",
        "60s",
        "--warmup",
        "0s",
        "--quiet",
    )
    lab.start("sip", "load", target, *words)
    with over_udp(port) as caller:
        yield caller


@contextlib.contextmanager
def callee_over_tcp(lab: Lab) -> Iterator[Caller]:
    """A user agent that registered over TCP, and is called over that connection."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(60)
        target = f"sip+tcp://127.0.0.1:{listener.getsockname()[1]}"
        phones = {"name": "phones", "target": "server", "model": {"sip": {"scenario": {"preset": "answer"}}}}
        phases = {"warmup": "0s", "measure": "60s"}
        document = {"name": "phones", "targets": {"server": target}, "groups": [phones], "phases": phases}
        lab.start("run", lab.write("phones.json", json.dumps(document)), "--quiet")
        one, _ = listener.accept()
        with one:
            one.settimeout(30)
            caller = Caller(one, True, "")
            register = caller.message()
            contact = header(register, "Contact")
            caller.uri = contact[contact.index("<") + 1 : contact.index(">")]
            lines = [
                f"{name}: {header(register, name)}"
                for name in ("Via", "From", "To", "Call-ID", "CSeq", "Contact")
            ]
            caller.send("\r\n".join(["SIP/2.0 200 OK", *lines, "Content-Length: 0", "", ""]))
            yield caller


@pytest.mark.parametrize("called", [server, server_over_tcp, callee, callee_over_tcp])
def test_a_user_agent_server_refuses_what_it_must_and_then_takes_a_call(lab: Lab, called: object) -> None:
    assert callable(called)
    with called(lab) as caller:
        sdp = "Content-Type: application/sdp\r\n"
        strange = caller.request("INVITE", "505").replace(" SIP/2.0\r\n", " SIP/7.0\r\n", 1)
        refused = [
            (caller.request("INVITE", "415", more="Content-Type: text/plain\r\n", body="hi"), 415, "Accept: application/sdp"),
            (caller.request("INVITE", "gzip", more=sdp + "Content-Encoding: gzip\r\n", body=SDP), 415, "Accept-Encoding: identity"),
            (caller.request("INVITE", "416", uri="mailto:anna@example.net"), 416, ""),
            (caller.request("INVITE", "420", more="Require: foo\r\nRequire: bar\r\n"), 420, "Unsupported: foo, bar"),
            (strange, 505, ""),
            (caller.request("BYE", "481", tag="gone"), 481, ""),
        ]  # fmt: skip
        for request, status, says in refused:
            answer = caller.final(request).decode()
            assert (answer[8:11], says in answer) == (str(status), True), (request, answer)
            if request.startswith("INVITE"):
                ack = caller.request("ACK", header(request.encode(), "Call-ID"), tag=_tag(answer.encode()))
                # section 17.1.1.3: in the transaction of its INVITE
                caller.send(ack.replace(header(ack.encode(), "Via"), header(request.encode(), "Via"), 1))
        # none of them is in the way of a call, whose description is one part of several
        invite = caller.request("INVITE", "call", more=f"Content-Type: {MIXED}\r\n", body=PARTS)
        answer = caller.final(invite)
        assert answer.startswith(b"SIP/2.0 200") and b"m=audio" in answer, answer
        tag = _tag(answer)
        # the same INVITE by another way (section 8.2.2.2)
        via = header(invite.encode(), "Via")
        other = caller.final(invite.replace(via, via + "x", 1))
        assert other.startswith(b"SIP/2.0 482"), other
        caller.send(caller.request("ACK", "call", tag=tag))
        within = [("INFO", 5, 200), ("OPTIONS", 4, 500), ("BYE", 6, 200), ("BYE", 7, 481)]
        for method, cseq, status in within:
            answer = caller.final(caller.request(method, "call", cseq, tag=tag))
            assert answer.startswith(f"SIP/2.0 {status}".encode()), (method, answer)


def test_a_stream_that_cannot_be_read_any_further_is_answered_and_closed(lab: Lab) -> None:
    with server_over_tcp(lab) as caller:
        request = caller.request("OPTIONS", "400").replace("Content-Length: 0\r\n", "Content-Length: x\r\n")
        assert caller.final(request).startswith(b"SIP/2.0 400"), "section 18.3"
        assert caller.one.recv(1) == b""


def test_callees_count_the_call_and_none_of_the_refused(lab: Lab) -> None:
    port, target = free_port(), f"sip:127.0.0.1:{free_port()}"
    words = (
        "--scenario",
        "uas",
        "--listen",
        f"127.0.0.1:{port}",
        "--duration",
        "60s",
        "--warmup",
        "0s",
        "--quiet",
    )
    child = lab.start("sip", "load", target, *words)
    with over_udp(port) as caller:
        for number in range(3):
            refused = caller.final(caller.request("INVITE", f"r{number}", more="Require: foo\r\n"))
            assert refused.startswith(b"SIP/2.0 420")
        answer = caller.final(caller.request("INVITE", "call"))
        caller.send(caller.request("ACK", "call", tag=_tag(answer)))
        assert caller.final(caller.request("BYE", "call", 2, tag=_tag(answer))).startswith(b"SIP/2.0 200")
        child.send_signal(signal.SIGINT)
        done = lab.wait(child)
    counts = done.trial.groups[0].total
    assert (counts.own["calls_received"], counts.own["answers_acknowledged"]) == (1, 1)
    assert counts.own["unrelated_messages"] >= 3, "each refused request is one"
    assert sum(counts.failures.values()) == 0, counts.failures


def test_an_answer_that_is_sent_again_is_timed_from_the_first(lab: Lab) -> None:
    port, target = free_port(), f"sip:127.0.0.1:{free_port()}"
    words = (
        "--scenario",
        "uas",
        "--listen",
        f"127.0.0.1:{port}",
        "--duration",
        "60s",
        "--warmup",
        "0s",
        "--quiet",
    )
    child = lab.start("sip", "load", target, *words)
    with over_udp(port) as caller:
        answer = caller.final(caller.request("INVITE", "call"))
        # the ACK is lost until the 200 comes for the third time: after T1 and 2 T1
        assert [caller.message(), caller.message()] == [answer, answer]
        caller.send(caller.request("ACK", "call", tag=_tag(answer)))
        caller.final(caller.request("BYE", "call", 2, tag=_tag(answer)))
        child.send_signal(signal.SIGINT)
        done = lab.wait(child)
    found = done.trial.groups[0]
    assert found.total.own["response_retransmissions"] == 2
    assert found.delays["answer_signal"].min >= 0.99 * 3 * 0.5e9


def _tag(message: bytes) -> str:
    return header(message, "To").rpartition(";tag=")[2]
