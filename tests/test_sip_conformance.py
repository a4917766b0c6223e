"""The conformance suite against Kamailio, configured as near to RFC 3261 as it comes."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from lab import NETDYNOD
from ports import free_port

from netdyno.sip.conformance import suite
from netdyno.sip.dut.kamailio import _modules

pytestmark = [
    pytest.mark.skipif(not shutil.which("kamailio"), reason="kamailio is not installed"),
    pytest.mark.limit(400),
]

CONFIGURATION = Path(__file__).with_name("kamailio_conformance.cfg")
DEVIATIONS = {
    "R13": "the registrar does not look at Require",
    "P21": "retransmissions of INVITE are at most T2 apart, like those of other requests",
    "D07": "a Contact that is the address of record itself is among those of the 302",
    "T-dblreq": "a datagram with bytes behind its body is refused with 400",
}
"""What Kamailio 5.6 does otherwise than RFC 3261 and RFC 4475."""
WARNED = {"P07": "a Request-URI of an unknown scheme is refused as malformed, with 400"}
"""What RFC 3261 recommends otherwise."""
UNTOLD = {"R06": "Kamailio raises a short expiry to its minimum"}
"""Tests that say nothing of Kamailio."""


@pytest.fixture(autouse=True)
def daemon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NETDYNO_DAEMON", NETDYNOD)


@contextmanager
def kamailio(folder: Path, *definitions: str) -> Iterator[str]:
    """Its address."""
    port = free_port()
    text = CONFIGURATION.read_text().replace("PORT", str(port))
    path = folder / "kamailio.cfg"
    path.write_text(text.replace("MODULES", str(_modules("kamailio"))))
    defined = [word for one in definitions for word in ("-A", one)]
    command = ["kamailio", "-f", str(path), "-DD", "-E", "-Y", str(folder), *defined]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        _answers(port, process, folder / "log")
        yield f"127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait()


def _answers(port: int, process: subprocess.Popen[bytes], log: Path) -> None:
    until = time.monotonic() + 30
    while time.monotonic() < until:
        assert process.poll() is None, log.read_text()
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            time.sleep(0.05)
        else:
            return
    pytest.fail(log.read_text())


def verdicts(address: str, role: str, transport: str = "udp", only: list[str] | None = None) -> suite.Report:
    alice, bob = suite.Account("alice", "secret"), suite.Account("bob", "secret")
    target = suite.Target(address, transport, "example.test", alice, bob, nonce_lifetime=2)
    return suite.run(target, suite.chosen([role], only or []))


def untrue(report: suite.Report) -> dict[str, tuple[str, str]]:
    """Tests with another verdict than is known of Kamailio."""
    known = dict.fromkeys(DEVIATIONS, "fail") | dict.fromkeys(WARNED, "warning")
    known |= dict.fromkeys(UNTOLD, "inconclusive")
    found = {one.id: (one.verdict, one.reason) for one in report.tests}
    return {test: one for test, one in found.items() if one[0] != known.get(test, "pass")}


@pytest.mark.sampled(2, of="SIP conformance")
@pytest.mark.parametrize("role", ["registrar", "proxy"])
def test_a_registrar_and_proxy(tmp_path: Path, role: str) -> None:
    with kamailio(tmp_path) as address:
        assert untrue(verdicts(address, role)) == {}


@pytest.mark.sampled(2, of="SIP conformance")
def test_a_redirect_server(tmp_path: Path) -> None:
    with kamailio(tmp_path, "REDIRECT") as address:
        assert untrue(verdicts(address, "redirect")) == {}


@pytest.mark.sampled(2, of="SIP conformance")
def test_over_tcp(tmp_path: Path) -> None:
    with kamailio(tmp_path) as address:
        assert untrue(verdicts(address, "proxy", "tcp", ["R01", "R08", "P01", "P13", "P18", "P19"])) == {}


def test_messages_of_rfc_4475(tmp_path: Path) -> None:
    with kamailio(tmp_path) as address:
        report = verdicts(address, "torture")
    failed = {one.id for one in report.tests if one.verdict == "fail"}
    assert failed == {"T-dblreq"}, json.dumps([one.reason for one in report.tests])
    # requests that it sends on to a domain that does not answer
    assert report.count("inconclusive") <= 10
