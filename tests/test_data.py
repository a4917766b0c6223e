"""Values from CSV files and from the command line, as a server that is not ours receives them."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import pytest
from lab import Lab

Got = tuple[str, str, dict[str, str], str]


class Recorder(ThreadingHTTPServer):
    """A web server that keeps what it is asked: method, path, header fields, body."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.got: list[Got] = []


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Recorder

    def answer(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0)).decode()
        fields = {name.lower(): value for name, value in self.headers.items()}
        self.server.got.append((self.command, self.path, fields, body))
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    do_GET = do_POST = do_PUT = answer  # noqa: N815

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def web() -> Iterator[Recorder]:
    with Recorder() as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


def test_each_device_sends_its_row(lab: Lab, web: Recorder) -> None:
    lab.write("users.csv", 'name,city\nann,Seoul\n"bob ""B""",Busan\n')
    lab.write("items.csv", "id\nx\ny\nz\n")
    http = {
        "method": "PUT",
        "path": "/{users.city}/{device}/{seq}",
        "headers": {"X-Item": "{items.id}"},
        "body": "{users.name} of {users.city} buys {items.id}",
        "requests": 3,
    }
    profile = {
        "name": "data",
        "data": {"users": "users.csv", "items": {"file": "items.csv", "rows": "message"}},
        "phases": {"warmup": "0s", "measure": "1s", "drain": "2s"},
        "groups": [
            {
                "name": "g",
                "target": f"http://127.0.0.1:{web.server_port}",
                "devices": 3,
                "load": {"open": {"rate": "3/s"}},
                "model": {"http": http},
            }
        ],
    }
    done = lab.run("run", str(lab.write("data.json", json.dumps(profile))), "-q")
    assert done.code in (0, 90), done.text
    rows = [("ann", "Seoul"), ('bob "B"', "Busan")]
    seen = defaultdict(list)
    for method, path, fields, body in web.got:
        city, device, seq = path.strip("/").split("/")
        name, home = rows[int(device) % 2]
        item = "xyz"[(int(device) + int(seq)) % 3]
        assert (method, city, fields["x-item"]) == ("PUT", home, item)
        assert body == f"{name} of {home} buys {item}"
        seen[device].append(int(seq))
    assert len(seen) > 0 and all(numbers[:3] == [0, 1, 2] for numbers in seen.values())


def test_a_quick_form_sends_what_curl_would(lab: Lab, web: Recorder) -> None:
    url = f"http://127.0.0.1:{web.server_port}/v1?a=b"
    options = ["-d", '{"t": {"v": 21}}', "-H", "Content-Type: application/json", "-H", "X-Id: {device}"]
    done = lab.run(
        "run",
        url,
        *options,
        "--user",
        "al:p{}:w",
        "--count",
        "2",
        "--devices",
        "1",
        "--duration",
        "500ms",
        "-q",
    )
    assert done.code in (0, 90), done.text
    method, path, fields, body = web.got[0]
    assert (method, path, body) == ("POST", "/v1?a=b", '{"t": {"v": 21}}')
    assert (fields["content-type"], fields["x-id"]) == ("application/json", "0")
    assert fields["authorization"] == "Basic YWw6cHt9Onc="  # al:p{}:w
    kept = done.text + (done.folder / "result.json").read_text() + (done.folder / "report.html").read_text()
    assert "p{}:w" not in kept and "YWw6cHt9Onc" not in kept


class Sessions(Handler):
    """A server with a login: each token is good for its own user alone."""

    def answer(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0)).decode()
        users = self.server.users
        status, answer = 401, ""
        if self.path == "/login":
            users.append(json.loads(body)["user"])
            status, answer = 200, json.dumps({"data": {"token": f"t{len(users) - 1}"}})
        elif (found := self.headers.get("Authorization", "").removeprefix("Bearer t")).isdigit():
            self.server.asked.append((users[int(found)], self.path))
            status, answer = 200, "ok"
        self.send_response(status)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer.encode())

    do_GET = do_POST = answer  # noqa: N815


@pytest.mark.parametrize("pointer", ["/data/token", "/data/absent"])
def test_a_login_gives_each_device_its_token(lab: Lab, pointer: str) -> None:
    lab.write("users.csv", "name\nann\nbob\n")
    http = {
        "before": [
            {
                "method": "POST",
                "path": "/login",
                "body": '{{"user": "{users.name}"}}',
                "capture": {"token": {"json": pointer}},
            }
        ],
        "path": "/of/{users.name}/{seq}",
        "headers": {"Authorization": "Bearer {response.token}"},
        "requests": 3,
    }
    with Recorder() as server:
        server.RequestHandlerClass = Sessions
        server.users, server.asked = [], []  # type: ignore[attr-defined]
        Thread(target=server.serve_forever, daemon=True).start()
        group = {
            "name": "g",
            "target": f"http://127.0.0.1:{server.server_port}",
            "devices": 2,
            "load": {"open": {"rate": "4/s"}},
            "model": {"http": http},
        }
        phases = {"warmup": "0s", "measure": "1s", "drain": "2s"}
        profile = {"name": "login", "data": "users.csv", "phases": phases, "groups": [group]}
        done = lab.run("run", str(lab.write("login.json", json.dumps(profile))), "-q")
        server.shutdown()
        # where nothing is delivered the server does not pass
        assert done.code in (0 if pointer == "/data/token" else 99, 90), done.text
        counts = done.trial.groups[0].measured
        logins, asked = len(server.users), server.asked  # type: ignore[attr-defined]
        if pointer == "/data/token":
            assert logins > 0 and sum(counts.failures.values()) == 0
            assert counts.messages_delivered == logins + len(asked) == counts.messages_sent
            assert all(path.startswith(f"/of/{user}/") for user, path in asked)
        else:
            # without its token a flow sends nothing else, and the server is not asked in vain
            assert logins > 0 and not asked
            assert counts.messages_sent == logins and counts.messages_delivered == 0
