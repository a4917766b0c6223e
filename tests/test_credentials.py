"""Credentials in a URL, and secrets from files, reach the server as they are, and nothing that is kept or printed."""

from __future__ import annotations

import base64
import html
import json
import socket
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest
from lab import Done, Lab, until
from ports import free_port

PASSWORD = "pa{seq}/w@rd{{%"
TOKEN = "tok-7Fh2/x+y=&q"
PINS = ("1357924680", "pin-two-22")
SHORT = ["--warmup", "0s", "--duration", "1s"]


class Heads:
    """An HTTP server that keeps what it was asked."""

    def __init__(self) -> None:
        self.socket = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.port = self.socket.getsockname()[1]
        self.seen: set[bytes] = set()
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                one, _ = self.socket.accept()
            except OSError:
                return
            threading.Thread(target=self._answer, args=(one,), daemon=True).start()

    def _answer(self, one: socket.socket) -> None:
        data = b""
        with one:
            while more := one.recv(65536):
                data += more
                *heads, data = data.split(b"\r\n\r\n")
                for head in heads:
                    self.seen.add(head)
                    one.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")


class Echo(Heads):
    """One that refuses every request and repeats what it was sent, in many spellings."""

    def _answer(self, one: socket.socket) -> None:
        data = b""
        with one:
            while more := one.recv(65536):
                data += more
                *heads, data = data.split(b"\r\n\r\n")
                for head in heads:
                    path = head.split(b" ")[1].decode()
                    said = spellings(head, path)
                    kind = int(path.partition("&n=")[2] or 0) % len(said)
                    body = said[kind].encode()
                    one.sendall(
                        f"HTTP/1.1 {400 + kind} {said[0]}\r\nContent-Length: {len(body)}\r\n\r\n".encode()
                        + body
                    )


def spellings(head: bytes, path: str) -> list[str]:
    """What a server makes of a request's head."""
    fields = dict(line.split(": ", 1) for line in head.decode().split("\r\n")[1:] if ": " in line)
    token = fields["Authorization"].partition(" ")[2]
    cookie = fields["Cookie"].partition("session=")[2]
    made = [f"no token {token}", f"no session {cookie}", f"session={cookie} is over", f"nothing at {path}"]
    for one in (token, cookie):
        made += [one.upper(), encoded(one), encoded(encoded(one)).lower(), html.escape(one)]
        made += [json.dumps({"got": one}), base64.b64encode(f"key={one};".encode()).decode()]
        made += [base64.urlsafe_b64encode(one.encode()).decode(), "x" * (512 - len(one) // 2) + one]
    return made


@pytest.fixture
def echo() -> Iterator[Echo]:
    server = Echo()
    yield server
    server.socket.close()


@pytest.fixture
def heads() -> Iterator[Heads]:
    server = Heads()
    yield server
    server.socket.close()


def kept(folder: Path) -> Iterator[tuple[str, str]]:
    """What is in the files of a folder."""
    for path in folder.rglob("*"):
        if path.is_file():
            yield str(path), path.read_bytes().decode(errors="replace")


def nowhere(lab: Lab, done: Done, *secrets: str) -> None:
    """None of these was printed, and none is in a file that the run left."""
    texts = [
        ("output", done.out),
        ("errors", done.err),
        *kept(lab.runs),
        *kept(lab.state),
    ]
    for name, text in texts:
        for one in secrets:
            assert one not in text, (name, one)


def broker(lab: Lab, user: str, password: str) -> int:
    """A broker that lets in nobody else."""
    port = free_port()
    users = lab.base / "users"
    users.touch(mode=0o600)
    subprocess.run(
        ["mosquitto_passwd", "-b", str(users), user, password],
        check=True,
        capture_output=True,
    )
    conf = lab.write(
        "broker",
        f"listener {port} 127.0.0.1\nallow_anonymous false\npassword_file {users}\nuser root\n",
    )
    lab.spawn("mosquitto", "-c", str(conf))

    def answers() -> bool:
        with socket.socket() as one:
            return one.connect_ex(("127.0.0.1", port)) == 0

    until(answers, 60, "mosquitto does not listen")
    return port


def encoded(text: str) -> str:
    """A text as a URL has it."""
    return quote(text, safe="")


BASIC = base64.b64encode(f"alice:{PASSWORD}".encode()).decode()
TELLING = (PASSWORD, encoded(PASSWORD), "w@rd", BASIC)


def test_the_credentials_of_a_url_reach_a_broker_and_nothing_else(lab: Lab) -> None:
    port = broker(lab, "alice", PASSWORD)
    url = f"MQTT://alice:{encoded(PASSWORD)}@127.0.0.1:{port}"
    done = lab.run("run", url, *SHORT, "--json")
    assert done.trial.groups[0].measured.messages_delivered > 0, done.text
    assert not done.trial.groups[0].measured.failures
    nowhere(lab, done, *TELLING)
    assert done.folder is not None
    again = lab.run("run", str(done.folder / "profile.json"), *SHORT)
    assert again.code == 104
    assert "were not kept with the run" in again.err
    runs = lab.good("runs")
    nowhere(lab, runs, *TELLING)
    report = lab.good("report", str(done.folder))
    nowhere(lab, report, *TELLING)


def test_a_secret_from_a_file_is_sent_as_it_is(lab: Lab) -> None:
    port = broker(lab, "alice", PASSWORD)
    lab.write("password", PASSWORD + "\n")
    model = {"mqtt": {"username": "alice", "password": {"file": str(lab.base / "password")}}}
    group = {"name": "m", "target": f"mqtt://127.0.0.1:{port}", "model": model}
    document = {
        "name": "p",
        "phases": {"warmup": "0s", "measure": "1s", "drain": "1s"},
        "groups": [group],
    }
    done = lab.run("run", lab.write("p.json", document), "--json")
    assert done.trial.groups[0].measured.messages_delivered > 0, done.text
    nowhere(lab, done, *TELLING)
    # written into the profile, braces are places of a template: what is wrong is told without it
    group["model"]["mqtt"]["password"] = PASSWORD.replace("seq", "hidden-part")  # type: ignore[index]
    said = lab.run("validate", lab.write("q.json", document))
    assert said.code == 104
    assert "hidden-part" not in said.text
    assert "{env: NAME}" in said.err


def test_the_credentials_of_a_url_are_basic_ones_over_http(lab: Lab, heads: Heads) -> None:
    url = f"http://alice:{encoded(PASSWORD)}@127.0.0.1:{heads.port}/x"
    done = lab.run("run", url, *SHORT, "--devices", "1", "--json")
    assert done.trial.groups[0].measured.messages_delivered > 0, done.text
    assert {head.partition(b"Authorization: Basic ")[2].split(b"\r\n")[0] for head in heads.seen} == {
        BASIC.encode()
    }
    nowhere(lab, done, *TELLING)


@pytest.mark.parametrize("how", ["literal", "env", "file"])
def test_what_a_server_repeats_of_a_secret_is_told_nobody(lab: Lab, echo: Echo, how: str) -> None:
    lab.environment["API"] = f"Bearer {TOKEN}"
    named = {
        "literal": f"Bearer {TOKEN}",
        "env": {"env": "API"},
        "file": {"file": str(lab.write("api", f"Bearer {TOKEN}\n"))},
    }
    cookie = "c00kie/%2Fv+1=&z"
    rows = "".join(f"{pin}\n" for pin in PINS)
    http = {
        "path": "/x?token=a{users.pin}b&n={seq}",
        "headers": {"Authorization": named[how], "Cookie": f"a=b; session={cookie}"},
    }
    group = {"name": "g", "target": f"http://127.0.0.1:{echo.port}", "devices": 2, "model": {"http": http}}
    document = {
        "name": "p",
        "data": {"users": str(lab.write("users.csv", f"pin\n{rows}"))},
        "phases": {"warmup": "0s", "measure": "1s", "drain": "1s"},
        "groups": [group],
    }
    done = lab.run("run", lab.write("p.json", document), "--json")
    assert done.folder is not None, done.text
    (rejected,) = done.trial.groups[0].errors
    causes = rejected.causes
    assert len(causes) >= 10, done.text
    assert all("***" in (one.example or "") for one in causes), causes
    lab.good("report", str(done.folder))
    (lab.base / "p.json").unlink()
    parts = [one for secret in (TOKEN, cookie, *PINS) for one in spelled(secret)]
    nowhere(lab, done, *parts)


def spelled(secret: str) -> list[str]:
    """What of a secret must stand nowhere."""
    encodings = [base64.b64encode(secret.encode()).decode()[:-4], encoded(secret)]
    return [secret, secret.upper(), html.escape(secret), encoded(secret).lower(), secret[:6], *encodings]


@pytest.mark.parametrize(
    "url",
    [
        "ping://alice:correct-horse@127.0.0.1",
        "udp://alice:correct-horse@127.0.0.1:9",
        "coap://alice:correct-horse@127.0.0.1",
        "mqtt://alice:correct-horse@",
        "mqtt://alice:correct-horse@::1",
        "mqtt://alice:correct/horse@127.0.0.1",
        "mqtt://alice:correct@horse@127.0.0.1",
        "mqtt://alice:correct%horse@127.0.0.1",
        "mqtt:/alice:correct-horse@127.0.0.1",
        "alice:correct-horse@127.0.0.1",
        "tcp://alice:correct-horse@127.0.0.1:9",
        "nosuch://alice:correct-horse@127.0.0.1",
    ],
)
def test_credentials_that_cannot_be_used_are_refused_without_an_echo(lab: Lab, url: str) -> None:
    done = lab.run("run", url, *SHORT)
    assert done.code == 104, done.text
    nowhere(lab, done, "correct", "horse")
    validated = lab.run(
        "validate",
        lab.write(
            "p.json",
            {
                "name": "p",
                "groups": [{"name": "g", "target": url, "model": {"script": {}}}],
            },
        ),
    )
    assert validated.code == 104
    nowhere(lab, validated, "correct", "horse")


def test_two_credentials_are_one_too_many(lab: Lab) -> None:
    for model in (
        {"mqtt": {"username": "bob"}},
        {"http": {"headers": {"authorization": "Basic eDp5"}}},
    ):
        (scheme,) = model
        group = {
            "name": "g",
            "target": f"{scheme}://alice:correct-horse@127.0.0.1",
            "model": model,
        }
        done = lab.run("validate", lab.write("p.json", {"name": "p", "groups": [group]}))
        assert done.code == 104
        assert "ND-104-07" in done.err
        assert "credentials" in done.err
        nowhere(lab, done, "correct-horse")


def test_requests_are_those_that_http_allows(lab: Lab, heads: Heads) -> None:
    for behind, line in [
        ("", b"GET / HTTP/1.1"),
        ("?q=1", b"GET /?q=1 HTTP/1.1"),
        ("/a#b", b"GET /a HTTP/1.1"),
        ("#b", b"GET / HTTP/1.1"),
        ("/ü", b"GET /%C3%BC HTTP/1.1"),
    ]:
        heads.seen.clear()
        done = lab.run(
            "run",
            f"HTTP://LOCALHOST:{heads.port}{behind}",
            *SHORT,
            "--devices",
            "1",
            "--count",
            "1",
        )
        first = {head.split(b"\r\n")[0] for head in heads.seen}
        assert first == {line}, done.text
        assert all(f"\r\nHost: localhost:{heads.port}\r\n".encode() in head for head in heads.seen)
