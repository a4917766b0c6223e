"""The daemon over its socket: who may, who may not, and what is said to those who speak badly."""

from __future__ import annotations

import contextlib
import json
import signal
import socket
import stat
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from lab import NETDYNOD, PATIENT, Lab, group, profile, until
from ports import free_port
from rpc import Rpc

from netdyno.core.client import Client

LEASE = 3.0
"""Seconds of silence that cost a writer his lease."""


def start(lab: Lab, *arguments: str, name: str = "core.sock") -> subprocess.Popen[str]:
    child = lab.spawn(NETDYNOD, "--socket", str(lab.base / name), "--log-json", *arguments)
    assert child.stdout
    ready = json.loads(child.stdout.readline())
    assert ready == {"ready": str(lab.base / name), "pid": child.pid}
    return child


@pytest.fixture
def daemon(lab: Lab) -> subprocess.Popen[str]:
    return start(lab)


@pytest.fixture
def connect(lab: Lab, daemon: subprocess.Popen[str]) -> Iterator[Any]:
    made: list[Rpc] = []

    def one() -> Rpc:
        made.append(Rpc(str(lab.base / "core.sock")))
        return made[-1]

    yield one
    for rpc in made:
        rpc.close()


@pytest.fixture
def sink() -> Iterator[str]:
    """A port on loopback that swallows."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
        one.bind(("127.0.0.1", 0))
        yield f"udp://127.0.0.1:{one.getsockname()[1]}"


def load(target: str, measure: str = "60s", devices: int = 2) -> dict[str, Any]:
    model = {"stream": {"rate": "100/s", "echo": False, "size": "64B"}}
    document = profile(group("s", target, model, devices), measure=measure)
    document["phases"] |= {"warmup": "0s", "drain": "500ms", "sample": "200ms"}
    return document


def test_its_socket_is_the_owners(lab: Lab, daemon: subprocess.Popen[str]) -> None:
    path = lab.base / "core.sock"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    daemon.send_signal(signal.SIGTERM)
    assert daemon.wait(60) == 0
    assert not path.exists()


def test_bad_lines_are_answered_and_the_connection_lives_on(connect: Any) -> None:
    rpc = connect()
    for raw, code in [
        (b"{", -32700),
        (b"\xff\xfe", -32700),
        (b"[]", -32600),
        (b'"text"', -32600),
        (b'{"jsonrpc": "2.0", "id": 7}', -32600),
        (b'{"jsonrpc": "1.0", "id": 7, "method": "run.status"}', -32600),
        (b'{"jsonrpc": "2.0", "id": 7, "method": "run.fly"}', -32601),
        (
            b'{"jsonrpc": "2.0", "id": 7, "method": "run.flows", "params": {"limit": "many"}}',
            -32602,
        ),
        (
            b'{"jsonrpc": "2.0", "id": 7, "method": "run.flows", "params": {"limt": 1}}',
            -32602,
        ),
        (
            b'{"jsonrpc": "2.0", "id": 7, "method": "stats.unsubscribe", "params": {}}',
            -32602,
        ),
        (b'{"jsonrpc": "2.0", "id": 7, "method": "run.result"}', -32004),
        (b'{"jsonrpc": "2.0", "id": 7, "method": "capture.status"}', -32004),
    ]:
        rpc.send(raw)
        answer = rpc.line()
        assert answer["jsonrpc"] == "2.0", raw
        assert answer["error"]["code"] == code, (raw, answer)
        assert answer["error"]["message"], raw
        assert answer["id"] == (7 if b'"id": 7' in raw else None), raw
    # empty lines and notifications are not answered
    rpc.send(b"\n" + b'{"jsonrpc": "2.0", "method": "run.status"}')
    assert rpc.call("core.describe")["name"] == "netdynod"


def test_a_line_without_end_is_cut_off(connect: Any) -> None:
    rpc, other = connect(), connect()
    chunk = b"x" * (1 << 20)
    try:
        for _ in range(33):
            rpc.socket.sendall(chunk)
        answer = rpc.line()
        assert answer["error"]["code"] == -32600
        assert "bytes" in answer["error"]["message"]
    except (BrokenPipeError, ConnectionResetError):
        pass
    with pytest.raises(OSError):
        while True:
            rpc.line()
    assert other.call("run.status")["state"] == "idle"


def test_a_profile_is_refused_with_all_its_faults(connect: Any) -> None:
    rpc = connect()
    rpc.call("control.acquire")
    document = load("udp://127.0.0.1:9") | {"thresholds": [{"metric": "x.loss", "max": 0}]}
    document["groups"][0]["devices"] = 0
    error = rpc.fails("run.load", profile=document)
    assert error["code"] == -32002
    assert [one["code"] for one in error["data"]["all"]] == ["ND-104-05", "ND-104-06"]
    assert error["data"]["at"] == "groups[0].devices"
    found = rpc.call("profile.validate", profile=document)["errors"]
    assert found == error["data"]["all"]
    assert rpc.call("run.status")["state"] == "idle"


def test_one_writes_and_many_watch(connect: Any, sink: str) -> None:
    writer, first, second = connect(), connect(), connect()
    writer.call("control.acquire")
    for viewer in (first, second):
        assert viewer.fails("control.acquire")["code"] == -32001
        for method in (
            "run.load",
            "run.start",
            "run.stop",
            "core.shutdown",
            "control.heartbeat",
        ):
            params = {"profile": load(sink)} if method == "run.load" else {}
            error = viewer.fails(method, **params)
            assert error["code"] == -32001, (method, error)
            assert error["data"]["code"] == "ND-104-12"
            assert error["data"]["fix"]
    assert writer.fails("run.start")["code"] == -32004
    writer.call("run.load", profile=load(sink, "3s"))
    # two subscriptions of one connection are two; one that is taken back is none
    numbers = {viewer.call("stats.subscribe")["subscription"] for viewer in (first, second)}
    assert len(numbers) == 2
    extra = second.call("stats.subscribe")["subscription"]
    assert second.call("stats.unsubscribe", subscription=extra) is True
    assert second.call("stats.unsubscribe", subscription=extra) is False
    assert writer.call("run.start")["state"] == "running"
    assert writer.fails("run.start")["code"] == -32003
    assert writer.fails("run.load", profile=load(sink))["code"] == -32003
    assert first.fails("run.stop")["code"] == -32001
    # the clock may be stopped by anybody, and the result says so
    assert first.call("run.pause")["state"] == "paused"
    assert second.call("run.resume")["state"] == "running"
    assert writer.fails("run.result")["code"] == -32004
    assert writer.until_done()["state"] == "done"
    seen = [viewer.told_until("done") for viewer in (first, second)]
    assert seen[0] == seen[1]
    points = [one["params"] for one in seen[0] if one["method"] == "stats.sample"]
    states = [one["params"]["state"] for one in seen[0] if one["method"] == "run.state"]
    assert states[:3] == ["running", "paused", "running"]
    assert states[-1] == "done"
    assert points
    result = first.call("run.result")
    assert result["stopped"] is None
    assert [set(one) for one in result["paused"]] == [{"t", "seconds"}]
    # what the points told adds up to the result
    told = sum(point["groups"]["s"]["counts"]["messages_sent"] for point in points)
    assert 0 < told == result["groups"][0]["total"]["messages_sent"] <= 600
    assert result["series"] == points
    writer.call("control.release")
    assert first.call("control.acquire") == {"writer": True}


def test_a_silent_writer_loses_his_lease(connect: Any, sink: str) -> None:
    writer, viewer = connect(), connect()
    writer.call("control.acquire")
    writer.call("run.load", profile=load(sink))
    began = heard = time.monotonic()
    writer.call("run.start")
    # any request is a sign of life
    while time.monotonic() - began < LEASE + 1:
        asked = time.monotonic()
        if writer.call("run.status")["state"] != "running":
            # on a machine that gave it no time it was silent in between
            break
        heard = asked
        time.sleep(0.5)
    # asking by others is none
    until(
        lambda: viewer.call("run.status")["state"] in ("draining", "done"),
        60,
        "the run goes on",
    )
    assert time.monotonic() - heard >= LEASE
    viewer.until_done()
    result = viewer.call("run.result")
    assert result["stopped"] == "lease"
    assert not result["validity"]["valid"]
    assert "ND-90-05" in [reason["code"] for reason in result["validity"]["reasons"]]
    said = [entry["message"] for entry in viewer.call("log.tail", level="warn")["entries"]]
    assert any("silent" in message for message in said)
    # his lease is gone, and another may write
    assert writer.fails("run.stop")["code"] == -32001
    assert viewer.call("control.acquire") == {"writer": True}


def test_a_writer_that_hangs_up_is_followed_by_another(connect: Any, sink: str) -> None:
    writer, other = connect(), connect()
    writer.call("control.acquire")
    writer.call("run.load", profile=load(sink))
    writer.call("run.start")
    left = time.monotonic()
    writer.close()
    until(lambda: "result" in other.ask("control.acquire"), 60, "nobody can take over")
    runs = other.call("run.status")["state"] == "running"
    # the lease runs on for so long
    assert runs or time.monotonic() - left >= LEASE
    other.call("run.stop")
    other.until_done()
    assert other.call("run.result")["stopped"] == ("stopped" if runs else "lease")


def test_pause_stops_the_clock(connect: Any) -> None:
    rpc = connect()
    rpc.call("control.acquire")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sink:
        sink.bind(("127.0.0.1", 0))
        sink.settimeout(60)
        rpc.call("run.load", profile=load(f"udp://127.0.0.1:{sink.getsockname()[1]}"))
        assert rpc.fails("run.pause")["code"] == -32003
        began = time.monotonic()
        rpc.call("run.start")
        assert sink.recv(2048), "it sends"
        assert rpc.call("run.pause")["state"] == "paused"
        paused, before = time.monotonic(), rpc.call("run.status")
        # each look is a sign of life
        while time.monotonic() - paused < 1.5:
            after = rpc.call("run.status")
            assert (before["state"], before["elapsed"]) == (
                after["state"],
                after["elapsed"],
            )
            time.sleep(0.1)
        # what was on its way when it was paused
        sink.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            while sink.recv(2048):
                pass
        sink.settimeout(60)
        stood = time.monotonic() - paused
        assert rpc.call("run.resume")["state"] == "running"
        assert sink.recv(2048), "it goes on"
    rpc.call("run.stop")
    rpc.until_done()
    took, result = time.monotonic() - began, rpc.call("run.result")
    # as if there had been no pause
    lasted = result["phases"]["measure"]
    assert before["elapsed"] < lasted <= took - stood
    (pause,) = result["paused"]
    assert pause["t"] == before["elapsed"]
    assert stood <= pause["seconds"] < took
    assert 0 < result["groups"][0]["total"]["messages_intended"] <= 200 * lasted + 2
    assert result["stopped"] == "stopped"


def test_pages_of_flows_add_up(connect: Any, sink: str) -> None:
    rpc = connect()
    rpc.call("control.acquire")
    document = load(sink, "500ms", devices=7)
    document["groups"].append(document["groups"][0] | {"name": "t", "devices": 5})
    rpc.call("run.load", profile=document)
    rpc.call("run.start")
    rpc.until_done()
    rows: list[list[Any]] = []
    while True:
        page = rpc.call("run.flows", offset=len(rows), limit=5)
        assert page["total"] == 12
        if not page["flows"]:
            break
        assert len(page["flows"]) <= 5
        rows += page["flows"]
    assert sorted((row[0], row[1]) for row in rows) == [("s", n) for n in range(7)] + [
        ("t", n) for n in range(5)
    ]
    result = rpc.call("run.result")
    for one in result["groups"]:
        own = [row for row in rows if row[0] == one["name"]]
        assert sum(row[2] for row in own) == one["total"]["flows_started"]
        assert sum(row[4] for row in own) == one["total"]["messages_sent"]
        assert sum(row[5] for row in own) == one["total"]["messages_delivered"]


def test_tcp_only_with_the_token(lab: Lab) -> None:
    port = free_port()
    token = lab.base / "token"
    token.write_text("0123456789abcdef0123\n")
    start(lab, "--tcp", f"127.0.0.1:{port}", "--token-file", str(token))
    rpc = Rpc(("127.0.0.1", port))
    for method, params in [
        ("run.status", {}),
        ("control.hello", {}),
        ("control.hello", {"token": "0123456789abcdef"}),
    ]:
        error = rpc.fails(method, **params)
        assert error["code"] == -32006
        assert error["data"]["code"] == "ND-104-13"
    assert rpc.call("control.hello", token=token.read_text().strip()) is True
    assert rpc.call("run.status")["state"] == "idle"
    # the next connection shows it again
    assert Rpc(("127.0.0.1", port)).fails("run.status")["code"] == -32006


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--tcp", "127.0.0.1:0"], "--token-file"),
        (["--tcp", "127.0.0.1:0", "--token-file", "/nowhere"], "/nowhere"),
        (["--tcp", "127.0.0.1:0", "--token-file", "short"], "16 characters"),
        (["--tcp", "nonsense", "--token-file", "long"], "nonsense"),
    ],
)
def test_what_cannot_be_served_is_said(lab: Lab, arguments: list[str], said: str) -> None:
    lab.write("short", "abc")
    lab.write("long", "0123456789abcdef")
    child = lab.spawn(NETDYNOD, "--socket", str(lab.base / "x.sock"), *arguments)
    _, err = child.communicate(timeout=60)
    assert child.returncode != 0
    assert said in err
    assert not (lab.base / "x.sock").exists()


def test_a_stale_socket_is_replaced_and_a_live_one_is_not(lab: Lab) -> None:
    path = lab.base / "core.sock"
    first = start(lab)
    second = lab.spawn(NETDYNOD, "--socket", str(path))
    _, err = second.communicate(timeout=60)
    assert second.returncode == 92
    assert "another daemon answers" in err
    assert str(path) in err
    first.kill()
    first.wait()
    assert path.exists()
    start(lab)
    assert Rpc(str(path)).call("run.status")["state"] == "idle"
    # what is no socket is nobody's to remove
    plain = Path(lab.write("plain", "text"))
    third = lab.spawn(NETDYNOD, "--socket", str(plain))
    _, err = third.communicate(timeout=60)
    assert third.returncode == 92
    assert plain.read_text() == "text"


def test_the_command_line_keeps_a_daemon(lab: Lab, sink: str) -> None:
    path = str(lab.base / "stay.sock")
    assert "serves" in lab.good("daemon", "start", "--socket", path).out
    status = json.loads(lab.good("daemon", "status", "--socket", path, "--json").out)
    assert status["run"]["state"] == "idle"
    document = load(sink, "3s") | {"validity": PATIENT}
    for _ in range(2):
        done = lab.good("run", lab.write("p.json", document), "--socket", path)
        assert 0 < done.trial.groups[0].total.messages_sent <= 600
    # while another writes, and keeps its lease however long the command takes to begin
    with Client(Path(path)) as writer:
        writer.acquire()
        done = lab.run("run", lab.write("p.json", document), "--socket", path)
    assert done.code in (92, 104), done.text
    assert "writ" in done.err
    assert "stopped" in lab.good("daemon", "stop", "--socket", path).out
    assert not Path(path).exists()
    done = lab.run("daemon", "status", "--socket", path)
    assert done.code == 91
    assert "netdyno daemon start" in done.err


def test_a_run_over_tcp_with_the_token(lab: Lab, sink: str) -> None:
    token = lab.base / "token"
    token.write_text("a token of some length\n")
    token.chmod(0o600)
    files = lab.base / "files"
    files.mkdir()
    port = free_port()
    start(
        lab,
        "--tcp",
        f"127.0.0.1:{port}",
        "--token-file",
        str(token),
        "--files",
        str(files),
    )
    at = f"tcp://127.0.0.1:{port}"
    document = lab.write("p.json", load(sink, "3s") | {"validity": PATIENT, "capture": {}})
    without = lab.run("run", document, "--socket", at)
    assert (without.code, "NETDYNO_TOKEN_FILE" in without.err) == (104, True), without.text
    lab.environment["NETDYNO_TOKEN_FILE"] = str(token)
    done = lab.good("run", document, "--socket", at)
    assert 0 < done.trial.groups[0].total.messages_sent <= 600
    # the daemon may be far away: its capture stays where it is, and whoever ran it is told
    (capture,) = files.iterdir()
    assert capture.name in done.err
    assert json.loads(lab.good("daemon", "status", "--socket", at, "--json").out)["run"]["state"] == "done"
    token.write_text("another token, of no use here\n")
    wrong = lab.run("run", document, "--socket", at)
    assert (wrong.code, "ND-104-13" in wrong.err) == (104, True), wrong.text


def test_a_confined_daemon_opens_no_file_of_the_owner(lab: Lab, sink: str) -> None:
    folder = lab.base / "shared"
    folder.mkdir()
    start(lab, "--confined", "--files", str(folder))
    document = profile(group("s", "https://127.0.0.1:9/", {"http": {}}, 1))
    document["groups"][0]["tls"] = {"ca": "/etc/passwd"}
    rpc = Rpc(str(lab.base / "core.sock"))
    rpc.call("control.acquire")
    for method in ("run.load", "profile.validate"):
        error = rpc.fails(method, profile=document)
        assert (error["code"], error["data"]["code"]) == (-32006, "ND-104-16"), method
        assert error["data"]["at"] == "groups[0].tls.ca"
    rpc.call("run.load", profile=load(sink))
    assert rpc.fails("capture.start", path="/etc/x.pcapng")["data"]["code"] == "ND-104-16"
    rpc.close()


def test_a_profile_is_validated_with_the_rights_that_it_will_have(lab: Lab) -> None:
    document = profile(group("s", "https://127.0.0.1:9/", {"http": {}}, 1))
    document["groups"][0]["tls"] = {"ca": "/etc/passwd"}
    path = lab.write("p.json", document)
    found = {}
    for option in ((), ("--confined",)):
        done = subprocess.run([NETDYNOD, "validate", path, "--json", *option], capture_output=True, text=True)
        found[option] = [one["code"] for one in json.loads(done.stdout)["errors"]]
    assert "ND-104-16" not in found[()]
    assert found[("--confined",)] == ["ND-104-16"]
