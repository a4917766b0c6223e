"""Who may speak to the core: the socket's rights, the token on TCP, one writer and many viewers."""

from __future__ import annotations

import json
import socket
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from lab import NETDYNOD, Lab, until

TOKEN = "0123456789abcdef0123456789abcdef"
NOT_WRITER, NOT_ALLOWED = -32001, -32006
LOAD: dict[str, Any] = {
    "name": "rpc",
    "phases": {"warmup": "0s", "measure": "30s", "drain": "1s", "sample": "100ms"},
    "groups": [{"name": "p", "target": "ping://127.0.0.1", "model": {"ping": {"interval": "10ms"}}}],
}


class Line:
    """A connection: one request a line, one answer a line."""

    def __init__(self, address: str | tuple[str, int]) -> None:
        family = socket.AF_UNIX if isinstance(address, str) else socket.AF_INET
        self.socket = socket.socket(family, socket.SOCK_STREAM)
        self.socket.settimeout(10)
        self.socket.connect(address)
        self.lines = self.socket.makefile("r")
        self.number = 0

    def ask(self, method: str, **params: Any) -> dict[str, Any]:
        """The whole answer; notifications in between are passed over."""
        self.number += 1
        request = {"jsonrpc": "2.0", "id": self.number, "method": method, "params": params}
        self.socket.sendall(json.dumps(request).encode() + b"\n")
        while True:
            answer: dict[str, Any] = json.loads(self.lines.readline())
            if answer.get("id") == self.number:
                return answer

    def good(self, method: str, **params: Any) -> Any:
        answer = self.ask(method, **params)
        assert "error" not in answer, answer
        return answer["result"]

    def refused(self, method: str, **params: Any) -> int:
        answer = self.ask(method, **params)
        assert "error" in answer, answer
        return int(answer["error"]["code"])


@pytest.fixture
def core(lab: Lab) -> Iterator[tuple[str, tuple[str, int]]]:
    """A daemon on a Unix socket and on TCP."""
    path, token = str(lab.base / "core.sock"), lab.write("token", TOKEN + "\n")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    child = lab.spawn(NETDYNOD, "--socket", path, "--tcp", f"127.0.0.1:{port}", "--token-file", token)
    assert child.stdout
    assert json.loads(child.stdout.readline())["ready"] == path
    yield path, ("127.0.0.1", port)
    child.terminate()
    child.wait(10)
    assert not Path(path).exists()


def test_only_its_owner_can_open_the_socket(core: tuple[str, tuple[str, int]]) -> None:
    assert stat.S_IMODE(Path(core[0]).stat().st_mode) == 0o600
    assert Line(core[0]).good("core.describe")["name"] == "netdynod"


def test_tcp_takes_the_token_first(core: tuple[str, tuple[str, int]]) -> None:
    assert Line(core[1]).refused("core.describe") == NOT_ALLOWED
    assert Line(core[1]).refused("control.hello", token=TOKEN[:-1] + "0") == NOT_ALLOWED
    assert Line(core[1]).refused("control.hello") != 0
    friend = Line(core[1])
    friend.good("control.hello", token=TOKEN)
    assert friend.good("core.describe")["name"] == "netdynod"


def test_a_short_token_is_not_taken(lab: Lab) -> None:
    token = lab.write("token", "short")
    child = lab.spawn(
        NETDYNOD, "--socket", str(lab.base / "s"), "--tcp", "127.0.0.1:0", "--token-file", token
    )
    _, err = child.communicate(timeout=10)
    assert child.returncode == 92
    assert "16 characters" in err


def test_one_writes_and_many_watch(core: tuple[str, tuple[str, int]]) -> None:
    writer, *viewers = (Line(core[0]) for _ in range(4))
    writer.good("control.acquire")
    for viewer in viewers:
        assert viewer.refused("control.acquire") == NOT_WRITER
        assert viewer.refused("run.load", profile=LOAD) == NOT_WRITER
        viewer.good("stats.subscribe")
    writer.good("run.load", profile=LOAD)
    writer.good("run.start")
    for viewer in viewers:
        while json.loads(viewer.lines.readline()).get("method") != "stats.sample":
            pass
        assert viewer.refused("run.stop") == NOT_WRITER
    writer.good("run.stop")
    until(lambda: viewers[0].good("run.status")["state"] == "done", 10, "the run does not end")
    assert viewers[0].good("run.result")["stopped"] == "stopped"
    writer.good("control.release")
    viewers[0].good("control.acquire")


def test_nonsense_is_answered_and_the_next_line_too(core: tuple[str, tuple[str, int]]) -> None:
    line = Line(core[0])
    line.socket.sendall(b"no json at all\n")
    assert json.loads(line.lines.readline())["error"]["code"] == -32700
    assert line.refused("no.such") == -32601
    assert line.refused("run.load", profile=3) != 0
    assert line.good("run.status")["state"] == "idle"
