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
from netdyno.sip.manual.message import SipMessage
from netdyno.sip.server import SipServer

from .served import server


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
        ({"listen": "192.0.2.1:5060"}, "ND-92-49", "192.0.2.1"),
    ],
)
def test_settings_that_cannot_be_used(settings: dict[str, object], code: str, said: str) -> None:
    with pytest.raises(Error) as raised, SipServer({"listen": "127.0.0.1:0", "domain": "x"} | settings):
        pass
    assert raised.value.code == code and said in raised.value.what + str(raised.value.at)


def test_the_command(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORD", "hush-hush")
    words = ["sip", "serve", "uas", "--listen", "127.0.0.1:0", "--duration", "300ms", "--json"]
    assert app.call([*words, "--user", "alice=env:WORD", "--errors", "1%"]) == 0
    said = capsys.readouterr()
    assert json.loads(said.out)["counters"]["requests"] == {}
    assert "hush" not in said.out + said.err
    for more, what in [
        (["--user", "alice"], "NAME=env:NAME"),
        (["--password", "hush-hush"], "command line"),
        (["--fault", "R99"], "R99"),
        (["--listen", "localhost"], "ND-104-72"),
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
