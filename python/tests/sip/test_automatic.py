"""`netdyno sip automatic`: conformance, the highest rates, and the reports, by one command."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from netdyno.cli import app
from netdyno.sip.server import SipServer

pytestmark = pytest.mark.slow

QUICK = (
    "--rate",
    "20/s",
    "--duration",
    "1s",
    "--warmup",
    "0s",
    "--sessions",
    "0",
    "--no-baseline",
    "--repeat",
    "1",
)
USERS = ("--domain", "example.test", "--password", "secret", "--resolution", "0.5")
# those that wait for timers of seconds
WAIVED = "P21,P22"


def proxy(fault: str | None = None) -> SipServer:
    settings = {"listen": "127.0.0.1:0", "role": "proxy", "domain": "example.test", "password": "secret"}
    return SipServer(settings | {"call_auth": True, "t1_ms": 100, "fault": fault})


def test_conformance_then_both_searches_then_reports(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    keep = tmp_path / "kept"
    with proxy() as one:
        words = ["sip", "automatic", f"sip:{one.address}", *QUICK, *USERS, "--waive", WAIVED]
        code = app.call([*words, "--keep", str(keep), "--runs", str(tmp_path / "runs")])
    said = capsys.readouterr()
    # 90 where the machine was too busy for a valid trial
    assert code in (0, 90), said
    document = json.loads((keep / "automatic.json").read_text())
    verdicts = {one["verdict"] for one in document["conformance"]["tests"]}
    assert "pass" in verdicts and "fail" not in verdicts
    assert list(document["searches"]) == ["register", "call"]
    for kind, about in document["searches"].items():
        assert (keep / f"{kind}.html").stat().st_size > 10_000
        assert (Path(about["folder"]) / "result.json").exists()
        if code == 0:
            # less than its end where the machine was busy
            assert 0 < about["finding"]["load"] <= 20
    tests = ET.fromstring((keep / "conformance.xml").read_text())
    assert tests.get("failures") == "0" and int(tests.get("tests") or 0) > 30
    assert "R01" in (keep / "conformance.html").read_text()
    assert "highest rate, register" in said.out and "highest rate, call" in said.out


def test_a_server_that_does_not_conform_is_not_loaded(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    keep = tmp_path / "kept"
    with proxy("R07") as one:
        words = ["sip", "automatic", f"sip:{one.address}", *QUICK, *USERS, "--waive", WAIVED]
        assert app.call([*words, "--keep", str(keep), "--runs", str(tmp_path / "runs")]) == 99
    assert "no load" in capsys.readouterr().err
    assert not (tmp_path / "runs").exists()
    assert json.loads((keep / "automatic.json").read_text())["searches"] == {}
    assert "R07" in (keep / "conformance.html").read_text()


def test_a_user_in_the_uri_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert app.call(["sip", "automatic", "sip:bob@127.0.0.1"]) == 104
    assert "callees of its own" in capsys.readouterr().err
