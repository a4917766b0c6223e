"""Dialogs with peers that are right and seldom: another remote target, lower case, requests that must be refused."""

from __future__ import annotations

import contextlib
import json
import select
import socket
import threading
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from failing.sip import reply
from lab import Lab, root
from sip_lab import group
from test_sip import PATIENT

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


def document(target: int, model: dict[str, Any], **more: Any) -> dict[str, Any]:
    one = {"name": "phones", "target": f"sip://127.0.0.1:{target}", "model": {"sip": model}} | more
    phases = {"warmup": "0s", "measure": "1s", "drain": "4s"}
    return {"name": "t", "phases": phases, "validity": PATIENT, "groups": [one]}


@pytest.mark.parametrize("sockets", ["own", "shared"])
def test_ack_and_bye_go_to_the_remote_target(lab: Lab, sockets: str) -> None:
    model = {"scenario": {"preset": "call"}, "hold": "50ms", "callee": "bob", "sockets": sockets}
    load = {"open": {"rate": "20/s", "stages": [{"over": "0s", "rate": "20/s"}]}}
    with elsewhere() as (port, got):
        done = lab.run("run", lab.write("t.json", json.dumps(document(port, model, load=load))), "--quiet")
    assert done.code == 0, done.text
    calls = group(done, "phones").total.own["session_requests"]
    assert calls > 5, "20 on average, by chance"
    assert group(done, "phones").total.own["sessions_completed"] == calls
    assert got["BYE", "contact"] >= calls and got["ACK", "contact"] >= calls
    assert got["BYE", "server"] == got["ACK", "server"] == 0


def test_a_message_by_hand_goes_to_the_remote_target(lab: Lab) -> None:
    with elsewhere() as (port, got):
        done = lab.run("sip", "send", f"sip:bob@127.0.0.1:{port}", "--method", "INVITE", "--sdp")
    assert done.code == 0, done.text
    assert (got["ACK", "contact"], got["BYE", "contact"], got["BYE", "server"]) == (1, 1, 0)


def test_a_callee_refuses_and_answers_what_it_must(lab: Lab) -> None:
    with contextlib.closing(bound()) as free:
        listen = free.getsockname()[1]
    caller = bound()
    caller.settimeout(10)
    model = {"scenario": {"preset": "uas"}, "sockets": "shared", "port": listen}
    plan = document(5060, model, devices=2, source=["127.0.0.1"])
    plan["phases"]["measure"] = "3s"
    running = lab.start("run", lab.write("t.json", json.dumps(plan)), "--quiet")

    def ask(method: str, branch: str, call: str, cseq: int = 1, to: str = "", more: str = "") -> bytes:
        text = (
            f"{method} sip:bob@127.0.0.1:{listen} SIP/2.0\r\nVia: SIP/2.0/UDP caller.invalid;branch=z9hG4bK{branch};rport\r\n"
            f"From: <sip:a@h>;tag=1\r\nTo: <sip:bob@h>{to}\r\nCall-ID: {call}\r\nCSeq: {cseq} {method}\r\n"
            f"Contact: <sip:a@127.0.0.1:{caller.getsockname()[1]}>\r\n{more}Content-Length: 0\r\n\r\n"
        ).encode()
        while True:
            caller.sendto(text, ("127.0.0.1", listen))
            if method == "ACK":
                return b""
            caller.settimeout(0.2)
            with contextlib.suppress(TimeoutError, ConnectionRefusedError):
                answer = caller.recv(65_535)
                while f"branch=z9hG4bK{branch};".encode() not in answer or answer[8:9] == b"1":
                    answer = caller.recv(65_535)
                return answer

    first = ask("OPTIONS", "1", "c1")
    assert first[8:11] == b"200"
    assert f";received=127.0.0.1;rport={caller.getsockname()[1]}\r\n".encode() in first, first
    assert ask("BYE", "2", "c2", to=";tag=gone")[8:11] == b"481"
    refused = ask("INVITE", "3", "c3", more="Require: foo\r\n")
    assert refused[8:11] == b"420" and b"Unsupported: foo\r\n" in refused
    answer = ask("INVITE", "4", "c4", 5)
    assert answer[8:11] == b"200", answer
    tag = b";tag=" + answer.split(b"\r\nTo: ")[1].split(b"\r\n")[0].split(b";tag=")[1]
    assert ask("OPTIONS", "5", "c4", 4, tag.decode())[8:11] == b"500"
    # its ACK was lost
    assert ask("BYE", "6", "c4", 6, tag.decode())[8:11] == b"200"
    assert ask("BYE", "7", "c4", 7, tag.decode())[8:11] == b"481"
    caller.close()
    done = lab.wait(running)
    assert group(done, "phones").total.own["calls_received"] == 1, done.text
