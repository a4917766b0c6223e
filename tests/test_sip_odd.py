"""SIP servers that are right and odd are not blamed, and registrars that register nothing do not pass: one run against all of them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest
from failing import sip_odd
from lab import PATIENT, Lab
from sip_lab import group

pytestmark = pytest.mark.slow


def phones(name: str, server: str, preset: str, **more: Any) -> dict[str, Any]:
    model = {"scenario": {"preset": preset}, "password": "secret", "callee": "bob", "timeout": "3s"} | more
    # nothing begins near the end: what is under way then is cut short
    load = {
        "open": {"rate": "20/s", "stages": [{"over": "500ms", "rate": "20/s"}, {"over": "0s", "rate": "0/s"}]}
    }
    return {"name": name, "target": server, "devices": 16, "model": {"sip": model}, "load": load}


def test_odd_servers_are_judged_by_what_they_do(lab: Lab) -> None:
    shared, held = {"sockets": "shared"}, {"hold": "1s"}
    groups = [
        phones("register", "challenged", "register"),
        phones("call", "challenged", "call"),
        phones("call-shared", "challenged", "call", **shared),
        phones("unbound", "unbound", "register"),
        phones("ended", "ended", "register"),
        phones("hung-up", "hangs_up", "call", hold="5s"),
        phones("hung-up-shared", "hangs_up", "call", hold="5s", **shared),
        phones("crossed", "crosses", "call"),
        phones("closed", "closes", "call", **held),
    ]
    with sip_odd.servers() as ports:
        targets = {name: f"sip://127.0.0.1:{port}" for name, port in ports.items()}
        targets["closes"] = targets["closes"].replace("sip:", "sip+tcp:")
        document = {
            "name": "odd", "targets": targets, "groups": groups, "validity": PATIENT, "thresholds": [],
            "phases": {"warmup": "0s", "measure": "2s", "drain": "4s"},
        }  # fmt: skip
        done = lab.run("run", lab.write("odd.json", json.dumps(document)), "--quiet")
        seen = dict(sip_odd.SEEN)

    def own(name: str) -> Mapping[str, int]:
        total = group(done, name).total
        refused = name in ("unbound", "ended")
        assert total.flows_started > 5, (name, done.text)
        assert total.flows_completed == (0 if refused else total.flows_started), (name, done.text, seen)
        return total.own

    for name in ("register", "call", "call-shared"):
        counts = own(name)
        assert counts["challenges"] == 2 * group(done, name).total.flows_started, (name, counts)
    # each ACK has the credentials of its INVITE
    answered = own("call")["sessions_answered"] + own("call-shared")["sessions_answered"]
    assert seen["challenged ACK"] == answered, seen
    for name, why in (("unbound", "without a binding"), ("ended", "has ended")):
        counts = own(name)
        assert (counts["registrations_accepted"], counts["registrations_ineffective"]) == (
            0,
            counts["registrations"],
        )
        assert why in done.text, done.text
    for name in ("hung-up", "hung-up-shared"):
        counts = own(name)
        # where the load is over the caller hangs up first
        ended = counts["calls_ended_by_callee"]
        assert ended + counts["disconnect_requests"] == counts["sessions_completed"], counts
        assert counts["sessions_completed"] == counts["session_requests"] < 2 * ended, counts
    for name in ("crossed", "closed"):
        counts = own(name)
        assert counts["sessions_completed"] == counts["session_requests"], (name, counts)
        assert counts["calls_ended_by_callee"] == 0, (name, counts)
    assert seen["closes BYE"] == seen["closes INVITE"] == own("closed")["session_requests"], seen
