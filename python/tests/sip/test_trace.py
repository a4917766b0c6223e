"""`--trace`: messages of the first calls, and of the first that failed, and no others."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from netdyno.cli import app
from netdyno.sip.ladder import trace
from netdyno.sip.ladder.capture import read

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
        words = ["--domain", DOMAIN, "--password", "env:WORD", "--trace", "3", "--runs", str(tmp_path), *LOAD]
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
    for content in ((folder / "capture.pcapng").read_bytes(), (folder / trace.PAGE).read_bytes()):
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
    ],
)
def test_what_cannot_be_traced_is_said(
    words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert app.call(["sip", "register", *words]) == 104
    assert said in capsys.readouterr().err
