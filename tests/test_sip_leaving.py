"""What a run of SIP leaves behind: no binding, no call that rings and none that is up."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from lab import Lab, root
from sip_lab import SERVER, dut, group, measured, options, patient

from netdyno.sip import profile
from netdyno.sip.server import SipServer

pytestmark = root

REGISTERED = "usrloc_registered_users"


@pytest.mark.parametrize("uri", [f"sip:{SERVER}", f"sip:{SERVER};transport=tcp", f"ws://{SERVER}:5060"])
@pytest.mark.parametrize("keeps", [False, True])
def test_no_binding_is_left_with_kamailio(lab: Lab, uri: str, keeps: bool) -> None:
    document = patient(profile.register(options(uri, keep_bindings=keeps)))
    done = measured(lab, document, server=dut("kamailio", websocket=uri.startswith("ws")))
    assert done.code == 0, done.text
    own = group(done, "phones").total.own
    registered = done.trial.dut["server"].counters_after[REGISTERED]
    if keeps:
        assert registered > 0 and own["bindings_removed"] == own["bindings_left"] == 0, own
        return
    assert (registered, own["bindings_left"]) == (0, 0), own
    # one for each user agent that registered, however often; and they are in no other figure
    assert 0 < own["bindings_removed"] <= own["registrations"], own
    assert own["registrations"] == own["registrations_accepted"] == own["challenges"], own


def served(lab: Lab, settings: dict[str, Any], document: Any) -> tuple[Any, dict[str, Any]]:
    """The group of callers of a profile that is run against our own user agent, and what that counted."""
    plain = {"listen": "127.0.0.1:0", "role": "uas", "domain": "example.net", "t1_ms": 500}
    with SipServer(plain | settings) as server:
        made = patient(document(server.address))
        done = lab.run("run", lab.write("leaving.json", json.dumps(made)), "--quiet")
        (callers,) = done.trial.groups
        return callers.total, dict(server.stop())


@pytest.mark.parametrize("transport", ["udp", "tcp"])
def test_calls_that_ring_at_the_end_are_cancelled(lab: Lab, transport: str) -> None:
    def document(address: str) -> dict[str, Any]:
        more = {"callee": "x", "password": None, "rate": 10.0}
        made = profile.call(options(f"sip:{address};transport={transport}", **more))
        made["phases"]["drain"] = "300ms"
        return made

    total, counted = served(lab, {"ring_ms": 600_000}, document)
    requests = counted["requests"]
    assert requests["CANCEL"] == requests["INVITE"] == total.own["calls_cancelled"] > 5, (counted, total.own)
    assert counted["responses"]["487"] == requests["INVITE"], counted
    assert total.own["calls_left"] == 0
    assert total.failures["unanswered"] == requests["INVITE"], "the load has its failures as before"


def test_calls_that_are_up_at_the_end_are_ended(lab: Lab, tmp_path: Path) -> None:
    steps: list[dict[str, Any]] = [
        {"send": {"method": "INVITE"}},
        {"expect": {"status": 200}},
        {"send": {"method": "ACK"}},
        {"expect": {"request": "INFO"}},
    ]

    def document(address: str) -> dict[str, Any]:
        made = profile.scenario(
            options(f"sip:{address}", callee="x", rate=10.0), {"steps": steps}, "scenario"
        )
        made["phases"]["drain"] = "300ms"
        return made

    total, counted = served(lab, {}, document)
    requests = counted["requests"]
    assert requests["BYE"] == requests["INVITE"] == total.own["calls_released"] > 5, (counted, total.own)
    assert total.own["calls_left"] == 0 and total.own["disconnect_requests"] == 0


def test_what_cannot_be_taken_back_is_told(lab: Lab) -> None:
    """A registrar that rejects each REGISTER of the first run's end."""

    def document(address: str) -> dict[str, Any]:
        return profile.register(options(f"sip:{address}", rate=10.0))

    total, counted = served(lab, {"error_share": 0.5, "error_status": 500, "seed": 4}, document)
    own = total.own
    assert own["bindings_left"] > 0 and own["bindings_removed"] > 0, own
    assert own["bindings_left"] == counted["bindings"], (own, counted)
    # a rejection at the end is no failed registration
    assert own["registrations"] == own["registrations_accepted"] + own["registrations_ineffective"], own


def test_no_more_calls_are_up_than_may_be(lab: Lab) -> None:
    def document(address: str) -> dict[str, Any]:
        more = {"callee": "x", "password": None, "rate": 50.0, "hold": 0.5, "max_calls": 4}
        return profile.call(options(f"sip:{address}", **more))

    total, counted = served(lab, {}, document)
    assert total.flows_suppressed > 10, total
    assert total.flows_completed == total.flows_started == total.flows_intended == counted["calls_ended"]
    assert counted["requests"]["INVITE"] == total.flows_started
