"""SIP over WebSocket: servers that are right, and servers that refuse, close or break the protocol."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus
from pathlib import Path
from typing import Any

import pytest
from websockets.exceptions import ConnectionClosed
from websockets.http11 import Request, Response
from websockets.sync.server import ServerConnection, serve
from websockets.typing import Subprotocol

from netdyno.cli import app

from .served import server

pytestmark = pytest.mark.slow

MASKED = b"\x81\x85\x01\x02\x03\x04SIP/2"
"""A masked text frame, which only clients send (RFC 6455 section 5.1)."""


def reply(request: str) -> str:
    """200 to a request."""
    lines = request.split("\r\n")
    kept = [line for line in lines if line.startswith(("Via:", "From:", "To:", "Call-ID:", "CSeq:"))]
    return "\r\n".join(["SIP/2.0 200 OK", *kept, "Content-Length: 0", "", ""])


@contextmanager
def peer(what: str) -> Iterator[tuple[str, list[str]]]:
    """A WebSocket server on loopback that does one thing; its URI and what came."""
    came: list[str] = []

    def refuse(connection: ServerConnection, request: Request) -> Response | None:
        came.append(request.path)
        if what in ("403", "404"):
            return connection.respond(HTTPStatus(int(what)), "not for you\n")
        return None

    def choose(_: ServerConnection, offered: list[Subprotocol]) -> Subprotocol | None:
        return {"mqtt": Subprotocol("mqtt"), "none": None}.get(what, offered[0])

    def handle(connection: ServerConnection) -> None:
        try:
            for message in connection:
                came.append(str(message))
                match what:
                    case "close":
                        connection.close(1008, "no calls today")
                    case "text":
                        connection.send("hello, this is no SIP")
                    case "large":
                        connection.send("x" * 9_000_000)
                    case "masked":
                        connection.socket.sendall(MASKED)
                    case "fragments":
                        answer = reply(str(message))
                        connection.ping(b"between")
                        connection.send([answer[:10], answer[10:90], answer[90:]])
                    case _:
                        connection.send(reply(str(message)))
        except ConnectionClosed:
            pass

    with serve(
        handle, "127.0.0.1", 0, select_subprotocol=choose, process_request=refuse, max_size=None
    ) as served:
        threading.Thread(target=served.serve_forever, daemon=True).start()
        yield f"ws://127.0.0.1:{served.socket.getsockname()[1]}/sip", came
        served.shutdown()


@pytest.mark.parametrize(
    ("what", "code", "said"),
    [
        ("fragments", 0, ""),
        ("403", 99, "the server refused the WebSocket handshake: 403 Forbidden"),
        ("404", 99, "404 Not Found"),
        ("mqtt", 99, 'the server chose the subprotocol "mqtt", and "sip" was offered'),
        ("none", 99, "chose no subprotocol"),
        ("close", 99, "closed the WebSocket connection with code 1008: no calls today"),
        ("text", 99, "a malformed message"),
        ("large", 99, "a WebSocket message is too large"),
        ("masked", 99, "masked frame from server"),
    ],
)
def test_each_server_has_its_verdict(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], what: str, code: int, said: str
) -> None:
    with peer(what) as (uri, came):
        words = ["--rate", "20/s", "--duration", "400ms", "--warmup", "0s", "--users", "5"]
        done = app.call(["sip", "load", uri, *words, "--runs", str(tmp_path)])
    text = capsys.readouterr()
    assert done in (code, 90), text
    assert said in text.out + text.err, text
    assert "/sip" in came
    if what == "fragments":
        request = next(one for one in came if one.startswith("OPTIONS"))
        assert ".invalid;branch=" in request and "Via: SIP/2.0/WS " in request
        assert ".invalid;transport=ws>" in request


@pytest.mark.parametrize(
    ("what", "code", "said"),
    [
        ("right", 0, "200"),
        ("403", 91, "403 Forbidden not for you"),
        ("none", 91, "chose no subprotocol"),
        ("close", 99, "code 1008: no calls today"),
        ("text", 99, "what is no SIP: b'hello"),
    ],
)
def test_a_message_by_hand(capsys: pytest.CaptureFixture[str], what: str, code: int, said: str) -> None:
    with peer(what) as (uri, came):
        assert app.call(["sip", "send", uri, "--t1", "50ms"]) == code
    text = capsys.readouterr()
    assert said in text.out + text.err
    assert came[0] == "/sip"


def test_our_own_server_counts_calls_over_websocket(tmp_path: Path) -> None:
    more: dict[str, Any] = {"domain": "example.net", "users": [], "call_auth": False}
    with server("proxy", ws="127.0.0.1:0", **more) as served:
        uri = f"ws://{served.addresses['ws']}/"
        words = ["--domain", "example.net", "--rate", "20/s", "--duration", "500ms", "--warmup", "0s"]
        assert app.call(["sip", "call", uri, *words, "--quiet", "--runs", str(tmp_path)]) in (0, 90)
    count = served.counters
    assert count["calls_answered"] == count["calls_ended"] == count["forwarded"]["ACK"] > 3
    assert count["connections"].keys() == {"WS"}
    assert (count["websocket_failures"], count["send_errors"], count["timeouts"]) == ({}, 0, 0)
    assert json.dumps(count["answers"]).count("200") == 1
