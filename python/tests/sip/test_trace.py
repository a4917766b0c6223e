"""`--trace`: messages of the first calls, and of the first that failed, and no others."""

from __future__ import annotations

import contextlib
import json
import re
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from netdyno.cli import app
from netdyno.sip.ladder import trace
from netdyno.sip.ladder.arrow import hidden
from netdyno.sip.ladder.calls import Call, call_id
from netdyno.sip.ladder.capture import Message, _Assembly, read

from .served import DOMAIN, USERS, server

LOAD = ("--rate", "30/s", "--duration", "1s", "--warmup", "0s", "--users", "40", "--quiet")


def ladder(folder: Path, capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    capsys.readouterr()
    assert app.call(["sip", "ladder", str(folder), "--limit", "100", "--json"]) == 0
    found: list[dict[str, Any]] = json.loads(capsys.readouterr().out)["calls"]
    return found


@pytest.mark.slow
@pytest.mark.drawn
@pytest.mark.parametrize("transport", ["udp", "tcp"])
def test_first_and_failed_calls_are_kept_without_secrets(
    transport: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("WORD", USERS["alice"])
    with server("uas", password=USERS["alice"], error_share=0.25, error_status=500, seed=3) as served:
        uri = f"sip:{served.address};transport={transport}"
        wanted = tmp_path / "wanted.html"
        outputs = ["--runs", str(tmp_path), "--html", str(wanted)]
        words = ["--domain", DOMAIN, "--password", "env:WORD", "--trace", "3", *outputs, *LOAD]
        app.call(["sip", "register", uri, *words])
        said = capsys.readouterr().err
        counted = served.stop()
    (folder,) = tmp_path.glob("*sip-register*")
    rejected = counted["rejected_on_purpose"]
    assert isinstance(rejected, int) and rejected > 3
    assert "--trace: the first 3 of " in said and "and 3 that failed" in said
    calls = ladder(folder, capsys)
    failed = [one for one in calls if one["failures"]]
    assert len(failed) >= 3 and len(calls) <= 6, calls
    # each is whole: a request and its final response, or the challenge and both
    for one in calls:
        assert len(one["messages"]) >= 2 and one["messages"][0]["summary"].startswith("REGISTER"), one
        assert not any("no final response" in why for why in one["failures"]), one
    report = wanted.read_bytes()
    assert report == (folder / "report.html").read_bytes()
    assert report.count(b'class="ladder"') == len(calls)
    # failed ones first, and they stay when the report is made again
    places = {one["call_id"]: report.index(one["call_id"].encode()) for one in calls}
    others = [places[one["call_id"]] for one in calls if not one["failures"]]
    assert max(places[one["call_id"]] for one in failed) < min(others, default=len(report))
    assert app.call(["report", str(folder)]) == 0
    assert b'class="ladder"' in (folder / "report.html").read_bytes()
    for content in ((folder / "capture.pcapng").read_bytes(), (folder / trace.LADDERS).read_bytes(), report):
        assert b"(hidden)" in content and USERS["alice"].encode() not in content
        assert not re.search(rb'response=(?:"|&#34;)[0-9a-f]{32}', content)
    if tshark := shutil.which("tshark"):
        command = [
            tshark,
            "-r",
            str(folder / "capture.pcapng"),
            "-d",
            f"{transport}.port=={served.address.rpartition(':')[2]},sip",
        ]
        done = subprocess.run([*command, "-Y", "sip"], capture_output=True, text=True, check=True)
        assert len(done.stdout.splitlines()) == sum(len(one["messages"]) for one in calls)


@contextlib.contextmanager
def repeating(words: str) -> Iterator[int]:
    """A registrar at a port that challenges, and then rejects with these words."""
    rejected = f"SIP/2.0 486 Bad {words}", f"X-Told: {words}"
    challenged = "SIP/2.0 401 Unauthorized", 'WWW-Authenticate: Digest realm="r", nonce="n"'
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as wire:
        wire.bind(("127.0.0.1", 0))

        def serve() -> None:
            while True:
                data, peer = wire.recvfrom(65535)
                if data == b"end":
                    return
                lines = data.decode().split("\r\n")
                kept = [
                    one for one in lines if one.partition(":")[0] in ("Via", "From", "To", "Call-ID", "CSeq")
                ]
                status, more = rejected if "Authorization:" in data.decode() else challenged
                wire.sendto("\r\n".join([status, *kept, more, "Content-Length: 0", "", ""]).encode(), peer)

        with ThreadPoolExecutor() as pool:
            served = pool.submit(serve)
            try:
                yield wire.getsockname()[1]
            finally:
                wire.sendto(b"end", wire.getsockname())
            served.result()


@pytest.mark.slow
def test_what_the_run_names_as_secret_is_in_nothing_that_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    secrets = {"WORD": "hunter2-word", "HEADER": "sesame-header", "BODY": "sesame-body"}
    for name, value in secrets.items():
        monkeypatch.setenv(name, value)
    steps = tmp_path / "steps.yaml"
    steps.write_text(
        "- send: {method: REGISTER, headers: {X-Mine: {env: HEADER}}, body: {env: BODY}}\n- expect: {status: 200}\n"
    )
    wanted, runs = tmp_path / "wanted.html", tmp_path / "runs"
    with repeating(f"{secrets['WORD']} for {secrets['HEADER']}") as port:
        words = ["--scenario", str(steps), "--password", "env:WORD", "--trace", "2", "--html", str(wanted)]
        app.call(["sip", "load", f"sip:127.0.0.1:{port}", *words, "--runs", str(runs), *LOAD])
    said = capsys.readouterr().err
    assert "the capture holds secrets" not in said
    will = re.search(r"the capture will hold secrets as they are: (.*)", said)
    assert will is None or "password" not in will[1]
    (folder,) = runs.glob("*sip-*")
    assert ladder(folder, capsys)
    result = json.loads((folder / "result.json").read_text())
    assert result["legs"][0]["repetitions"][0]["capture"]["secrets"] == []
    assert app.call(["sip", "ladder", str(folder), "--messages"]) == 0
    shown = capsys.readouterr().out
    assert "X-Mine: ***" in shown and "486 Bad ***" in shown
    kept = [wanted, *(one for one in folder.rglob("*") if one.is_file())]
    assert wanted.exists() and {"ladder.json", "capture.pcapng", "report.html"} <= {one.name for one in kept}
    for file in kept:
        for value in secrets.values():
            assert value.encode() not in file.read_bytes() and value not in shown, file


@pytest.mark.slow
def test_a_load_without_failure_keeps_the_first(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with server("uas", call_auth=False) as served:
        words = ["--media", "--hold", "300ms", "--trace", "2", "--runs", str(tmp_path), *LOAD]
        app.call(["sip", "call", f"sip:x@{served.address}", *words])
    (folder,) = tmp_path.glob("*sip-call*")
    calls = ladder(folder, capsys)
    assert len(calls) == 2 and not any(one["failures"] for one in calls)
    assert [one["messages"][0]["summary"][:6] for one in calls] == ["INVITE", "INVITE"]
    assert sum(1 for _ in read(folder / "capture.pcapng")) == sum(len(one["messages"]) for one in calls)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["sips:127.0.0.1", "--trace", "3"], "cannot be read"),
        (["sip:127.0.0.1;transport=ws", "--trace", "3"], "cannot be read"),
        (["sip:127.0.0.1", "--trace", "3", "--capture"], "--capture keeps all"),
        (["sip:127.0.0.1", "--trace", "0"], "--trace"),
        (["sips:127.0.0.1", "--ladder"], "at  --ladder"),
        (["sips:127.0.0.1", "--ladder", "--capture"], "at  --ladder"),
    ],
)
def test_what_cannot_be_traced_is_said(
    words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert app.call(["sip", "register", *words]) == 104
    assert said in capsys.readouterr().err


REGISTER = b"REGISTER sip:a SIP/2.0\r\nCall-ID: %s@netdyno\r\nCSeq: 1 REGISTER\r\n\r\n"
INVITE = REGISTER.replace(b"REGISTER", b"INVITE")


def captured(folder: Path, messages: list[bytes]) -> Path:
    """A capture of these messages, a second apart."""
    path = folder / "capture.pcapng"
    ends = "192.0.2.1:5060", "192.0.2.2:5060"
    with path.open("wb") as out:
        trace._write(out, [Message(float(at), *ends, "udp", one) for at, one in enumerate(messages)])
    return path


def test_calls_are_kept_beside_the_registrations_before_them(tmp_path: Path) -> None:
    registrations = [REGISTER % f"r{at}".encode() for at in range(9)]
    captured(tmp_path, [*registrations, INVITE % b"c1", INVITE % b"c2", INVITE % b"c3"])
    # a cut capture: nobody failed
    kept = trace.reduce(tmp_path, 2, cut=True)
    assert kept and (kept.first, kept.calls, kept.failed) == (4, 12, 0)
    names = [call_id(one.data).partition("@")[0] for one in read(tmp_path / "capture.pcapng")]
    assert names == ["r0", "r1", "c1", "c2"]


def test_calls_of_other_programs_are_not_ours(tmp_path: Path) -> None:
    def message(source: str, to: str, name: bytes) -> Message:
        return Message(1.0, source, to, "udp", (INVITE % name).replace(b"x@netdyno", b"x"))

    own, dut, other = "192.0.2.1:5070", "192.0.2.2:5060", "192.0.2.3:5060"
    sent = [(own, dut, b"ours"), (other, dut, b"their-x"), (dut, own, b"b2bua-x"), (dut, other, b"leg-x")]
    for listens, expected in (
        (False, ["ours@netdyno", "b2bua-x"]),
        (True, ["ours@netdyno", "their-x", "b2bua-x", "leg-x"]),
    ):
        with (tmp_path / "capture.pcapng").open("wb") as out:
            trace._write(out, [message(*one) for one in sent])
        kept = trace.reduce(tmp_path, 9, listens=listens)
        assert kept and kept.calls == kept.failed == len(expected)
        assert [call_id(one.data) for one in read(tmp_path / "capture.pcapng")] == expected


OURS, THEIRS = "0123456789abcdef", "fedcba9876543210"


def test_calls_of_another_netdyno_are_not_ours(tmp_path: Path) -> None:
    own, dut, other = "192.0.2.1:5070", "192.0.2.2:5060", "192.0.2.3:5060"
    sent = [(own, dut, OURS, b"1"), (other, dut, THEIRS, b"2"), (dut, own, THEIRS, b"3")]
    for tokens, expected in (([OURS], ["1", "3"]), ([], ["1", "2", "3"])):
        with (tmp_path / "capture.pcapng").open("wb") as out:
            trace._write(
                out,
                [
                    Message(1.0, source, to, "udp", INVITE % (name + b"-" + token.encode()))
                    for source, to, token, name in sent
                ],
            )
        kept = trace.reduce(tmp_path, 9, tokens=tokens)
        assert kept and kept.calls == kept.failed == len(expected)
        names = [call_id(one.data).partition("-")[0] for one in read(tmp_path / "capture.pcapng")]
        # what the server sends on to our socket is ours, whoever it is from
        assert names == expected


@pytest.mark.slow
def test_two_loads_of_one_server_have_ladders_of_their_own(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("--duration", "2s", "--warmup", "0s", "--users", "10", "--rate", "10/s", "--quiet")
    with server("uas", call_auth=False) as served, ThreadPoolExecutor() as pool:
        uri = f"sip:x@{served.address}"
        command = [sys.executable, "-m", "netdyno", "sip", "call", uri, *words, "--duration", "6s"]
        other = pool.submit(
            subprocess.run, [*command, "--runs", str(tmp_path / "other")], capture_output=True, check=False
        )
        app.call(["sip", "call", uri, *words, "--trace", "1000", "--runs", str(tmp_path / "traced")])
        app.call(["sip", "call", uri, *words, "--capture", "--runs", str(tmp_path / "captured")])
        other.result()
    for name in ("traced", "captured"):
        (folder,) = (tmp_path / name).glob("*sip-call*")
        (group,) = json.loads((folder / "result.json").read_text())["legs"][0]["repetitions"][0]["groups"]
        (token,) = group["tokens"]
        calls = ladder(folder, capsys)
        assert len(calls) == group["total"]["session_requests"] > 0
        assert all(token in one["call_id"] for one in calls), (token, calls)


def test_hostile_messages_neither_end_nor_stall_it(tmp_path: Path) -> None:
    long = b"SIP/2.0 200 OK\r\nCall-ID: a@netdyno\r\nCSeq: " + b"9" * 5000 + b" REGISTER\r\n\r\n"
    chain = b"SIP/2.0 200 OK\r\nCall-ID: a@netdyno\r\nX: " + b"sip:a:" * 8000 + b"\r\n\r\n"
    captured(tmp_path, [REGISTER % b"a", long, chain, *[REGISTER % b"a"] * 400])
    began = time.process_time()
    kept = trace.reduce(tmp_path, 5)
    assert kept and kept.calls == 1 and time.process_time() - began < 20
    assert sum(1 for _ in read(tmp_path / "capture.pcapng")) <= trace.MESSAGES


def test_what_cannot_be_reduced_is_deleted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = captured(tmp_path, [REGISTER % b"a"])

    def broken(*_: object) -> str:
        raise RuntimeError

    monkeypatch.setattr(trace, "_fitting", broken)
    with pytest.raises(RuntimeError):
        trace.reduce(tmp_path, 1)
    assert not path.exists()


def test_in_a_capture_that_was_cut_silence_is_no_failure(tmp_path: Path) -> None:
    rejected = b"SIP/2.0 500 Server Error\r\nCall-ID: b@netdyno\r\nCSeq: 1 REGISTER\r\n\r\n"
    messages = [REGISTER % b"a", REGISTER % b"b", rejected]
    captured(tmp_path, messages)
    kept = trace.reduce(tmp_path, 5)
    assert kept and kept.failed == 2
    captured(tmp_path, messages)
    kept = trace.reduce(tmp_path, 5, cut=True)
    assert kept and kept.failed == 1 and kept.cut


def test_secrets_of_all_kinds_are_hidden() -> None:
    message = (
        b"INVITE sip:a:word@b SIP/2.0\r\nX-Api-Key: word\r\nCookie: word\r\nAuthorization: Basic word\r\n\r\n"
        b"v=0\r\nk=clear:word\r\na=crypto:1 AES_CM_128_HMAC_SHA1_80 inline:word\r\n"
    )
    assert b"word" not in hidden(message), hidden(message)
    for password in (b"w:ord", b"w" * 1000):
        assert password not in hidden(b"INVITE sip:a:" + password + b"@b SIP/2.0\r\n\r\n")


def test_fragments_in_any_order_are_joined_once() -> None:
    assembly = _Assembly()
    parts = [(at, bytes([at % 251]) * 8) for at in range(0, 8 * 500, 8)]
    order = [parts[-1], *parts[:-1]]
    found = [assembly._joined("x", at, data, at != parts[-1][0]) for at, data in order]
    assert found[:-1] == [None] * 499 and found[-1] == b"".join(data for _, data in parts)
    assert not assembly.fragments and not assembly.sizes and not assembly.ends
    assert all(assembly._joined("y", 8 * at, bytes(8), True) is None for at in range(5000))
    assert len(assembly.fragments.get("y", {})) <= 1025


def test_a_status_that_is_none_is_passed_over() -> None:
    call = Call("a", 0.0)
    call.note(b"SIP/2.0 2x0 OK\r\nCSeq: 1 INVITE\r\n\r\n")
    assert not call.answers
