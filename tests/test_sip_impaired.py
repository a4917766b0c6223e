"""Loads over an impaired path: loss shows as retransmissions and never as a wrong success rate, delay as it was injected."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from inconclusive import Verdict
from lab import Done, Lab, root, sh
from sip_lab import group, options, patient
from test_impair import FAR, Wan

from netdyno.sip import profile

pytestmark = [
    root,
    pytest.mark.skipif(not Path("/dev/net/tun").exists(), reason="there is no /dev/net/tun"),
]
T1 = "100ms"
"""So that a request that the path lost comes again soon."""


@contextmanager
def uas(lab: Lab, wan: Wan) -> Iterator[dict[str, Any]]:
    """Our answering server at the far end; what it counted, behind the block."""
    at = ("ip", "netns", "exec", wan.far)
    words = ("--listen", f"{FAR}:5060", "--t1", T1, "--json")
    child = lab.start("sip", "serve", "uas", *words, prefix=at)
    assert child.stderr and "uas on" in child.stderr.readline()
    counted: dict[str, Any] = {}
    try:
        yield counted
    finally:
        child.send_signal(signal.SIGINT)
        done = lab.wait(child)
    counted |= json.loads(done.out)["counters"]


def played(lab: Lab, wan: Wan, document: dict[str, Any]) -> Done:
    for one in document["groups"]:
        one["model"]["sip"]["t1"] = T1
    text = json.dumps(patient(document))
    return lab.run("run", lab.write("sip.json", text), "--quiet", prefix=("ip", "netns", "exec", wan.near))


def test_loss_is_retransmissions_and_no_failure(lab: Lab) -> None:
    """Each message that the path lost was sent again; every call succeeds, and both sides count the same ones."""
    wan = Wan(lab, "--loss", "8%", "--seed", "11")
    chosen = options(f"sip:{FAR}", callee="bob", rate=20.0, duration=6.0, warmup=0.0, hold=0.1)
    document = profile.call(chosen)
    # 64 T1 for the last message to come again
    document["phases"]["drain"] = "15s"
    with uas(lab, wan) as counted:
        done = played(lab, wan, document)
    # an answer that comes again when its caller has ended is refused by the caller's kernel
    refused = sh("ip", "netns", "exec", wan.near, "nstat", "-asz", "IcmpOutDestUnreachs")
    refusals = int(refused.split("IcmpOutDestUnreachs")[1].split()[0])
    path = wan.end()
    assert done.code == 0, done.text
    callers = group(done, "callers")
    own = callers.total.own
    calls = own["session_requests"]
    assert calls > 80 and not any(callers.total.failures.values()), callers.total.failures
    assert own["sessions_answered"] == own["sessions_completed"] == own["disconnects_accepted"] == calls
    assert [callers.indices[name] for name in ("ser", "scr")] == [1.0, 1.0]
    assert counted["calls_answered"] == counted["calls_ended"] == calls
    # what was sent is what came and what the path lost, to the message
    again = own["invite_retransmissions"] + own["bye_retransmissions"]
    lost = path["a_to_b"]["lost"], path["b_to_a"]["lost"]
    assert again > 0 and min(lost) > 5
    sent, answers = path["a_to_b"]["packets_in"], path["b_to_a"]["packets_in"]
    came = sum(counted["requests"].values()) + counted["requests_repeated"]
    # of the refusals the path may have lost some
    assert came <= sent - lost[0] <= came + refusals
    assert answers == sum(counted["responses"].values()) + counted["responses_repeated"]
    # the rest are ACKs, one for each 200 to INVITE that came
    assert sent - (calls + own["disconnect_requests"] + again) >= calls


def medians(lab: Lab, wan: Wan) -> float:
    """Median delay of an answer to OPTIONS, ns."""
    # on shared sockets an answer ends its delay by the kernel's time stamp, whenever it is read
    pace: dict[str, Any] = {"rate": 100.0, "duration": 8.0, "warmup": 1.0, "arrival": "constant"}
    chosen = options(f"sip:{FAR}", callee="", sockets="shared", **pace)
    done = played(lab, wan, profile.scenario(chosen, {"preset": "options"}, "options"))
    assert done.code == 0, done.text
    delay = group(done, "phones").delays["response"]
    assert delay.count > 700
    return float(delay.p50)


@pytest.mark.alone
def test_delay_is_measured_as_it_was_injected(lab: Lab, verdict: Verdict) -> None:
    """The median with 20 ms of delay is never less, and more by what the machine itself takes, to 100 µs."""
    found = {}
    for delay in ("0ms", "20ms"):
        wan = Wan(lab, "--back", f"delay={delay}")
        with uas(lab, wan):
            found[delay] = medians(lab, wan)
        wan.end()
        lab.clean()
    more = found["20ms"] - 20e6
    assert more >= 0, found
    # without a delay the same, and the two runs had not the same processors
    if more > found["0ms"] + 100e3:
        verdict.processors_were_free()
    assert more <= 2 * found["0ms"] + 100e3, found
