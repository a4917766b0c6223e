"""Computed header fields of scenario files: what is sent is verified by OpenSSL and by the vectors of 3GPP."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from netdyno.cli import app

pytestmark = pytest.mark.slow

K, OPC, RES = "465b5ce8b199b49faa5f0a2ee238a6bc", "cd63cb71954a9f4e48a5994e37a02baf", "a54211d5e3ba50bf"
AUTN = "55f328b43577b9b94a9ffac354dfafb3"
NONCE = base64.b64encode(bytes.fromhex("23553cbe9637a89d218ae64dae47bf35" + AUTN)).decode()
"""RAND and AUTN of test set 1 of 3GPP TS 35.208."""


def field(message: str, name: str) -> str | None:
    found = re.search(rf"^{name}: (.*)\r$", message, re.MULTILINE)
    return found[1] if found else None


@contextmanager
def peer(answers: Callable[[str], str | None]) -> Iterator[tuple[int, list[str]]]:
    """A UDP server on loopback: a status line and header fields for each request; its port and what came."""
    came: list[str] = []
    server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    server.bind(("127.0.0.1", 0))
    server.settimeout(0.1)
    over = threading.Event()

    def serve() -> None:
        while not over.is_set():
            try:
                data, to = server.recvfrom(65536)
            except TimeoutError:
                continue
            request = data.decode()
            came.append(request)
            if (start := answers(request)) is None:
                continue
            kept = [
                one for one in request.split("\r\n") if one.startswith(("Via:", "From:", "Call-ID:", "CSeq:"))
            ]
            lines = [
                *start.split("\n"),
                *kept,
                f"To: {field(request, 'To')};tag=x",
                "Content-Length: 0",
                "",
                "",
            ]
            server.sendto("\r\n".join(lines).encode(), to)

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield server.getsockname()[1], came
    finally:
        over.set()
        thread.join()
        server.close()


def play(port: int, scenario: dict[str, Any], tmp_path: Path, *more: str) -> tuple[int, str]:
    """The exit code, and all that the run wrote."""
    path = tmp_path / "steps.json"
    path.write_text(json.dumps(scenario))
    runs = tmp_path / "runs"
    where = ["--scenario", str(path), "--runs", str(runs), "--quiet"]
    load = ["--rate", "20/s", "--users", "4", "--duration", "500ms", "--warmup", "0s"]
    code = app.call(["sip", "load", f"sip:127.0.0.1:{port}", *where, *load, *more])
    files = [one for one in runs.rglob("*") if one.is_file()]
    return code, "".join(one.read_bytes().decode("utf-8", "replace") for one in files)


def verified(token: str, public: Path, tmp_path: Path) -> bool:
    """Whether OpenSSL takes the signature of a JWS (RFC 7518 section 3.4: R and S, 32 bytes each)."""
    signed, _, signature = token.rpartition(".")
    raw = base64.urlsafe_b64decode(signature + "==")
    assert len(raw) == 64
    parts = []
    for half in (raw[:32], raw[32:]):
        number = half.lstrip(b"\0")
        number = b"\0" + number if number[0] & 0x80 else number
        parts.append(b"\x02" + bytes([len(number)]) + number)
    (tmp_path / "signature").write_bytes(b"\x30" + bytes([sum(map(len, parts))]) + b"".join(parts))
    command = [
        "openssl",
        "dgst",
        "-sha256",
        "-verify",
        str(public),
        "-signature",
        str(tmp_path / "signature"),
    ]
    return subprocess.run(command, input=signed.encode(), capture_output=True, check=False).returncode == 0


def test_calls_are_signed_as_openssl_verifies(tmp_path: Path) -> None:
    key, public = tmp_path / "signer.pem", tmp_path / "public.pem"
    make = ["openssl", "genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256", "-out", str(key)]
    subprocess.run(make, check=True, capture_output=True)
    subprocess.run(["openssl", "pkey", "-in", str(key), "-pubout", "-out", str(public)], check=True)
    x5u = "https://certificates.example.net/signer.pem"
    scenario = {
        "identity": {"key": {"file": "signer.pem"}, "x5u": x5u, "attest": "A"},
        "steps": [{"send": {"method": "INVITE"}}, {"expect": {"status": 486}}],
    }
    with peer(lambda request: "SIP/2.0 486 Busy" if request.startswith("INVITE") else None) as (port, came):
        code, written = play(port, scenario, tmp_path, "--user", "+1-555-010{device}", "--to", "alice")
    invites = {one for one in came if one.startswith("INVITE")}
    assert code == 0 and len(invites) >= 3, (code, came)
    origids = set()
    for invite in invites:
        token, *parameters = (field(invite, "Identity") or "").split(";")
        assert parameters == [f"info=<{x5u}>", "alg=ES256", "ppt=shaken"]
        assert verified(token, public, tmp_path)
        changed = token[:60] + ("A" if token[60] != "A" else "B") + token[61:]
        assert not verified(changed, public, tmp_path), "a test that cannot fail"
        head, claims = (json.loads(base64.urlsafe_b64decode(part + "==")) for part in token.split(".")[:2])
        assert head == {"alg": "ES256", "ppt": "shaken", "typ": "passport", "x5u": x5u}
        number = re.search(r"sip:\+1-555-010(\d+)@", field(invite, "From") or "")
        assert number and claims["orig"] == {"tn": f"1555010{number[1]}"}
        assert claims["dest"] == {"uri": ["sip:alice@127.0.0.1"]} and claims["attest"] == "A"
        assert list(claims) == sorted(claims) and abs(claims["iat"] - time.time()) < 60
        moment = time.strftime("%a, %d %b %Y %H:%M:%S GMT", time.gmtime(claims["iat"]))
        assert field(invite, "Date") == moment
        origids.add(claims["origid"])
    assert len(origids) == len(invites)
    secret = key.read_text().splitlines()[1]
    assert secret not in written, "the key is kept nowhere"


def test_a_challenge_of_aka_is_answered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SIM_K", K)
    (tmp_path / "opc.hex").write_text(OPC + "\n")
    challenge = f'WWW-Authenticate: Digest realm="ims.test", nonce="{NONCE}", algorithm=AKAv1-MD5, qop="auth"'

    def answers(request: str) -> str:
        if not field(request, "Authorization"):
            return f"SIP/2.0 401 Unauthorized\n{challenge}"
        return f"SIP/2.0 200 OK\nContact: {field(request, 'Contact')}"

    scenario = {
        "aka": {"k": {"env": "SIM_K"}, "opc": {"file": "opc.hex"}},
        "steps": [{"send": {"method": "REGISTER"}}, {"expect": {"status": 200}}],
    }
    with peer(answers) as (port, came):
        code, written = play(port, scenario, tmp_path, "--domain", "ims.test")
    # on a busy machine the load may be late, which is no matter here
    assert code in (0, 90), came
    answered = [one for one in came if field(one, "Authorization")]
    assert len(answered) >= 3

    def md5(*parts: bytes) -> bytes:
        return hashlib.md5(b":".join(parts)).hexdigest().encode()

    for request in answered:
        given = dict(re.findall(r'(\w+)="?([^",]*)"?', field(request, "Authorization") or ""))
        assert given["algorithm"] == "AKAv1-MD5"
        ha1 = md5(given["username"].encode(), b"ims.test", bytes.fromhex(RES))
        ha2 = md5(b"REGISTER", given["uri"].encode())
        expected = md5(ha1, NONCE.encode(), given["nc"].encode(), given["cnonce"].encode(), b"auth", ha2)
        assert given["response"].encode() == expected
    assert K not in written and OPC not in written, "keys are kept nowhere"


def test_a_challenge_of_another_network_is_said_to_be_one(tmp_path: Path) -> None:
    other = base64.b64encode(bytes(16) + bytes.fromhex(AUTN)).decode()
    challenge = f'WWW-Authenticate: Digest realm="ims.test", nonce="{other}", algorithm=AKAv1-MD5, qop="auth"'
    scenario = {
        "aka": {"k": K, "opc": OPC},
        "steps": [{"send": {"method": "REGISTER"}}, {"expect": {"status": 200}}],
    }
    with peer(lambda _: f"SIP/2.0 401 Unauthorized\n{challenge}") as (port, came):
        code, written = play(port, scenario, tmp_path)
    assert code == 99 and not any(field(one, "Authorization") for one in came)
    assert "AUTN of the nonce was not made with this K and OP" in written
    assert K not in written and OPC not in written


@pytest.mark.parametrize(
    ("scenario", "said"),
    [
        ({"aka": {"k": K}}, "op and opc"),
        ({"aka": {"k": "12", "opc": OPC}}, "32 hexadecimal digits"),
        ({"aka": {"k": {"env": "NO_SUCH_WORD"}, "opc": OPC}}, "NO_SUCH_WORD"),
        ({"identity": {"key": "hidden-key", "x5u": "https://a.test/b"}}, "P-256"),
        ({"identity": "A"}, "identity"),
    ],
)
def test_what_is_wrong_is_said_without_the_secret(
    scenario: dict[str, Any], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    steps = [{"send": {"method": "OPTIONS"}}, {"expect": {"status": 200}}]
    code, _ = play(9, scenario | {"steps": steps}, tmp_path)
    err = capsys.readouterr().err
    assert code == 104 and said in err, err
    assert "hidden-key" not in err and OPC not in err and K not in err
