"""Keys in INFO requests (`application/dtmf-relay`): pressed and heard through our own proxy, and what fails a call."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from netdyno.cli import app
from netdyno.sip import info_keys, profile
from netdyno.sip.uri import parse

from .served import DOMAIN, server


def played(folder: Path, address: str, heard: str) -> int:
    """Callers press 1*#, callees wait for other keys perhaps."""
    options = profile.Options(
        server=parse(f"sip:{address}"),
        rate=10.0,
        users=4,
        duration=0.5,
        warmup=0.0,
        hold=1.2,
        domain=DOMAIN,
        info_keys="1*#",
    )
    document = profile.call(options)
    callees = profile.call(replace(options, info_keys=heard))["groups"][0]
    document["groups"][0] = callees
    document["validity"] = {"lateness_p99": "60s", "offered": 0.001, "starved": 1.0}
    document["thresholds"] = [one for one in document["thresholds"] if ".delay." not in one["metric"]]
    path = folder / "keys.json"
    path.write_text(json.dumps(document))
    return app.call(["run", str(path), "--quiet", "--runs", str(folder)])


@pytest.mark.parametrize(("heard", "code"), [("1*#", 0), ("1*2", 99)])
@pytest.mark.slow
def test_keys_are_heard_in_their_order_and_others_fail_the_run(tmp_path: Path, heard: str, code: int) -> None:
    with server("proxy", call_auth=False, users=[]) as served:
        assert played(tmp_path, served.address, heard) == code
    counted = served.counters["forwarded"]
    assert isinstance(counted, dict) and counted["INFO"] >= 3, counted
    if code == 0:
        assert counted["INFO"] == 3 * counted["INVITE"] == 3 * counted["BYE"], counted


@pytest.mark.slow
def test_a_server_that_refuses_info_fails_the_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with server("redirect", call_auth=False, users=[]) as served:
        words = ["--rate", "5/s", "--duration", "300ms", "--dtmf", "5", "--dtmf-mode", "info", "--hold", "1s"]
        code = app.call(["sip", "call", f"sip:{served.address}", *words, "--quiet", "--runs", str(tmp_path)])
    assert code != 0, capsys.readouterr().out


def bodies(steps: list[dict[str, Any]]) -> list[str]:
    return [one["send"]["body"] for one in steps if one.get("send", {}).get("method") == "INFO"]


def test_each_key_is_a_request_of_its_own() -> None:
    steps = info_keys.caller("5a", 2.0)
    assert bodies(steps) == ["Signal=5\r\nDuration=160\r\n", "Signal=A\r\nDuration=160\r\n"]
    pauses = [int(one["pause"].removesuffix("ms")) for one in steps if "pause" in one]
    # the call lasts as long as it is to
    assert sum(pauses) == 2000


@pytest.mark.parametrize(
    "words",
    [
        ["--dtmf", "5", "--dtmf-mode", "info", "--hold", "100ms"],
        ["--dtmf", "5", "--dtmf-mode", "info", "--hold", "5s", "--early-media"],
        ["--dtmf", "x", "--dtmf-mode", "info", "--hold", "5s"],
        ["--dtmf", "5", "--dtmf-mode", "tones", "--hold", "5s"],
    ],
)
def test_options_that_do_not_fit_are_refused(words: list[str]) -> None:
    assert app.call(["sip", "call", "sip:192.0.2.1", *words]) == 104
