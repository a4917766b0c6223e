"""Messages through Kamailio: our counts, its own, and those that tshark reads in the capture, are the same."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest
from lab import Done, Lab, root, tshark
from sip_lab import SERVER, dut, experiment, group, moved, options, patient

from netdyno.sip import profile

pytestmark = root

WAYS = {
    "udp": (f"sip:{SERVER}", {}, True),
    "udp-shared": (f"sip:{SERVER}", {"sockets": "shared"}, True),
    "tcp": (f"sip:{SERVER};transport=tcp", {}, True),
    "udp-unchallenged": (f"sip:{SERVER}", {}, False),
}
"""URI, options, and whether Kamailio challenges registrations and calls."""


def captured(lab: Lab, document: dict[str, Any], challenged: bool) -> Done:
    """A profile measured against Kamailio, with a capture of the whole run."""
    document["phases"]["warmup"] = "0s"
    server = dut("kamailio", call_auth=challenged, register_auth=challenged)
    made = experiment(patient(document), {"server": server})
    # datagrams that leave together are in the capture as they go over the wire, each by itself
    made["legs"][0]["topology"]["links"][0]["a"]["offloads"] = {"tx-udp-segmentation": False}
    done = lab.run("run", lab.write("sip.json", json.dumps(made)), "--quiet", "--capture")
    assert done.code == 0, done.text
    return done


def read(done: Done) -> Counter[str]:
    """Requests to Kamailio by method, and final responses from it by status and method, as tshark reads them."""
    assert done.folder
    capture = done.folder / "capture.pcapng"
    assert tshark(capture, "sip and _ws.malformed", "frame.number") == []
    # a segment of TCP may have several messages
    found = Counter(
        method
        for (methods,) in tshark(capture, f"sip.Method && ip.dst == {SERVER}", "sip.Method")
        for method in methods.split(",")
    )
    answers = tshark(
        capture,
        f"sip.Status-Code >= 200 && ip.src == {SERVER}",
        "sip.Status-Code",
        "sip.CSeq.method",
    )
    for statuses, methods in answers:
        found.update(map(" ".join, zip(statuses.split(","), methods.split(","), strict=True)))
    return found


def own(done: Done, name: str) -> Any:
    return group(done, name).total.own


@pytest.mark.sampled(2)
@pytest.mark.parametrize("way", WAYS)
def test_messages_of_calls_are_those_of_kamailio_and_tshark(lab: Lab, way: str) -> None:
    uri, more, challenged = WAYS[way]
    done = captured(lab, profile.call(options(uri, hold=0.2, duration=3.0, **more)), challenged)
    seen, callers, callees = read(done), own(done, "callers"), own(done, "callees")
    calls = callers["session_requests"]
    assert calls == callers["sessions_answered"] == callers["disconnects_accepted"] > 20
    assert callers["challenges"] == (calls if challenged else 0)
    invites = calls + callers["challenges"] + callers["invite_retransmissions"]
    assert seen["INVITE"] == moved(done, "server", "core_rcv_requests_invite") == invites
    byes = callers["disconnect_requests"] + callers["bye_retransmissions"]
    assert seen["BYE"] == moved(done, "server", "core_rcv_requests_bye") == byes
    registers = sum(callees[name] for name in ("registrations", "challenges", "register_retransmissions"))
    assert seen["REGISTER"] == moved(done, "server", "core_rcv_requests_register") == registers > 0
    # Kamailio counts the ACK to a challenge, which it sent without a transaction, apart
    acknowledged = moved(done, "server", "core_rcv_requests_ack") + moved(done, "server", "sl_received_ACKs")
    assert seen["ACK"] == acknowledged
    # a final response to INVITE that came again is acknowledged again
    acks = callers["sessions_answered"] + callers["challenges"]
    assert acks <= seen["ACK"] <= acks + callers["responses_repeated"]
    for status, method, names in (
        (200, "REGISTER", ("sl_200_replies",)),
        (401, "REGISTER", ("sl_401_replies",)),
        (407, "INVITE", ("sl_407_replies",)),
    ):
        assert seen[f"{status} {method}"] == sum(moved(done, "server", name) for name in names), status
    again = callees["response_retransmissions"]
    assert moved(done, "server", "core_rcv_replies_2xx_invite") == callees["calls_received"] + again
    assert callees["calls_received"] == calls


@pytest.mark.sampled(2)
@pytest.mark.parametrize("way", WAYS)
def test_messages_of_registrations_are_those_of_kamailio_and_tshark(lab: Lab, way: str) -> None:
    uri, more, challenged = WAYS[way]
    done = captured(lab, profile.register(options(uri, keep_bindings=True, duration=3.0, **more)), challenged)
    seen, count = read(done), own(done, "phones")
    accepted = count["registrations_accepted"]
    assert count["registrations"] == accepted > 20
    assert count["challenges"] == (accepted if challenged else 0)
    registers = count["registrations"] + count["challenges"] + count["register_retransmissions"]
    assert seen["REGISTER"] == moved(done, "server", "core_rcv_requests_register") == registers
    assert seen["200 REGISTER"] == moved(done, "server", "sl_200_replies")
    assert seen["401 REGISTER"] == moved(done, "server", "sl_401_replies")
    # each response is that of a request, repeated ones included
    assert seen["200 REGISTER"] + seen["401 REGISTER"] == registers
    assert set(seen) == {"REGISTER", "200 REGISTER", *(("401 REGISTER",) if challenged else ())}
