"""Our SIP server as a process: it serves, is slow, rejects, loses, counts, and ends with who started it."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest
import yaml
from ports import free_port

from netdyno.cli import app
from netdyno.errors import Error
from netdyno.sip.dut import certificate
from netdyno.sip.manual.message import SipMessage
from netdyno.sip.server import SipServer

from .served import server

pytestmark = pytest.mark.slow


def ask(address: str, method: str = "OPTIONS", transport: str = "udp", number: int = 1) -> SipMessage:
    """One request, and its first response."""
    host, port = address.rsplit(":", 1)
    kind = socket.SOCK_DGRAM if transport == "udp" else socket.SOCK_STREAM
    with socket.socket(type=kind) as client:
        client.settimeout(10)
        client.connect((host, int(port)))
        client.sendall(
            f"{method} sip:{address} SIP/2.0\r\nVia: SIP/2.0/{transport.upper()} h;rport;branch=z9hG4bK{number}\r\n"
            f"From: <sip:a@b>;tag=1\r\nTo: <sip:{address}>\r\nCall-ID: {number}\r\nCSeq: 1 {method}\r\n"
            "Content-Length: 0\r\n\r\n".encode()
        )
        return SipMessage.read(client.recv(65535))


@pytest.mark.parametrize("transport", ["udp", "tcp"])
def test_it_answers_and_counts(transport: str) -> None:
    with server("proxy") as served:
        answers = [ask(served.address, transport=transport, number=n) for n in range(20)]
    assert [one.status for one in answers] == [200] * 20
    assert served.counters["requests"] == {"OPTIONS": 20}
    assert served.counters["responses"] == {"200": 20}


@pytest.mark.sampled(1, of="sip-serve-loads")
def test_a_load_over_ipv6_is_for_the_user_of_the_uri(tmp_path: Path) -> None:
    with server("uas", listen="[::1]:0", call_auth=False) as served:
        words = (
            "--rate",
            "20/s",
            "--duration",
            "300ms",
            "--warmup",
            "0s",
            "--quiet",
            "--runs",
            str(tmp_path),
        )
        assert served.address.startswith("[::1]:")
        for verb in ("load", "call"):
            assert app.call(["sip", verb, f"sip:anna@{served.address}", *words]) in (0, 90)
    assert served.counters["requests"].keys() == {"OPTIONS", "INVITE", "ACK", "BYE"}
    assert served.counters["responses"].keys() == {"180", "200"}


@pytest.mark.sampled(1, of="sip-serve-loads")
def test_the_example_of_a_transfer_ends_both_calls(tmp_path: Path) -> None:
    example = Path(__file__).parents[3] / "examples" / "sip-transfer.yaml"
    with server("proxy", domain="example.net", call_auth=False, users=[]) as served:
        document = yaml.safe_load(example.read_text())
        document["targets"]["proxy"] = f"sip://{served.address}"
        document["phases"]["measure"] = "1s"
        profile = tmp_path / "transfer.yaml"
        profile.write_text(yaml.safe_dump(document))
        assert app.call(["run", str(profile), "--quiet", "--runs", str(tmp_path / "runs")]) in (0, 90)
    count = served.counters["requests"]
    assert count["REFER"] == count["NOTIFY"] > 3
    # the call that is transferred, and that to the target
    assert served.counters["calls_answered"] == served.counters["calls_ended"] == 2 * count["REFER"]


@pytest.fixture(scope="module")
def identity(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a certificate for 127.0.0.1, which is its own authority."""
    folder = tmp_path_factory.mktemp("identity")
    certificate.write(folder, "127.0.0.1")
    return folder


def secure(identity: Path, **more: str) -> dict[str, object]:
    names = {"cert": str(identity / "certificate.pem"), "key": str(identity / "key.pem")}
    return {"listen": "127.0.0.1:0", "identity": names | more}


def options_by_openssl(address: str, *more: str) -> str:
    """What `openssl s_client` gets for OPTIONS over TLS."""
    request = (
        f"OPTIONS sips:{address} SIP/2.0\r\nVia: SIP/2.0/TLS h;branch=z9hG4bK1\r\nFrom: <sips:a@b>;tag=1\r\n"
        f"To: <sips:{address}>\r\nCall-ID: 1\r\nCSeq: 1 OPTIONS\r\nContent-Length: 0\r\n\r\n"
    )
    command = ["openssl", "s_client", "-connect", address, "-quiet", "-verify_quiet", *more]
    with subprocess.Popen(command, stdin=-1, stdout=-1, stderr=-1, text=True) as client:
        assert client.stdin and client.stdout
        client.stdin.write(request)
        client.stdin.flush()
        line = client.stdout.readline()
        client.kill()
    return line


def test_calls_over_tls_are_counted(tmp_path: Path, identity: Path) -> None:
    with server("proxy", domain="example.net", users=[], call_auth=False, tls=secure(identity)) as served:
        uri, ca = f"sips:{served.addresses['tls']}", str(identity / "certificate.pem")
        words = ["--domain", "example.net", "--rate", "20/s", "--duration", "500ms", "--warmup", "0s"]
        assert app.call(["sip", "call", uri, "--cacert", ca, *words, "--quiet", "--runs", str(tmp_path)]) in (
            0,
            90,
        )
        for version in ("-tls1_2", "-tls1_3"):
            assert options_by_openssl(served.addresses["tls"], version) == "SIP/2.0 200 OK\n"
    count = served.counters
    assert count["calls_answered"] == count["calls_ended"] == count["forwarded"]["ACK"] > 3
    assert count["connections"].keys() == {"TLS"} and count["connections"]["TLS"] > 2
    assert (count["tls_failures"], count["send_errors"]) == ({}, 0)


def test_a_client_without_the_certificate_asked_for_is_refused_and_counted(
    identity: Path, tmp_path: Path
) -> None:
    ca, own = str(identity / "certificate.pem"), ["-cert", f"{tmp_path}/cert", "-key", f"{tmp_path}/key"]
    (tmp_path / "kind").write_text("basicConstraints=CA:FALSE\n")
    signed = ["-CA", ca, "-CAkey", str(identity / "key.pem"), "-extfile", f"{tmp_path}/kind", "-days", "9"]
    for words in (
        [
            "req",
            "-newkey",
            "rsa:2048",
            "-nodes",
            "-subj",
            "/CN=alice",
            "-keyout",
            own[3],
            "-out",
            f"{tmp_path}/csr",
        ],
        ["x509", "-req", "-in", f"{tmp_path}/csr", *signed, "-out", f"{tmp_path}/cert"],
    ):
        subprocess.run(["openssl", *words], check=True, capture_output=True)
    with server("uas", tls=secure(identity, client_ca=ca)) as served:
        assert options_by_openssl(served.addresses["tls"]) == ""
        assert options_by_openssl(served.addresses["tls"], *own) == "SIP/2.0 200 OK\n"
    assert served.counters["tls_failures"] == {"peer sent no certificates": 1}
    assert served.counters["requests"] == {"OPTIONS": 1}


def test_a_share_is_rejected_and_the_rest_is_not() -> None:
    with server("uas", error_share=0.5, error_status=500, seed=4) as served:
        found = [ask(served.address, number=n).status for n in range(60)]
    assert set(found) == {200, 500}
    assert served.counters["rejected_on_purpose"] == found.count(500)


def test_a_delay_is_not_cut_short() -> None:
    with server("uas", delay_ms=300) as served:
        begun = time.monotonic()
        ask(served.address)
        assert time.monotonic() - begun >= 0.3


def test_it_ends_with_who_started_it(tmp_path: Path) -> None:
    script = tmp_path / "owner.py"
    script.write_text(
        "import time\nfrom netdyno.sip.server import SipServer\n"
        "with SipServer({'listen': '127.0.0.1:0', 'domain': 'x'}) as one:\n"
        "    print(one._process.pid, flush=True)\n    time.sleep(60)\n"
    )
    owner = subprocess.Popen([sys.executable, str(script)], stdout=subprocess.PIPE, text=True)
    assert owner.stdout
    pid = int(owner.stdout.readline())
    owner.kill()
    owner.wait()
    until = time.monotonic() + 20
    while Path(f"/proc/{pid}").exists() and "Z" not in Path(f"/proc/{pid}/stat").read_text().split()[2]:
        assert time.monotonic() < until, "it serves on"
        time.sleep(0.05)
    owner.stdout.close()


@pytest.mark.parametrize(
    ("settings", "code", "said"),
    [
        ({"listen": "0.0.0.0:0"}, "ND-104-72", "address"),
        ({"fault": "X1"}, "ND-104-72", "X1"),
        ({"drop_share": 2.0}, "ND-104-72", "drop_share"),
        ({"nonsense": 1}, "ND-104-72", "nonsense"),
        (
            {"tls": {"listen": "127.0.0.1:0", "identity": {"cert": "/dev/null"}}},
            "ND-104-72",
            "cannot be used",
        ),
        ({"listen": "192.0.2.1:5060"}, "ND-92-49", "192.0.2.1"),
    ],
)
def test_settings_that_cannot_be_used(settings: dict[str, object], code: str, said: str) -> None:
    with pytest.raises(Error) as raised, SipServer({"listen": "127.0.0.1:0", "domain": "x"} | settings):
        pass
    assert raised.value.code == code and said in raised.value.what + str(raised.value.at)


def test_the_command(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("WORD", "hush-hush")
    words = ["sip", "serve", "uas", "--listen", "127.0.0.1:0", "--duration", "300ms", "--json"]
    made = ["--tls-self-signed", str(tmp_path / "made.pem")]
    assert app.call([*words, "--user", "alice=env:WORD", "--errors", "1%", *made]) == 0
    assert "BEGIN CERTIFICATE" in (tmp_path / "made.pem").read_text()
    said = capsys.readouterr()
    assert json.loads(said.out)["counters"]["requests"] == {}
    assert "hush" not in said.out + said.err
    for more, what in [
        (["--user", "alice"], "NAME=env:NAME"),
        (["--fault", "R99"], "R99"),
        (["--listen", "localhost"], "ND-104-72"),
        (["--tls-key", "/dev/null"], "--tls-cert"),
        (["--tls-cert", "/dev/null"], "ND-104-72"),
        ([*made, "--tls-cert", "/dev/null"], "there is a certificate already"),
    ]:
        assert app.call([*words, *more]) == 104
        assert what in capsys.readouterr().err


def test_counters_for_prometheus() -> None:
    port = free_port()
    words = ["sip", "serve", "uas", "--listen", "127.0.0.1:0", "--prometheus", f"127.0.0.1:{port}"]
    child = subprocess.Popen([sys.executable, "-m", "netdyno", *words], stderr=subprocess.PIPE, text=True)
    assert child.stderr
    try:
        address = child.stderr.readline().split(" on ")[1].split(",")[0]
        assert ask(address).status == 200
        until, text = time.monotonic() + 20, ""
        while 'netdyno_sip_server_requests_total{method="OPTIONS"} 1.0' not in text:
            assert time.monotonic() < until, text
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
                text = answer.read().decode()
        assert 'netdyno_sip_server_responses_total{status="200"} 1.0' in text
        assert "# TYPE netdyno_sip_server_bindings gauge" in text
        child.send_signal(signal.SIGINT)
        assert child.wait(20) == 0
    finally:
        child.kill()
        child.wait()
        child.stderr.close()
