"""Presets in which netdyno plays every party: each against Kamailio, or servers of ours, which count the same."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from lab import Done, Lab, root
from sip_lab import SERVER, dut, experiment, group, moved, options, patient

from netdyno.sip import parties


def played(lab: Lab, document: dict[str, Any], **settings: Any) -> Done:
    """A profile measured against Kamailio; it must pass."""
    made = experiment(patient(document), {"server": dut("kamailio", **settings)})
    done = lab.run("run", lab.write("sip.json", json.dumps(made)), "--quiet")
    assert done.code == 0, done.text
    return done


def own(done: Done, name: str) -> Any:
    return group(done, name).total.own


def challenged(lab: Lab) -> None:
    done = played(lab, parties.auth_call(options(hold=0.2)), call_auth=True)
    count = own(done, "callers")
    assert count["challenges"] == count["session_requests"] == count["sessions_completed"] > 10
    assert moved(done, "server", "sl_407_replies") >= count["challenges"]


def busy(lab: Lab) -> None:
    done = played(lab, parties.busy(options()))
    count = own(done, "callers")
    assert count["session_requests"] == own(done, "callees")["calls_received"] > 10
    # a busy callee was reached (RFC 6076 section 4.7)
    assert count["session_requests_effective"] == count["session_requests"]
    assert count["sessions_answered"] == 0


def unanswered(lab: Lab) -> None:
    done = played(lab, parties.no_answer(options(hold=0.3)))
    count = own(done, "callers")
    assert count["session_requests"] == own(done, "callees")["calls_received"] > 10
    assert moved(done, "server", "core_rcv_requests_cancel") >= count["session_requests"]
    assert count["sessions_answered"] == 0


def forked(lab: Lab) -> None:
    done = played(lab, parties.forked_call(options(hold=0.2, ring=0.8)), fork="parallel")
    calls = own(done, "callers")["session_requests"]
    assert own(done, "callers")["sessions_completed"] == calls > 10
    rung = [own(done, name)["calls_received"] for name in ("callees", "second")]
    assert rung == [calls, calls]
    assert (own(done, "callees")["answers_acknowledged"], own(done, "second")["answers_acknowledged"]) == (
        calls,
        0,
    )


def transferred(lab: Lab) -> None:
    done = played(lab, parties.transfer(options(hold=0.2)))
    calls = own(done, "callers")["session_requests"]
    assert calls > 10
    # the referred callee calls the third party; the server saw a REFER and a NOTIFY of each
    referred = own(done, "callees")
    assert referred["session_requests"] == referred["sessions_completed"] == calls
    assert own(done, "transfer_targets")["calls_received"] == calls
    assert moved(done, "server", "core_rcv_requests_refer") >= calls
    assert moved(done, "server", "core_rcv_requests_notify") >= calls


def reconnected(lab: Lab) -> None:
    # users who are idle for longer than Kamailio keeps a connection: it looks at idle ones every few seconds
    document = parties.reconnect(options(f"sip:{SERVER};transport=tcp", hold=15.0, rate=5.0, duration=20.0))
    document["phases"]["warmup"] = "0s"
    done = played(lab, document, tcp_idle_seconds=1)
    count, flows = own(done, "phones"), group(done, "phones").total.flows_started
    assert count["registrations"] == count["registrations_accepted"] > flows + 10
    # each registration, the first of a user and the next one after the pause, is over a connection of its own
    assert moved(done, "server", "tcp_established") >= count["registrations"]


@root
@pytest.mark.sampled(3, of="sip-presets")
@pytest.mark.parametrize(
    "preset", [challenged, busy, unanswered, forked, transferred, reconnected], ids=lambda one: one.__name__
)
def test_a_preset_is_what_kamailio_counted(lab: Lab, preset: Callable[[Lab], None]) -> None:
    preset(lab)
