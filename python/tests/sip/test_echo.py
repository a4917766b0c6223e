"""`netdyno sip serve uas --echo`: audio of calls comes back, and nobody else's."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import Any

import pytest

from netdyno.cli import app
from netdyno.sip.manual.message import SipMessage
from netdyno.sip.server import SipServer

from .served import server

pytestmark = pytest.mark.slow


def invite(served: SipServer, media: str, number: int) -> list[SipMessage]:
    """An INVITE with an offer, and what came back until its final response."""
    host, port = served.address.rsplit(":", 1)
    body = f"v=0\r\no=- 1 1 IN IP4 127.0.0.1\r\ns=-\r\nc=IN IP4 127.0.0.1\r\nt=0 0\r\n{media}"
    found: list[SipMessage] = []
    with socket.socket(type=socket.SOCK_DGRAM) as client:
        client.settimeout(10)
        client.connect((host, int(port)))
        client.sendall(
            f"INVITE sip:x@{served.address} SIP/2.0\r\nVia: SIP/2.0/UDP h;rport;branch=z9hG4bK{number}\r\n"
            f"From: <sip:a@b>;tag=1\r\nTo: <sip:x@{served.address}>\r\nCall-ID: {number}\r\nCSeq: 1 INVITE\r\n"
            f"Contact: <sip:a@127.0.0.1>\r\nContent-Type: application/sdp\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode()
        )
        while not found or found[-1].status < 200:
            found.append(SipMessage.read(client.recv(65_535)))
    return found


def came_back(rtp: str, packet: bytes) -> bytes | None:
    """What comes back to a packet."""
    host, port = rtp.rsplit(":", 1)
    with socket.socket(type=socket.SOCK_DGRAM) as one:
        one.connect((host, int(port)))
        one.settimeout(10 if packet else 0.5)
        one.send(packet or bytes(12))
        try:
            return one.recv(65_535)
        except TimeoutError:
            return None


def test_callers_hear_themselves_and_counts_agree(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with server("uas", call_auth=False, echo=0) as served:
        words = ["--rate", "5/s", "--duration", "2s", "--warmup", "0s", "--hold", "1200ms", "--media"]
        words += ["--quiet", "--json", "--runs", str(tmp_path)]
        app.call(["sip", "call", f"sip:echo@{served.address}", *words])
        counted: dict[str, Any] = dict(served.stop())
    group = json.loads(capsys.readouterr().out)["legs"][0]["repetitions"][0]["groups"][0]
    total = group["total"]
    assert total["session_requests"] == total["sessions_completed"] == counted["audio_calls"] > 3
    assert total["audio_judged_calls"] > 0 and total["one_way_audio_calls"] == total["audio_refused"] == 0
    # on loopback nothing is lost; what comes when a call is over is nobody's
    assert counted["rtp_received"] + counted["rtp_unrelated"] == total["rtp_sent"], (counted, total)
    assert counted["rtp_returned"] == counted["rtp_received"] > 100
    assert total["rtp_lost"] == 0 and group["delays"]["rtp_round_trip"]["count"] > 0
    assert counted["rtcp_received"] > 0


def test_an_offer_that_cannot_be_taken_is_refused_and_strangers_get_nothing() -> None:
    packet = b"\x80\x09" + bytes(30)
    with server("uas", call_auth=False, echo=0) as served:
        rtp = served.addresses["rtp"]
        assert came_back(rtp, b"") is None
        refused = invite(served, "m=audio 4000 RTP/SAVP 0\r\n", 1)
        assert [one.status for one in refused] == [488]
        answers = invite(served, "m=audio 4000 RTP/AVP 9 0\r\na=rtpmap:9 G722/8000\r\n", 2)
        assert [one.status for one in answers] == [180, 200]
        port = rtp.rsplit(":", 1)[1]
        assert f"m=audio {port} RTP/AVP 9\r\n" in answers[-1].body.decode()
        assert came_back(rtp, packet) == packet
        counted = served.stop()
    expected = {
        "audio_calls": 1,
        "audio_refused": 1,
        "rtp_received": 1,
        "rtp_returned": 1,
        "rtp_unrelated": 1,
    }
    assert {name: counted[name] for name in expected} == expected


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["proxy", "--echo"], "a proxy sends calls on"),
        (["uas", "--echo-port", "4000"], "there is no echo"),
        (["uas", "--echo", "--echo-port", "0"], "--echo-port"),
    ],
)
def test_options_that_do_not_go_together(
    words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert app.call(["sip", "serve", *words, "--listen", "127.0.0.1:0"]) == 104
    assert said in capsys.readouterr().err
