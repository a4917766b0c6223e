"""The client's contract, over the stand-in and (where built) the real daemon."""

import json
import os
import signal
import socket
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from netdyno.cli import app
from netdyno.core.address import TOKEN_FILE, Address
from netdyno.core.client import Client
from netdyno.core.daemon import Daemon
from netdyno.errors import Error

PROFILE: dict[str, Any] = {
    "name": "contract",
    "phases": {"warmup": "200ms", "measure": "1s", "drain": "500ms", "sample": "200ms"},
    "targets": {"local": "ping://127.0.0.1"},
    "groups": [
        {
            "name": "echo",
            "target": "local",
            "devices": 2,
            "model": {"ping": {}},
            "load": {"open": {"rate": "20/s"}},
        }
    ],
}


def test_describe(daemon: Daemon) -> None:
    with daemon.connect() as client:
        about = client.call("core.describe")
    assert about["pid"] == daemon.pid
    assert {"mqtt", "http", "ping", "stream"} <= {p["name"] for p in about["models"]}


def squatted(path: Path, user: int) -> int:
    """A socket on which a process of another user listens; returns that process."""
    ready, told = os.pipe()
    child = os.fork()
    if child == 0:
        os.setgid(user)
        os.setuid(user)
        server = socket.socket(socket.AF_UNIX)
        server.bind(str(path))
        server.listen()
        os.write(told, b".")
        while True:
            one, _ = server.accept()
            # what it is sent, it keeps
            got = one.recv(65536)
            with Path(f"{path}.got").open("ab") as file:
                file.write(got or b"")
    assert os.read(ready, 1) == b"."
    os.close(ready)
    os.close(told)
    return child


@pytest.mark.skipif(os.geteuid() != 0, reason="makes a process of another user")
def test_a_socket_of_another_user_is_sent_nothing(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("SUDO_UID", raising=False)
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o777)
        path = Path(folder) / "s.sock"
        child = squatted(path, 65534)
        try:
            path.chmod(0o666)
            profile = Path(folder) / "p.json"
            profile.write_text(json.dumps(PROFILE))
            with pytest.raises(Error) as e:
                Client(path)
            assert (e.value.code, e.value.at) == ("ND-92-47", str(path))
            assert "user 65534" in e.value.what
            for verb in (
                ["run", str(profile), "--socket", str(path)],
                ["daemon", "status", "--socket", str(path)],
                ["daemon", "stop", "--socket", str(path)],
                ["describe", "--socket", str(path)],
            ):
                assert app.call(verb) == 92, verb
                assert "ND-92-47" in capfd.readouterr().err, verb
            got = Path(f"{path}.got")
            assert not got.exists() or got.read_bytes() == b""
            # who called sudo has a daemon of their own
            monkeypatch.setenv("SUDO_UID", "65534")
            Client(path).close()
        finally:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)


def test_a_run_from_load_to_result(daemon: Daemon) -> None:
    with daemon.connect() as client:
        client.acquire()
        loaded = client.call("run.load", profile=PROFILE)
        assert loaded["groups"][0]["name"] == "echo"
        events = client.subscribe()
        client.call("run.start")
        seen = list(events)
        assert seen[-1].status is not None
        assert seen[-1].status.state == "done"
        samples = [e.sample for e in seen if e.sample]
        assert len(samples) >= 4
        assert "echo" in samples[0]["groups"]
        trial = client.result()
        assert trial.groups[0].name == "echo"
        assert trial.groups[0].measured.messages_sent > 0
        assert trial.stopped is None
        flows = list(client.flows(page=1))
        assert [row[0] for row in flows] == ["echo", "echo"]
        client.release()


def test_stop_keeps_what_was_measured(daemon: Daemon) -> None:
    long = {**PROFILE, "phases": {**PROFILE["phases"], "measure": "1000s"}}
    with daemon.connect() as client:
        client.acquire()
        client.call("run.load", profile=long)
        events = client.subscribe()
        client.call("run.start")
        while events.next(60.0).sample is None:  # type: ignore[union-attr]
            pass
        client.call("run.stop")
        assert [e for e in events if e.status][-1].status.state == "done"  # type: ignore[union-attr]
        assert client.result().stopped == "stopped"


def test_one_writer(daemon: Daemon) -> None:
    with daemon.connect() as first, daemon.connect() as second:
        first.acquire()
        with pytest.raises(Error) as refused:
            second.acquire()
        assert "writ" in refused.value.what
        with pytest.raises(Error):
            second.call("run.load", profile=PROFILE)
        first.release()
        second.acquire()


def test_a_bad_profile_names_every_error(daemon: Daemon) -> None:
    bad = {**PROFILE, "grups": [], "name": PROFILE["name"]}
    with daemon.connect() as client:
        errors = client.call("profile.validate", profile=bad)["errors"]
        assert errors[0]["code"] == "ND-104-02"
        client.acquire()
        with pytest.raises(Error) as refused:
            client.call("run.load", profile=bad)
    assert refused.value.exit_code == 104
    assert refused.value.all


def test_no_result_before_the_end(daemon: Daemon) -> None:
    with daemon.connect() as client, pytest.raises(Error):
        client.result()


def test_the_lease_ends_with_the_heartbeat(daemon: Daemon, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("netdyno.core.client.HEARTBEAT", 3600.0)
    long = {**PROFILE, "phases": {**PROFILE["phases"], "measure": "1000s"}}
    with daemon.connect() as client:
        client.acquire()
        client.call("run.load", profile=long)
        events = client.subscribe()
        # its last sign of life
        began = time.monotonic()
        client.call("run.start")
        states = [e.status.state for e in events if e.status]
        assert states[-1] == "done"
        assert time.monotonic() - began >= 3.0
        assert client.result().stopped == "lease"


def test_death_of_the_daemon_is_seen(daemon: Daemon) -> None:
    with daemon.connect() as client:
        events = client.subscribe()
        os.kill(daemon.pid, signal.SIGKILL)
        with pytest.raises(Error) as lost:
            events.next(60.0)
        assert lost.value.code == "ND-91-21"
        with pytest.raises(Error):
            client.call("run.status")
        daemon.process.wait(60.0)
        with pytest.raises(Error) as died:
            daemon.check()
        assert died.value.code == "ND-91-20"
        assert "SIGKILL" in died.value.what


def test_the_socket_goes_with_the_daemon(daemon: Daemon) -> None:
    assert daemon.socket.exists()
    daemon.stop()
    assert not daemon.socket.exists()


def test_nobody_answers(tmp_path: Path) -> None:
    with pytest.raises(Error) as lost:
        Client(tmp_path / "none.sock")
    assert lost.value.exit_code == 91


@pytest.mark.parametrize(
    "answer",
    [
        b"[1]\n",
        b"5\n",
        b"no json\n",
        b"[" * 5000 + b"\n",
        b'{"id": [1]}\n',
        b"x" * 2000,
        b'{"id": 1',
        b"\xff\n",
    ],
    ids=["list", "number", "noise", "deep", "id", "long", "cut", "bytes"],
)
def test_a_peer_that_is_no_daemon_is_hung_up_on(
    answer: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("netdyno.core.client.LONGEST", 1000)
    path = tmp_path / "core.sock"
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
        server.listen()

        def serve() -> None:
            one, _ = server.accept()
            with one:
                one.recv(4096)
                one.sendall(answer)
                one.shutdown(socket.SHUT_WR)
                one.recv(4096)

        peer = threading.Thread(target=serve)
        peer.start()
        with Client(path, timeout=60) as client, pytest.raises(Error) as lost:
            client.call("core.describe")
        peer.join()
    assert lost.value.code == "ND-91-21"


def test_a_daemon_that_does_not_start(fake: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_DIE", "start")
    with pytest.raises(Error) as failed:
        Daemon(tmp_path / "nd-core.sock", tmp_path / "log")
    assert failed.value.code == "ND-92-21"
    assert "told to die" in failed.value.what


def test_a_daemon_for_another_cpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "netdynod"
    program.write_text("#!/bin/sh\nkill -ILL $$\n")
    program.chmod(0o755)
    monkeypatch.setenv("NETDYNO_DAEMON", str(program))
    with pytest.raises(Error) as failed:
        Daemon(tmp_path / "nd-core.sock", tmp_path / "log")
    assert failed.value.code == "ND-92-21"
    assert "CPU" in failed.value.what
    assert "./do setup" in failed.value.fix


def test_no_daemon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NETDYNO_DAEMON", "/nowhere/netdynod")
    with pytest.raises(Error) as missing:
        from netdyno.core.daemon import program

        program()
    assert missing.value.code == "ND-92-20"


def test_an_address_is_a_path_or_tcp_with_a_token(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert str(Address.of("/run/nd/core.sock")) == "/run/nd/core.sock"
    assert str(Address.of("tcp://[::1]", token="t")) == "tcp://[::1]:7447"
    assert Address.of("tcp://lab-7:9000", token="t") == Address(None, "lab-7", 9000, "t")
    for wrong in ("tcp://", "http://lab-7", "tcp://lab-7:99999", "tcp://lab-7/x", "tcp://a@lab-7"):
        with pytest.raises(Error) as refused:
            Address.of(wrong, token="t")
        assert refused.value.code == "ND-104-04", wrong
    monkeypatch.delenv(TOKEN_FILE, raising=False)
    with pytest.raises(Error) as missing:
        Address.of("tcp://lab-7")
    assert missing.value.code == "ND-104-13"
    monkeypatch.setenv(TOKEN_FILE, str(tmp_path / "none"))
    with pytest.raises(Error) as missing:
        Address.of("tcp://lab-7")
    assert missing.value.code == "ND-104-20"
    (tmp_path / "token").write_text(" 0123456789abcdef\n")
    monkeypatch.setenv(TOKEN_FILE, str(tmp_path / "token"))
    address = Address.of("tcp://lab-7")
    assert (address.token, address.remote) == ("0123456789abcdef", True)
    assert "0123" not in repr(address)
    assert "0123" not in str(address)


@pytest.mark.parametrize(
    ("answer", "code", "said"),
    [
        (b'"result": {"time": NaN}', "ND-91-21", "it sends NaN, which is no number"),
        (b'"result": {"time": 1e999}', "ND-91-21", "it sends 1e999, which is no number"),
        (b'"result": {"elapsed": 1' + b"0" * 400 + b"}", "ND-91-21", "a whole number of 401 digits"),
        (b'"result": {"state": 5}', "ND-91-32", "its answer to run.status is not valid: state"),
        (b'"result": [1]', "ND-91-32", "its answer to run.status is not valid: this is no object"),
        (b'"error": ["x"]', "ND-91-32", "it is no error of JSON-RPC"),
        (b'"error": {"code": "abc", "message": 1}', "ND-91-32", "it is no error of JSON-RPC"),
        (
            b'"error": {"code": 1, "message": "m", "data": {"code": "X", "what": 5, "all": 5}}',
            "ND-91-24",
            "m",
        ),
    ],
)
def test_an_answer_that_is_none_is_an_error_of_its_own(
    tmp_path: Path, answer: bytes, code: str, said: str
) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "s"))
        server.listen()

        def serve() -> None:
            with server.accept()[0] as one:
                one.recv(65536)
                one.sendall(b'{"jsonrpc": "2.0", "id": 1, ' + answer + b"}\n")
                # until the client hangs up
                one.recv(1)

        thread = threading.Thread(target=serve)
        thread.start()
        with Client(tmp_path / "s") as client, pytest.raises(Error) as e:
            client.status()
        thread.join(30)
    assert e.value.code == code
    assert said in e.value.what


def test_a_state_that_is_none_ends_the_connection_and_says_so(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "s"))
        server.listen()
        with Client(tmp_path / "s") as client, server.accept()[0] as one:
            one.sendall(b'{"jsonrpc": "2.0", "method": "run.state", "params": {"state": 5}}\n')
            with pytest.raises(Error, match=r"its answer to run\.state is not valid: state: ") as e:
                client.call("run.status", timeout=30.0)
    assert e.value.code == "ND-91-21"
    assert "\n" not in e.value.what
