"""Thousands of calls with SIPp, both ways, and the messages of a load as tshark counts them."""

from __future__ import annotations

import csv
import json
import shutil
import signal
import subprocess
from collections import Counter

import pytest
from inconclusive import Verdict
from lab import Lab, root, tshark, until
from ports import free_port
from test_sipp_import import built_in, counted, sipp

pytestmark = pytest.mark.skipif(not shutil.which("sipp"), reason="sipp is not installed")
CALLS = 6000
PACE = 300
"""Calls a second."""


def messages(lab: Lab, side: str) -> dict[str, int]:
    """Messages that SIPp counted at its end, by its own names, such as `0_INVITE_Sent`; those that it never saw are left out."""
    (path,) = lab.base.glob(f"{side}_*_counts.csv")
    with path.open() as file:
        last = list(csv.DictReader(file, delimiter=";"))[-1]
    kinds = ("_Sent", "_Recv", "_Retrans", "_Timeout", "_Unexp")
    return {name: int(value) for name, value in last.items() if name.endswith(kinds) and int(value or 0)}


@pytest.mark.full
@pytest.mark.limit(300)
def test_thousands_of_calls_to_sipp_are_all_completed(lab: Lab, verdict: Verdict) -> None:
    port = free_port()
    pace = ("--rate", f"{PACE}/s", "--arrival", "constant", "--duration", f"{CALLS // PACE}s")
    with sipp(lab, "-sn", "uas", "-i", "127.0.0.1", "-p", str(port), "-trace_counts") as statistics:
        words = ("--scenario", built_in(lab, "uac"), "--warmup", "0s", "--quiet")
        done = lab.run("sip", "load", f"sip:127.0.0.1:{port}", *words, *pace)
    assert done.code in (0, 90), done.text
    [phones] = done.trial.groups
    count = phones.total.own
    assert not any(phones.total.failures.values()), phones.total.failures
    assert phones.total.flows_intended == CALLS
    calls = count["session_requests"]
    assert calls == count["sessions_answered"] == count["sessions_completed"] == count["disconnects_accepted"]
    assert counted(statistics) == {"TotalCallCreated": calls, "SuccessfulCall": calls, "FailedCall": 0}
    seen = messages(lab, "uas")
    again = ("0_INVITE_Retrans", "4_BYE_Retrans")
    sent = (count["invite_retransmissions"], count["bye_retransmissions"])
    assert tuple(seen.pop(name, 0) for name in again) == sent
    if sent == (0, 0) and not count["responses_repeated"]:
        names = ("0_INVITE_Recv", "1_180_Sent", "2_200_Sent", "3_ACK_Recv", "4_BYE_Recv", "5_200_Sent")
        assert seen == dict.fromkeys(names, calls)
    if calls < CALLS:
        # some that were due were never begun
        verdict.valid(done.trial.validity.reasons)
    assert calls == CALLS


@pytest.mark.full
@pytest.mark.limit(300)
def test_thousands_of_calls_of_sipp_are_all_answered(lab: Lab) -> None:
    port = free_port()
    child = lab.start("sip", "serve", "uas", "--listen", f"127.0.0.1:{port}", "--json")
    assert child.stderr
    child.stderr.readline()
    words = ("-sn", "uac", "-i", "127.0.0.1", "-p", str(free_port()), "-r", str(PACE), "-m", str(CALLS))
    with sipp(lab, *words, "-trace_counts", f"127.0.0.1:{port}") as statistics:
        until(lambda: sum(counted(statistics)[one] for one in ("SuccessfulCall", "FailedCall")) >= CALLS, 240)
    child.send_signal(signal.SIGINT)
    done = lab.wait(child)
    assert counted(statistics) == {"TotalCallCreated": CALLS, "SuccessfulCall": CALLS, "FailedCall": 0}
    seen, counters = messages(lab, "uac"), json.loads(done.out)["counters"]
    assert counters["calls_answered"] == CALLS
    assert counters["calls_ended"] == CALLS, counters
    names = ("0_INVITE_Sent", "4_200_Recv", "5_ACK_Sent", "7_BYE_Sent", "8_200_Recv")
    assert {name: seen.get(name) for name in names} == dict.fromkeys(names, CALLS)
    assert not [name for name in seen if name.endswith(("_Timeout", "_Unexp"))], seen


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
