"""Manual mode: what is composed, sent again, answered and told, over UDP, TCP and TLS."""

from __future__ import annotations

import json
import socket
import ssl
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from netdyno.cli import app
from netdyno.sip.manual import digest
from netdyno.sip.manual.compose import Draft, request
from netdyno.sip.manual.message import SipMessage, tag_of, uri_of

from .served import DOMAIN, USERS, server

Answers = Callable[[SipMessage, int], list[bytes]]


def reply(to: SipMessage, status: str, *more: str) -> bytes:
    kept = [f"{name}: {value}" for name, value in to.fields if name in ("Via", "From", "Call-ID", "CSeq")]
    tag = to.get("To") + ("" if "tag=" in to.get("To") else ";tag=s")
    lines = [f"SIP/2.0 {status}", *kept, f"To: {tag}", *more, "Content-Length: 0"]
    return "\r\n".join([*lines, "", ""]).encode()


@contextmanager
def scripted(
    kind: str, answers: Answers, certificate: Path | None = None
) -> Iterator[tuple[str, list[SipMessage]]]:
    """A server that answers message by message, and what it got."""
    got: list[SipMessage] = []
    listener = socket.socket(type=socket.SOCK_DGRAM if kind == "udp" else socket.SOCK_STREAM)
    listener.bind(("127.0.0.1", 0))
    stopped = threading.Event()

    def handle(data: bytes) -> list[bytes]:
        message = SipMessage.read(data)
        got.append(message)
        return answers(message, len(got))

    def datagrams() -> None:
        listener.settimeout(0.05)
        while not stopped.is_set():
            try:
                data, peer = listener.recvfrom(65535)
            except TimeoutError:
                continue
            for one in handle(data):
                listener.sendto(one, peer)

    def stream() -> None:
        listener.settimeout(10)
        try:
            peer, _ = listener.accept()
            if certificate:
                context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
                context.load_cert_chain(certificate)
                peer = context.wrap_socket(peer, server_side=True)
        except (OSError, ssl.SSLError):
            return
        with peer:
            while data := peer.recv(65535):
                for one in handle(data):
                    # in two parts: a stream has no borders
                    peer.sendall(one[:20])
                    peer.sendall(one[20:])

    if kind != "udp":
        listener.listen()
    thread = threading.Thread(target=datagrams if kind == "udp" else stream, daemon=True)
    thread.start()
    scheme, end = ("sips", "") if kind == "tls" else ("sip", f";transport={kind}")
    try:
        yield f"{scheme}:bob@127.0.0.1:{listener.getsockname()[1]}{end}", got
    finally:
        stopped.set()
        thread.join(10)
        listener.close()


@pytest.fixture
def sent(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, dict[str, Any]]]:
    def call(*arguments: str) -> tuple[int, dict[str, Any]]:
        code = app.call(["sip", "send", *arguments, "--json"])
        return code, json.loads(capsys.readouterr().out)

    return call


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("tls") / "both.pem"
    words = (
        "openssl req -x509 -newkey rsa:2048 -nodes -days 9 -subj /CN=x -addext subjectAltName=IP:127.0.0.1"
    )
    subprocess.run(
        [*words.split(), "-keyout", str(path), "-out", str(path) + ".c"], check=True, capture_output=True
    )
    path.write_text(path.read_text() + Path(str(path) + ".c").read_text())
    return path


def call_server(message: SipMessage, _: int) -> list[bytes]:
    if message.method == "INVITE":
        more = ["Contact: <sip:there@10.9.9.9>", "Record-Route: <sip:p2;lr>, <sip:p1;lr>"]
        return [reply(message, "180 Ringing"), reply(message, "200 OK", *more)]
    return [] if message.method == "ACK" else [reply(message, "200 OK")]


@pytest.mark.parametrize("kind", ["udp", "tcp", "tls"])
def test_a_call(kind: str, sent: Callable[..., Any], certificate: Path) -> None:
    with scripted(kind, call_server, certificate if kind == "tls" else None) as (uri, got):
        code, found = sent(uri, "--method", "INVITE", "--sdp", "--cacert", str(certificate))
    assert code == 0, found
    assert [one.method for one in got] == ["INVITE", "ACK", "BYE"]
    invite, ack, bye = got
    assert b"m=audio" in invite.body and invite.get("Via").startswith(f"SIP/2.0/{kind.upper()} ")
    for one in (ack, bye):
        assert one.uri == "sip:there@10.9.9.9"
        assert one.all("Route") == ["<sip:p1;lr>", "<sip:p2;lr>"]
        assert one.get("To").endswith(";tag=s")
        assert one.branch != invite.branch
    assert (ack.get("CSeq"), bye.get("CSeq")) == ("1 ACK", "2 BYE")
    assert [one["summary"] for one in found["messages"]][1:3] == ["180 Ringing (INVITE)", "200 OK (INVITE)"]


def test_a_certificate_of_nobody_is_refused(
    certificate: Path, sent: Callable[..., Any], capsys: pytest.CaptureFixture[str]
) -> None:
    with scripted("tls", call_server, certificate) as (uri, got):
        assert app.call(["sip", "send", uri]) == 92
    assert "certificate" in capsys.readouterr().err and not got
    with scripted("tls", call_server, certificate) as (uri, got):
        assert sent(uri, "--insecure")[0] == 0


@pytest.mark.parametrize("lost", [1, 2])
def test_a_request_is_sent_again_until_a_response_comes(lost: int, sent: Callable[..., Any]) -> None:
    with scripted("udp", lambda one, n: [reply(one, "200 OK")] if n > lost else []) as (uri, got):
        code, found = sent(uri, "--t1", "50ms")
    assert code == 0
    assert len(got) == lost + 1 and len({one.data() for one in got}) == 1
    assert [one["again"] for one in found["messages"]] == [False] + [True] * lost + [False]


def test_a_silent_server_fails_at_the_timeout(sent: Callable[..., Any]) -> None:
    with scripted("udp", lambda _one, _n: []) as (uri, got):
        code, found = sent(uri, "--t1", "20ms", "--timeout", "500ms")
    assert (code, found["status"], found["passed"]) == (99, None, False)
    # 20 ms, 40 ms, 80 ms, 160 ms and 320 ms after the one before
    assert 2 <= len(got) <= 5


def test_a_rejected_invite_is_acknowledged_in_its_transaction(sent: Callable[..., Any]) -> None:
    busy = lambda one, _: [reply(one, "486 Busy Here")] if one.method == "INVITE" else []  # noqa: E731
    with scripted("udp", busy) as (uri, got):
        code, found = sent(uri, "--method", "INVITE", "--expect", "486")
        assert (code, found["status"]) == (0, 486)
        assert sent(uri, "--method", "INVITE")[0] == 99
    assert [one.method for one in got[:2]] == ["INVITE", "ACK"]
    assert got[0].branch == got[1].branch and got[1].get("To").endswith(";tag=s")


def test_a_call_that_only_rings_is_cancelled(sent: Callable[..., Any]) -> None:
    def rings(one: SipMessage, _: int) -> list[bytes]:
        match one.method:
            case "INVITE":
                pending.append(one)
                return [reply(one, "180 Ringing")]
            case "CANCEL":
                return [reply(one, "200 OK"), reply(pending[0], "487 Request Terminated")]
        return []

    pending: list[SipMessage] = []
    with scripted("tcp", rings) as (uri, got):
        code, found = sent(uri, "--method", "INVITE", "--timeout", "300ms")
    assert (code, found["status"]) == (99, 487)
    assert [one.method for one in got] == ["INVITE", "CANCEL", "ACK"]
    assert len({one.branch for one in got}) == 1


def test_answers_to_others_are_no_answer(sent: Callable[..., Any]) -> None:
    def lies(one: SipMessage, _: int) -> list[bytes]:
        return [reply(one, "200 OK").replace(b"branch=z9", b"branch=z8"), b"nonsense", reply(one, "404 No")]

    with scripted("udp", lies) as (uri, _):
        assert sent(uri)[1]["status"] == 404


def test_requests_of_the_other_side_are_answered(sent: Callable[..., Any]) -> None:
    notify = b"NOTIFY sip:x SIP/2.0\r\nVia: SIP/2.0/UDP y;branch=z9hG4bK1\r\nFrom: <sip:a>;tag=1\r\nTo: <sip:b>\r\n"
    notify += b"Call-ID: n\r\nCSeq: 7 NOTIFY\r\nContent-Length: 0\r\n\r\n"
    subscribed = lambda one, n: [reply(one, "200 OK"), notify] if n == 1 else []  # noqa: E731
    with scripted("udp", subscribed) as (uri, got):
        code, _ = sent(
            uri, "--method", "SUBSCRIBE", "-H", "Event: presence", "--expires", "60", "--wait", "500ms"
        )
    assert code == 0
    assert (got[0].get("Expires"), got[0].get("Event")) == ("60", "presence")
    assert (got[1].start, got[1].get("CSeq")) == ("SIP/2.0 200 OK", "7 NOTIFY")


@pytest.mark.daemon
def test_a_challenge_is_answered(monkeypatch: pytest.MonkeyPatch, sent: Callable[..., Any]) -> None:
    monkeypatch.setenv("WORD", USERS["alice"])
    with server("proxy") as served:
        uri = f"sip:{served.address}"
        words = [
            uri,
            "--method",
            "REGISTER",
            "--request-uri",
            f"sip:{DOMAIN}",
            "--from",
            f"sip:alice@{DOMAIN}",
        ]
        code, found = sent(*words, "--password", "env:WORD")
        assert (code, found["status"], len(found["messages"])) == (0, 200, 4), found
        monkeypatch.setenv("WORD", "wrong")
        code, found = sent(*words, "--password", "env:WORD")
        assert (code, found["status"], len(found["messages"])) == (99, 401, 4)
        code, found = sent(*words)
        assert (code, found["status"], len(found["messages"])) == (99, 401, 2)
    assert "(hidden)" in json.dumps(found) or "response" not in json.dumps(found)


@pytest.mark.parametrize(
    ("algorithm", "response"),
    [
        ("MD5", "8ca523f5e9506fed4657c9700eebdbec"),
        ("SHA-256", "753927fa0e85d155564e2e272a28d1802ca10daf4496794697cf8db5856cb6c1"),
    ],
)
def test_the_example_of_rfc_7616(monkeypatch: pytest.MonkeyPatch, algorithm: str, response: str) -> None:
    monkeypatch.setattr(digest.secrets, "token_hex", lambda _: "f2/wE4q74E6zIJEtWaHKaf5wv/H5QzzpXusqGemxURZJ")
    value = 'Digest realm="http-auth@example.org", qop="auth, auth-int", '
    value += f'algorithm={algorithm}, nonce="7ypf/xlj9XXwfDPEoM4URrv/xwf94BcCAzFZH4GiTo0v", opaque="FQhe"'
    challenge = digest.choose(["Basic realm=x", 'Digest realm="a", nonce="b", algorithm=NEW', value], False)
    assert challenge
    made = challenge.answer("Mufasa", "Circle of Life", "GET", "/dir/index.html", b"")
    assert f'response="{response}"' in made and 'opaque="FQhe"' in made and "qop=auth, nc=00000001" in made


def test_what_is_composed() -> None:
    headers = [("Max-Forwards", "3"), ("m", "<sip:me>"), ("User-Agent", ""), ("X-A", "1"), ("X-A", "2")]
    draft = Draft("INVITE", "sip:bob@b", "sip:a@b", "sip:bob@b", headers, b"hi")
    made = request(draft, "tcp", "[::1]:7")
    assert made.all("Max-Forwards") == ["3"] and made.all("Contact") == ["<sip:me>"]
    assert made.all("X-A") == ["1", "2"] and not made.get("User-Agent")
    assert made.get("Content-Length") == "2" and made.get("Via").startswith(
        "SIP/2.0/TCP [::1]:7;branch=z9hG4bK"
    )
    assert SipMessage.read(made.data()) == made


def test_a_preview_sends_nothing(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    with scripted("udp", lambda _one, _n: []) as (uri, got):
        assert app.call(["sip", "send", uri, "--method", "MESSAGE", "--body", "hello", "--dry-run"]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("MESSAGE sip:bob@127.0.0.1 SIP/2.0\n") and "\n\nhello" in shown and not got
    raw = tmp_path / "raw"
    raw.write_text("OPTIONS sip:x SIP/2.0\nVia: SIP/2.0/UDP h;branch=z9hG4bKr\nCall-ID: 1\nCSeq: 1 OPTIONS\n")
    with scripted("udp", lambda one, _n: [reply(one, "200 OK")]) as (uri, got):
        assert app.call(["sip", "send", uri, "--raw", str(raw)]) == 0
    assert got[0].data() == raw.read_bytes().replace(b"\n", b"\r\n") + b"\r\n"
    assert "OPTIONS sip:x" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["--password", "env:NOBODY_SET_THIS"], 104, "NOBODY_SET_THIS"),
        (["--expect", "1xx"], 104, "no final status"),
        (["--method", "A B"], 104, "no method"),
        (["-H", "no colon"], 104, "NAME: VALUE"),
        (["-H", "X: a\r\nEvil: b"], 104, "NAME: VALUE"),
        (["--from", "alice"], 104, "no URI"),
        (["--body", "x", "--sdp"], 104, "both are the body"),
        (["--raw", "/dev/null"], 104, "ND-104"),
        (["--transport", "tcp"], 104, "ND-104-07"),
    ],
)
def test_wrong_arguments(
    arguments: list[str], code: int, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert app.call(["sip", "send", "sip:bob@127.0.0.1:9;transport=udp", *arguments, "--dry-run"]) == code
    shown = capsys.readouterr()
    assert said in shown.err and "hush" not in shown.err + shown.out


def test_nobody_listens(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        uri = f"sip:127.0.0.1:{taken.getsockname()[1]};transport=tcp"
        assert app.call(["sip", "send", uri, "--timeout", "2s"]) == 91
    assert "ND-91-31" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("value", "uri", "tag"),
    [
        ('<sip:a@b;transport=udp>;+sip.instance="<urn:uuid:7ba1>"', "sip:a@b;transport=udp", ""),
        ('sip:a@b;+sip.instance="<urn:uuid:7ba1>";tag=t', "sip:a@b", "t"),
        (r'"<A\" >;tag=x" <sip:a@b>;tag=t;x="<y>"', "sip:a@b", "t"),
    ],
)
def test_brackets_in_quotes_are_no_uri(value: str, uri: str, tag: str) -> None:
    assert (uri_of(value), tag_of(value)) == (uri, tag)
