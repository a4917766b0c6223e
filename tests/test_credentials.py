"""Credentials in a URL, and secrets from files, reach the server as they are, and nothing that is kept or printed."""

from __future__ import annotations

import base64
import socket
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest
from lab import Done, Lab, until

PASSWORD = "pa{seq}/w@rd{{%"
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
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port = int(one.getsockname()[1])
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
