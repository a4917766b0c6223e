"""SIPp's own built-in scenarios, imported and played against SIPp itself: what both count is the same."""

from __future__ import annotations

import csv
import re
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

from netdyno.sip.manual.compose import Draft, request
from netdyno.sip.manual.exchange import Exchange
from netdyno.sip.manual.wire import Wire
from netdyno.sip.server import SipServer
from netdyno.sip.uri import parse

pytestmark = [
    pytest.mark.skipif(not shutil.which("sipp"), reason="sipp is not installed"),
    pytest.mark.sampled(3, of="sipp"),
]


def built_in(lab: Lab, name: str) -> str:
    """A scenario that SIPp has in itself, as XML."""
    text = subprocess.run(["sipp", "-sd", name], capture_output=True, text=True, check=False).stdout
    path = lab.base / f"{name}.xml"
    path.write_text(text[text.index("<?xml") :])
    return str(path)


@contextmanager
def sipp(lab: Lab, *arguments: str, name: str = "statistics.csv") -> Iterator[Path]:
    """SIPp, and the file of its statistics; it ends its calls and itself behind the block."""
    statistics = lab.base / name
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


def quicker(scenario: str) -> str:
    """The same with pauses of 100 ms in place of seconds."""
    path = Path(scenario)
    path.write_text(re.sub(r'(<pause milliseconds=")\d+', r"\g<1>100", path.read_text()))
    return scenario


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
            # one phone has one call at a time
            "-l",
            "1",
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


def test_a_caller_that_registers_and_branches_calls_sipp(lab: Lab) -> None:
    """SIPp's `branchs` answers a REGISTER and an INVITE with one Call-ID alone; it rejects those not from `ua2`."""
    port = free_port()
    with sipp(lab, "-sn", "branchs", "-i", "127.0.0.1", "-p", str(port)) as statistics:
        # a binding that is removed has another Call-ID, and SIPp would wait for its call
        count = load(lab, port, quicker(built_in(lab, "branchc")), "--keep-bindings")
    assert count["registrations_accepted"] == count["session_requests"] > 10
    # a call that was rejected is ended all the same
    assert count["disconnects_accepted"] == count["session_requests"]
    found = counted(statistics)
    assert found["SuccessfulCall"] == found["TotalCallCreated"] == count["session_requests"]


@contextmanager
def listening(lab: Lab, scenario: str, port: int) -> Iterator[list[Any]]:
    """User agents that are called directly; what they counted, behind the block."""
    words = (
        "--listen",
        f"127.0.0.1:{port}",
        "--users",
        "20",
        "--duration",
        "300s",
        "--warmup",
        "0s",
        "--quiet",
    )
    child = lab.start("sip", "load", "sip:127.0.0.1", "--scenario", scenario, *words)
    found: list[Any] = []
    try:
        lab.sampled()
        yield found
    finally:
        child.send_signal(signal.SIGINT)
        done = lab.wait(child)
    # interrupted
    assert done.code == 105, done.text
    found += [group.total.own for group in done.trial.groups]


def test_an_answering_side_that_branches_is_called_by_sipp(lab: Lab) -> None:
    port, caller = free_port(), quicker(built_in(lab, "branchc"))
    words = (
        "-sf",
        caller,
        "-i",
        "127.0.0.1",
        "-p",
        str(free_port()),
        "-m",
        "20",
        "-r",
        "20",
        f"127.0.0.1:{port}",
    )
    with listening(lab, built_in(lab, "branchs"), port) as found, sipp(lab, *words) as statistics:
        until(lambda: counted(statistics)["SuccessfulCall"] >= 20, 60, "the calls are not over")
    assert (counted(statistics)["SuccessfulCall"], counted(statistics)["FailedCall"]) == (20, 0)
    # calls 2 and 20 are from `ua2…`
    [count] = found
    assert (count["calls_received"], count["answers_acknowledged"]) == (20, 2)


def test_any_request_is_answered(lab: Lab) -> None:
    port, uri = free_port(), "sip:anybody@127.0.0.1"
    with listening(lab, built_in(lab, "ooc_default"), port):
        wire = Wire(parse(f"{uri}:{port}"), 5.0)
        for method in ("OPTIONS", "INFO", "MESSAGE"):
            asked = request(Draft(method, uri, "sip:a@127.0.0.1", uri), "udp", wire.local)
            answer = Exchange(wire).run(asked)
            assert answer and answer.status == 200, method
        wire.close()


def test_both_controllers_of_3pcc_in_one_user_agent(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """The offer of SIPp's `3pcc-A` goes to SIPp's `3pcc-B`, and its answer back, through our proxy."""
    monkeypatch.setenv("NETDYNO_DAEMON", NETDYNOD)
    ports, steps = (free_port(), free_port()), str(lab.base / "3pcc.yaml")
    to = [word for port in ports for word in ("--to", f"sip:service@127.0.0.1:{port}")]
    first, second = (quicker(built_in(lab, name)) for name in ("3pcc-C-A", "3pcc-C-B"))
    lab.good("sip", "import", first, "--with", second, *to, "--output", steps)
    peers = [
        ("-sn", name, "-i", "127.0.0.1", "-p", str(port))
        for name, port in zip(("3pcc-A", "3pcc-B"), ports, strict=True)
    ]
    with (
        SipServer({"listen": "127.0.0.1:0", "domain": "example.net", "role": "proxy"}) as server,
        sipp(lab, *peers[0]) as at_first,
        sipp(lab, *peers[1], name="other.csv") as at_second,
    ):
        count = load(lab, int(server.address.rpartition(":")[2]), steps)
    assert count["session_requests"] == count["sessions_completed"] > 20
    for statistics in (at_first, at_second):
        found = counted(statistics)
        assert found["SuccessfulCall"] == found["TotalCallCreated"] == count["session_requests"] // 2


def test_a_caller_with_a_recording_is_heard_by_sipp(lab: Lab) -> None:
    """SIPp's `uac_pcap` plays an A-law recording; SIPp's `uas` echoes it with `-rtp_echo`."""
    port = free_port()
    words = ("-sn", "uas", "-i", "127.0.0.1", "-p", str(port), "-rtp_echo", "-mp", str(free_port()))
    with sipp(lab, *words):
        count = load(lab, port, quicker(built_in(lab, "uac_pcap")))
    assert count["audio_calls"] == count["sessions_completed"] > 10
    assert count["rtp_received"] > count["audio_calls"]


@pytest.mark.parametrize("name", ["3pcc-A", "3pcc-B"])
def test_a_called_party_of_3pcc_is_called_by_sipp(lab: Lab, name: str) -> None:
    port = free_port()
    words = ("-sn", "uac", "-i", "127.0.0.1", "-p", str(free_port()), "-m", "10", f"127.0.0.1:{port}")
    with listening(lab, built_in(lab, name), port) as found, sipp(lab, *words) as statistics:
        until(lambda: counted(statistics)["SuccessfulCall"] >= 10, 60, "the calls are not over")
    [count] = found
    assert count["calls_received"] == count["answers_acknowledged"] == 10
