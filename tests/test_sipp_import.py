"""SIPp's own built-in scenarios, imported and played against SIPp itself: what both count is the same."""

from __future__ import annotations

import csv
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from lab import NETDYNOD, Lab, until
from ports import free_port

from netdyno.sip.server import SipServer

pytestmark = pytest.mark.skipif(not shutil.which("sipp"), reason="sipp is not installed")


def built_in(lab: Lab, name: str) -> str:
    """A scenario that SIPp has in itself, as XML."""
    text = subprocess.run(["sipp", "-sd", name], capture_output=True, text=True, check=False).stdout
    path = lab.base / f"{name}.xml"
    path.write_text(text[text.index("<?xml") :])
    return str(path)


@contextmanager
def sipp(lab: Lab, *arguments: str) -> Iterator[Path]:
    """SIPp, and the file of its statistics; it ends its calls and itself behind the block."""
    statistics = lab.base / "statistics.csv"
    command = ["sipp", *arguments, "-nostdin", "-trace_stat", "-stf", str(statistics), "-fd", "1"]
    child = lab.spawn(*command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        until(statistics.exists, 20, "SIPp has not begun")
        yield statistics
        child.send_signal(signal.SIGUSR1)
        child.wait(60)
    finally:
        child.kill()
        child.wait()


def counted(statistics: Path) -> dict[str, int]:
    """Calls of SIPp at its end."""
    with statistics.open() as file:
        last = list(csv.DictReader(file, delimiter=";"))[-1]
    names = ("TotalCallCreated", "SuccessfulCall(C)", "FailedCall(C)")
    return {name.removesuffix("(C)"): int(last[name]) for name in names}


def load(lab: Lab, port: int, scenario: str, *more: str) -> Any:
    uri = f"sip:127.0.0.1:{port}"
    words = ("--rate", "10/s", "--duration", "2s", "--warmup", "0s", "--quiet", *more)
    done = lab.run("sip", "load", uri, "--scenario", scenario, *words)
    assert done.code in (0, 90), done.text
    [phones] = done.trial.groups
    return phones.total.own


@pytest.mark.parametrize("name", ["uac", "regexp"])
def test_a_caller_of_sipp_calls_sipp(lab: Lab, name: str) -> None:
    port = free_port()
    with sipp(lab, "-sn", "uas", "-i", "127.0.0.1", "-p", str(port)) as statistics:
        count = load(lab, port, built_in(lab, name))
    assert count["session_requests"] == count["sessions_completed"] > 10
    found = counted(statistics)
    assert found["SuccessfulCall"] == found["TotalCallCreated"] == count["sessions_completed"]
    assert found["FailedCall"] == 0


def test_an_answering_side_of_sipp_is_called_by_sipp(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """Our user agents play SIPp's `uas` behind our proxy, and SIPp's own `uac` calls one of them."""
    monkeypatch.setenv("NETDYNO_DAEMON", NETDYNOD)
    with SipServer({"listen": "127.0.0.1:0", "domain": "127.0.0.1", "role": "proxy"}) as server:
        words = ("--user", "service", "--users", "1", "--rate", "1/s", "--duration", "300s", "--warmup", "0s")
        uri = f"sip:{server.address}"
        child = lab.start("sip", "load", uri, "--scenario", built_in(lab, "uas"), *words, "--quiet")
        until(lambda: server.counters.get("bindings"), 120, "nobody has registered")
        calls = [
            "-sn",
            "uac",
            "-i",
            "127.0.0.1",
            "-p",
            str(free_port()),
            "-m",
            "20",
            "-r",
            "10",
            server.address,
        ]
        with sipp(lab, *calls) as statistics:
            until(lambda: counted(statistics)["SuccessfulCall"] >= 20, 120, "the calls are not over")
        # it waits for further calls
        child.send_signal(signal.SIGINT)
        done = lab.wait(child)
    found = counted(statistics)
    assert (found["SuccessfulCall"], found["FailedCall"]) == (20, 0), done.text
    [phones] = done.trial.groups
    assert phones.total.own["calls_received"] == 20
    assert server.counters["calls_answered"] == 20
