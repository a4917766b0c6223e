"""What SIP user agents do over real sockets against servers that are right and seldom: lost copies, challenges, descriptions
in parts, short lifetimes, connections that end during a call, and a run that is paused."""

from __future__ import annotations

import contextlib
import functools
import json
import socket
import ssl
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from failing import sip_odd
from failing.sip import reply
from failing.sip_odd import Send, header
from lab import NETDYNOD, PATIENT, Lab, until
from rpc import Rpc
from sip_lab import group

from netdyno.sip.dut import certificate

pytestmark = pytest.mark.slow
SEEN: Counter[str] = Counter()
SDP = "v=0\r\no=- 1 1 IN IP4 127.0.0.1\r\ns=-\r\nc=IN IP4 127.0.0.1\r\nt=0 0\r\nm=audio {port} RTP/AVP 0\r\n"


@pytest.fixture(autouse=True)
def nothing_seen() -> None:
    SEEN.clear()


def phones(name: str, target: str, model: dict[str, Any], **more: Any) -> dict[str, Any]:
    """Twenty flows a second, as far as devices are free."""
    load = {"open": {"rate": "20/s", "arrival": "constant"}}
    return {"name": name, "target": target, "devices": 16, "model": {"sip": model}, "load": load} | more


def document(groups: list[dict[str, Any]], measure: str = "1s") -> dict[str, Any]:
    phases = {"warmup": "0s", "measure": measure, "drain": "20s"}
    return {"name": "sip", "groups": groups, "validity": PATIENT, "thresholds": [], "phases": phases}


def ok(request: bytes, port: int, kind: str = "", body: str = "", **more: str) -> bytes:
    """A 200 with a body."""
    more = {"Contact": f"<sip:127.0.0.1:{port}>"} | more | ({"Content_Type": kind} if kind else {})
    end = b"Content-Length: 0\r\n\r\n"
    return reply(request, "200 OK", **more).replace(
        end, f"Content-Length: {len(body)}\r\n\r\n{body}".encode()
    )


def losing(request: bytes, method: str, port: int, send: Send) -> None:
    """Loses the first copy of every request, and challenges those without credentials."""
    key = f"{method} {header(request, 'Call-ID')} {header(request, 'CSeq')}"
    SEEN[key] += 1
    if method == "ACK" or SEEN[key] == 1:
        return
    if method in ("INVITE", "REGISTER") and b"\r\nAuthorization:" not in request:
        send(reply(request, "401 Who", WWW_Authenticate='Digest realm="r", nonce="n", qop="auth"'))
        return
    if method == "INVITE":
        send(reply(request, "180 Ringing", Contact=f"<sip:127.0.0.1:{port}>"))
    send(ok(request, port, Contact=header(request, "Contact")) if method == "REGISTER" else ok(request, port))


def test_no_retransmission_and_no_challenge_restarts_a_delay(lab: Lab) -> None:
    t1 = 0.2
    with sip_odd.serving(losing) as port:
        target = f"sip://127.0.0.1:{port}"
        model = {"password": "secret", "callee": "bob", "t1": f"{t1:g}s"}
        presets = {name: model | {"scenario": {"preset": name}} for name in ("register", "call")}
        groups = [phones(name, target, one) for name, one in presets.items()]
        done = lab.run("run", lab.write("losing.json", json.dumps(document(groups))), "--quiet")
    for name, delay, lost in (
        ("register", "registration", 2), ("call", "session_request", 2), ("call", "session_setup", 2),
        ("call", "session_disconnect", 1),
    ):  # fmt: skip
        found = group(done, name).delays[delay]
        # each copy that was lost costs T1; a bucket of the histogram is a thousandth wide
        assert found.count > 5 and found.min >= 0.99 * lost * t1 * 1e9, (name, delay, found)
    own = {name: group(done, name).total.own for name in presets}
    assert own["register"]["register_retransmissions"] >= 2 * own["register"]["registrations_accepted"] > 10
    assert own["call"]["invite_retransmissions"] >= 2 * own["call"]["sessions_completed"] > 10


def in_parts(audio: int, request: bytes, method: str, port: int, send: Send) -> None:
    """A callee whose description is one part of several (RFC 2046 section 5.1)."""
    if method == "ACK":
        return
    body = f"--b\r\nContent-Type: text/plain\r\n\r\nhello\r\n--b\r\nContent-Type: application/sdp\r\n\r\n{SDP.format(port=audio)}\r\n--b--\r\n"
    send(
        ok(request, port, 'multipart/mixed; boundary="b"', body) if method == "INVITE" else ok(request, port)
    )


def test_an_answer_in_a_part_of_the_body_is_taken(lab: Lab) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as audio:
        audio.bind(("127.0.0.1", 0))
        audio.settimeout(20)
        with sip_odd.serving(functools.partial(in_parts, audio.getsockname()[1])) as port:
            words = ("--rate", "10/s", "--hold", "500ms", "--duration", "1s", "--warmup", "0s", "--quiet")
            done = lab.run("sip", "call", f"sip:bob@127.0.0.1:{port}", "--media", *words)
        assert len(audio.recv(2048)) == 12 + 160, "20 ms of G.711"
    own = done.trial.groups[0].total.own
    assert own["sessions_completed"] == own["session_requests"] > 3, done.text
    assert (own["audio_calls"], own["audio_refused"]) == (own["sessions_answered"], 0), own


def brief(request: bytes, method: str, port: int, send: Send) -> None:
    """A registrar that keeps no binding for less than 90 s."""
    expires = header(request, "Expires")
    SEEN[expires] += 1
    if int(expires) < 90:
        send(reply(request, "423 Interval Too Brief", Min_Expires="90"))
    else:
        send(ok(request, port, Contact=f"{header(request, 'Contact')};expires={expires}"))


def test_a_lifetime_that_is_too_short_is_asked_for_again(lab: Lab) -> None:
    with sip_odd.serving(brief) as port:
        model = {"scenario": {"preset": "register"}, "expires": "30s"}
        groups = [phones("phones", f"sip://127.0.0.1:{port}", model)]
        done = lab.run("run", lab.write("brief.json", json.dumps(document(groups))), "--quiet")
    total = group(done, "phones").total
    assert total.flows_completed == total.flows_started > 10, done.text
    assert (total.own["registrations_accepted"], SEEN["90"]) == (total.flows_completed,) * 2
    # who has been told asks for as much the next time
    assert 0 < SEEN["30"] <= 16


def repeating(request: bytes, method: str, port: int, send: Send) -> None:
    """An overloaded callee that answers everything again, and out of order."""
    if method == "ACK":
        return
    again = {"INVITE": ("100", "180", "100", "180", "200", "180", "100", "200"), "BYE": ("200", "200")}[
        method
    ]
    for status in again:
        SEEN["responses"] += 1
        send(ok(request, port) if status == "200" else reply(request, f"{status} Soon"))


def test_each_response_is_in_one_counter(lab: Lab) -> None:
    with sip_odd.serving(repeating) as port:
        model = {"scenario": {"preset": "call"}, "callee": "bob", "hold": "300ms"}
        groups = [phones("phones", f"sip://127.0.0.1:{port}", model)]
        done = lab.run("run", lab.write("repeating.json", json.dumps(document(groups))), "--quiet")
    own = group(done, "phones").total.own
    calls = own["sessions_completed"]
    assert calls == own["session_requests"] > 10
    received = ("trying_responses", "provisional_responses", "sessions_answered", "disconnects_accepted")
    counted = sum(own[name] for name in (*received, "responses_repeated"))
    # of each call the last, again to BYE, may come when its user agent is no more
    assert SEEN["responses"] == 10 * calls >= counted >= 9 * calls, own
    assert own["trying_responses"] == own["provisional_responses"] == 3 * calls


@pytest.fixture(scope="module")
def identity(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("identity")
    certificate.write(folder, "127.0.0.1")
    return folder


EARLY = {"rate": "5/s", "stages": [{"over": "1s", "rate": "5/s"}, {"over": "0s", "rate": "0/s"}]}
"""A call that begins near the end is ended as the load is over, before the server closes its connection."""
VERSIONS = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}


@contextlib.contextmanager
def closing(identity: Path, version: str, says: bool) -> Iterator[int]:
    """A callee over TLS that closes each connection 0.1 s after an ACK; `says`: with the alert that says so."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(identity / "certificate.pem", identity / "key.pem")
    context.minimum_version = context.maximum_version = VERSIONS[version]

    def serve(plain: socket.socket) -> None:
        invited = set()
        with contextlib.suppress(OSError), context.wrap_socket(plain, server_side=True) as one:
            assert one.version() == version
            data = b""
            while more := one.recv(65536):
                data += more
                while (end := data.find(b"\r\n\r\n")) >= 0:
                    size = end + 4 + int(header(data[: end + 2], "Content-Length"))
                    if len(data) < size:
                        break
                    request, data = data[:size], data[size:]
                    method, call = request.split(b" ", 1)[0].decode(), header(request, "Call-ID")
                    if method == "ACK":
                        time.sleep(0.1)
                        if says:
                            one.unwrap()
                        return
                    invited.add(call)
                    SEEN[f"{version} {says} {method}"] += 1
                    SEEN["BYE on the connection of its INVITE"] += method == "BYE" and len(invited) > 1
                    one.sendall(ok(request, 5061))

    def accept() -> None:
        with contextlib.suppress(OSError):
            while True:
                threading.Thread(target=serve, args=(listener.accept()[0],), daemon=True).start()

    with socket.create_server(("127.0.0.1", 0), backlog=64) as listener:
        threading.Thread(target=accept, daemon=True).start()
        yield listener.getsockname()[1]
        listener.shutdown(socket.SHUT_RDWR)


def test_a_call_outlives_its_tls_connection(lab: Lab, identity: Path) -> None:
    kinds = [(version, says) for version in VERSIONS for says in (True, False)]
    trust = {"tls": {"ca": str(identity / "certificate.pem")}}
    model = {"scenario": {"preset": "call"}, "callee": "bob", "hold": "1s"}
    with contextlib.ExitStack() as stack:
        ports = [stack.enter_context(closing(identity, *kind)) for kind in kinds]
        groups = [
            phones(f"g{number}", f"sips://127.0.0.1:{port}", model, **trust, load={"open": EARLY})
            for number, port in enumerate(ports)
        ]
        done = lab.run("run", lab.write("tls.json", json.dumps(document(groups, "3s"))), "--quiet")
    for number, (version, says) in enumerate(kinds):
        total = group(done, f"g{number}").total
        assert not sum(total.failures.values()), (version, says, total.failures, done.text)
        invites, byes = (SEEN[f"{version} {says} {method}"] for method in ("INVITE", "BYE"))
        assert total.own["sessions_completed"] == total.own["session_requests"] == invites == byes > 2
    assert SEEN["BYE on the connection of its INVITE"] == 0


def patient(request: bytes, method: str, port: int, send: Send) -> None:
    """A callee that sends its 200 again until the ACK (RFC 3261 section 13.3.1.4)."""
    call = header(request, "Call-ID")
    SEEN[method] += 1
    SEEN[f"{method} {call}"] += 1
    if method == "ACK":
        return

    def again() -> None:
        if not SEEN[f"ACK {call}"]:
            SEEN["200 again"] += 1
            send(ok(request, port))

    send(ok(request, port))
    if method == "INVITE":
        for after in (0.5, 1.5, 3.5):
            timer = threading.Timer(after, again)
            timer.daemon = True
            timer.start()


def test_calls_that_a_pause_finds_held_go_on_and_end(lab: Lab) -> None:
    core = str(lab.base / "core.sock")
    child = lab.spawn(NETDYNOD, "--socket", core, stdout=subprocess.PIPE)
    assert child.stdout and child.stdout.readline()
    with sip_odd.serving(patient) as port:
        model = {"scenario": {"preset": "call"}, "callee": "bob", "hold": "700ms"}
        plan = document([phones("phones", f"sip://127.0.0.1:{port}", model, devices=64)], "3s")
        rpc = Rpc(core)
        rpc.call("control.acquire")
        rpc.call("run.load", profile=plan)
        rpc.call("run.start")
        until(lambda: rpc.call("run.status") and SEEN["BYE"] > 3, 60)
        assert rpc.call("run.pause")["state"] == "paused"
        came = -1
        # what was on its way
        while came != (came := sum(SEEN[one] for one in ("INVITE", "ACK", "BYE"))):
            rpc.call("run.status")
            time.sleep(0.7)
        held = SEEN["INVITE"] - SEEN["BYE"]
        rpc.call("run.status")
        time.sleep(1.2)
        assert sum(SEEN[one] for one in ("INVITE", "ACK", "BYE")) == came, "nothing is sent"
        assert held > 3, "calls that are up"
        before = SEEN["INVITE"]
        assert rpc.call("run.resume")["state"] == "running"
        rpc.until_done()
        (found,) = rpc.call("run.result")["groups"]
        rpc.close()
    total = found["total"]
    assert (
        total["sessions_completed"]
        == total["session_requests"]
        == SEEN["INVITE"] - total["invite_retransmissions"]
    )
    assert SEEN["INVITE"] > before, "the load comes back"
    assert sum(total["failures"].values()) == 0, total["failures"]
    # of 60 that are due in 3 s without the pause
    assert total["flows_intended"] == total["flows_started"] == total["session_requests"] <= 61
    assert found["rates"]["flows_intended"] == pytest.approx(20, abs=1)
