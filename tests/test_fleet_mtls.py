"""The agent's port of mutual TLS: who has no certificate of its CA gets a clear error, and the agent is unharmed."""

from __future__ import annotations

import json
import shutil
import socket
import ssl
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from lab import NETDYNOD, until

from netdyno.core.address import Address
from netdyno.core.client import Client
from netdyno.core.mtls import Identity
from netdyno.errors import Error
from netdyno.fleet import certificates

pytestmark = pytest.mark.slow


class Agent:
    """An agent of loopback."""

    def __init__(self, base: Path, made: certificates.Certificates) -> None:
        self.base = base
        certificates.write(made, base / "own")
        self.log = (base / "log").open("w")
        self.process = subprocess.Popen(
            [NETDYNOD, "--socket", base / "s", "--mtls", "127.0.0.1:0", "--identity", base / "own" / "lab-1"],
            stdout=subprocess.PIPE,
            stderr=self.log,
            text=True,
        )
        assert self.process.stdout
        ready = self.process.stdout.readline()
        if not ready:
            self.__exit__()
            raise ChildProcessError((base / "log").read_text())
        self.port = int(json.loads(ready)["mtls"].rpartition(":")[2])

    def client(self, folder: str | Path = "own", name: str = "lab-1") -> Client:
        identity = Identity(self.base / folder, name)
        return Client(Address(None, "127.0.0.1", self.port, identity=identity), timeout=30.0)

    def refused(self, folder: str | Path = "own", name: str = "lab-1") -> str:
        """What a client is told that is not let in."""
        with pytest.raises(Error) as e:
            self.client(folder, name)
        assert e.value.code == "ND-92-92"
        assert e.value.at == f"127.0.0.1:{self.port}"
        assert e.value.fix
        return e.value.what

    def plain(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=30.0)

    def threads(self) -> int:
        return len(list(Path(f"/proc/{self.process.pid}/task").iterdir()))

    def ended(self) -> None:
        self.process.terminate()
        assert self.process.wait(30) == 0

    def __enter__(self) -> Agent:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()
        self.log.close()


@pytest.fixture
def agent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Agent]:
    monkeypatch.setenv("NETDYNO_DAEMON", str(NETDYNOD))
    with Agent(tmp_path, certificates.make("lab", ["lab-1"], days=1)) as one:
        yield one
        with one.client() as client:
            # whatever was tried, it serves
            assert client.call("core.describe")["pid"] == one.process.pid
        one.ended()


def test_a_profile_goes_in_and_a_large_answer_comes_out(agent: Agent) -> None:
    with agent.client() as client, agent.client() as other:
        assert len(json.dumps(client.call("profile.schema"))) > 50_000
        # a request of many records, while another connection is served
        filler = "x" * (8 << 20)
        answers = []
        busy = threading.Thread(target=lambda: answers.append(other.call("core.clock")["time"]))
        busy.start()
        assert client.call("profile.validate", profile={"name": filler})["errors"]
        busy.join(30)
        assert answers
        client.acquire()
        with pytest.raises(Error):
            other.acquire()
        client.release()


def test_the_owners_files_are_not_for_who_comes_over_tls(agent: Agent) -> None:
    with agent.client() as client, pytest.raises(Error) as e:
        client.acquire()
        tls = {"ca": "/etc/hostname"}
        group = {"name": "g", "target": "https://127.0.0.1:1/", "model": {"http": {}}, "tls": tls}
        client.call("run.load", profile={"name": "x", "groups": [group]})
    assert e.value.code == "ND-104-16"


def test_certificates_of_another_ca_are_refused_by_both_sides(agent: Agent) -> None:
    # of the same name: that of a fleet that was taken down
    certificates.write(certificates.make("lab", ["lab-1"], days=1), agent.base / "old")
    assert "is not of the CA" in agent.refused("old")
    # a stolen certificate with the agent's right CA
    shutil.copytree(agent.base / "old", agent.base / "stolen")
    shutil.copy(agent.base / "own" / "ca.pem", agent.base / "stolen" / "ca.pem")
    assert "does not accept our certificate" in agent.refused("stolen")


def test_an_agents_own_certificate_opens_no_other_agent(agent: Agent) -> None:
    (agent.base / "agents").mkdir()
    for ours, theirs in (("ca.pem", "ca.pem"), ("client.pem", "agent.pem"), ("client.key", "agent.key")):
        shutil.copy(agent.base / "own" / "lab-1" / theirs, agent.base / "agents" / ours)
    assert "does not accept our certificate" in agent.refused("agents")


def test_an_agent_of_another_name_and_missing_files_are_told(agent: Agent) -> None:
    assert "for another name than lab-2" in agent.refused(name="lab-2")
    assert "there is no file" in agent.refused("nowhere")


def test_an_expired_certificate_is_told_by_both_sides(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NETDYNO_DAEMON", str(NETDYNOD))
    monkeypatch.setattr(certificates, "DAY", 1)
    with _short_lived(tmp_path) as one:
        until(lambda: _expired(tmp_path / "own" / "client.pem"), 150)
        assert "the agent's certificate has expired" in one.refused()
        # whose client checks nothing learns what the agent thinks of our certificate
        until(lambda: "EXPIRED" in _alert(one.plain(), tmp_path / "own"), 60, "it is still taken")
        one.ended()
    # and an agent does not start with one
    done = subprocess.run(
        [
            NETDYNOD,
            "--socket",
            tmp_path / "t",
            "--mtls",
            "127.0.0.1:0",
            "--identity",
            tmp_path / "own" / "lab-1",
        ],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.returncode, "has expired" in done.stderr) == (92, True), done.stderr


def _short_lived(base: Path) -> Agent:
    """An agent whose certificate is valid for some seconds yet: for more, if it has expired before it is read."""
    for seconds in (3, 12):
        try:
            return Agent(base, certificates.make("lab", ["lab-1"], days=seconds))
        except ChildProcessError as e:
            # what else it says is a fault
            assert "has expired" in str(e)
    return Agent(base, certificates.make("lab", ["lab-1"], days=90))


def _expired(path: Path) -> bool:
    done = subprocess.run(["openssl", "x509", "-checkend", "0", "-noout", "-in", path], capture_output=True)
    return done.returncode == 1


def _alert(plain: socket.socket, folder: Path | None = None) -> str:
    """By which alert the agent refuses a client that checks nothing, and shows this certificate or none."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    if folder:
        context.load_cert_chain(folder / "client.pem", folder / "client.key")
    try:
        with context.wrap_socket(plain, server_hostname="lab-1") as secure:
            secure.sendall(b"{}\n")
            secure.recv(1)
    except ssl.SSLError as e:
        return e.reason or ""
    return ""


def test_noise_and_who_speaks_no_tls_are_hung_up_on(agent: Agent) -> None:
    for said in (
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        b'{"jsonrpc":"2.0","id":1,"method":"control.hello"}\n',
        bytes(range(256)) * 64,
        b"\x16\x03\x01\xff\xff" + b"\0" * 70_000,
    ):
        with agent.plain() as one:
            try:
                one.sendall(said)
                answer = b"".join(iter(lambda one=one: one.recv(4096), b""))
            except ConnectionError:
                answer = b""
            assert b"jsonrpc" not in answer
    assert "CERTIFICATE_REQUIRED" in _alert(agent.plain())


def test_a_thousand_half_open_connections_keep_nobody_out(agent: Agent) -> None:
    before = agent.threads()
    flood = []
    try:
        for number in range(1000):
            one = agent.plain()
            if number % 2:
                # half of a TLS record
                one.sendall(b"\x16\x03\x01\x02\x00\x01")
            flood.append(one)
        with agent.client() as client:
            assert client.call("core.clock")["time"] > 0
        assert agent.threads() < before + 100
    finally:
        for one in flood:
            one.close()
    until(lambda: agent.threads() <= before + 2, 60, "threads are left")


def test_what_answers_is_no_agent(agent: Agent) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]

        def answer() -> None:
            with server.accept()[0] as one:
                one.recv(4096)
                one.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

        thread = threading.Thread(target=answer)
        thread.start()
        with pytest.raises(Error) as e:
            Client(Address(None, "127.0.0.1", port, identity=Identity(agent.base / "own", "lab-1")))
        thread.join()
    assert (e.value.code, e.value.what) == ("ND-92-92", "what answers there speaks no TLS")
