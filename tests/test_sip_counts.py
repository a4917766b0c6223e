"""Thousands of calls with SIPp, both ways, and the messages of a load as tshark counts them."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
from collections import Counter

import pytest
from lab import Lab, root, tshark, until
from ports import free_port
from test_sipp_import import built_in, counted, load, sipp

pytestmark = pytest.mark.skipif(not shutil.which("sipp"), reason="sipp is not installed")
CALLS = 6000
PACE = 300
"""Calls a second."""


@pytest.mark.full
@pytest.mark.limit(300)
def test_thousands_of_calls_to_sipp_are_all_completed(lab: Lab) -> None:
    port, pace = (
        free_port(),
        ("--rate", f"{PACE}/s", "--arrival", "constant", "--duration", f"{CALLS // PACE}s"),
    )
    with sipp(lab, "-sn", "uas", "-i", "127.0.0.1", "-p", str(port)) as statistics:
        count = load(lab, port, built_in(lab, "uac"), *pace)
    assert count["session_requests"] == count["sessions_completed"]
    found = counted(statistics)
    assert found == {
        "TotalCallCreated": count["session_requests"],
        "SuccessfulCall": count["session_requests"],
        "FailedCall": 0,
    }
    # all but those that a busy machine did not begin
    assert count["session_requests"] > CALLS / 2


@pytest.mark.full
@pytest.mark.limit(300)
def test_thousands_of_calls_of_sipp_are_all_answered(lab: Lab) -> None:
    port = free_port()
    child = lab.start("sip", "serve", "uas", "--listen", f"127.0.0.1:{port}", "--json")
    assert child.stderr
    child.stderr.readline()
    caller = ("-sn", "uac", "-i", "127.0.0.1", "-p", str(free_port()), "-r", str(PACE), "-m", str(CALLS))
    with sipp(lab, *caller, f"127.0.0.1:{port}") as statistics:
        until(lambda: sum(counted(statistics)[one] for one in ("SuccessfulCall", "FailedCall")) >= CALLS, 240)
    child.send_signal(signal.SIGINT)
    done = lab.wait(child)
    assert counted(statistics) == {"TotalCallCreated": CALLS, "SuccessfulCall": CALLS, "FailedCall": 0}
    assert json.loads(done.out)["counters"]["calls_answered"] == CALLS


@root
@pytest.mark.drawn
def test_messages_of_calls_are_those_that_tshark_reads(lab: Lab) -> None:
    port = free_port()
    with sipp(lab, "-sn", "uas", "-i", "127.0.0.1", "-p", str(port)):
        words = (
            "sip",
            "load",
            f"sip:127.0.0.1:{port}",
            "--scenario",
            "call",
            "--hold",
            "300ms",
            "--warmup",
            "0s",
        )
        done = lab.run(*words, "--rate", "30/s", "--duration", "4s", "--quiet", "--capture")
    assert done.code in (0, 90), done.text
    assert done.folder
    own = done.trial.groups[0].total.own
    # a port of its own is not known as one of SIP
    text = ["tshark", "-n", "-r", str(done.folder / "capture.pcapng"), "-d", f"udp.port=={port},sip"]
    text += ["-Y", f"sip and udp.port == {port}", "-T", "fields", "-e", "sip.Method", "-e", "sip.Status-Code"]
    seen = Counter(subprocess.run(text, capture_output=True, text=True, check=True).stdout.splitlines())
    calls = own["sessions_completed"]
    assert calls == own["session_requests"] > 20
    again = {one: own[f"{one}_retransmissions"] for one in ("invite", "bye")}
    assert (seen["INVITE\t"], seen["BYE\t"]) == (calls + again["invite"], calls + again["bye"])
    if not any(again.values()):
        # a request that is repeated may have its response repeated
        assert (seen["ACK\t"], seen["\t180"], seen["\t200"]) == (calls, calls, 2 * calls)
    assert set(seen) == {"INVITE\t", "ACK\t", "BYE\t", "\t180", "\t200"}
    assert tshark(done.folder / "capture.pcapng", "_ws.malformed", "frame.number") == []
