"""User agents that share a socket: against Kamailio, against each other, and against strangers."""

from __future__ import annotations

import json
import socket
import threading
from pathlib import Path
from typing import Any

import pytest
from lab import Lab, Wire, root
from sip_lab import patient
from test_sip import PATIENT, SERVER, group, measured, moved, options

from netdyno.sip import profile
from netdyno.system import namespace

pytestmark = root

CALLEE = 5070


def test_registrations_on_one_socket_are_what_kamailio_counted(lab: Lab) -> None:
    document = profile.register(options(f"sip:{SERVER}", sockets="shared", keep_bindings=True))
    document["phases"]["warmup"] = "0s"
    done = measured(lab, document)
    assert done.code == 0, done.text
    count = group(done, "phones").total.own
    assert count["registrations"] == count["registrations_accepted"] == count["challenges"] > 20
    sent = 2 * count["registrations"] + count["register_retransmissions"]
    assert moved(done, "core_rcv_requests_register") == sent


def test_calls_on_two_sockets_are_what_kamailio_counted(lab: Lab) -> None:
    document = patient(profile.call(options(f"sip:{SERVER}", hold=0.2, sockets="shared")))
    done = measured(lab, document, role="proxy", call_auth=True)
    assert done.code == 0, done.text
    callers, callees = group(done, "callers"), group(done, "callees")
    count = callers.measured.own
    assert count["session_requests"] == count["sessions_answered"] == count["sessions_completed"] > 20
    assert callers.indices["scr"] == 1.0
    for one in (callers, callees):
        assert one.total.own["unrelated_messages"] == 0
    assert callees.delays["answer_signal"].count > 20
    assert moved(done, "usrloc_registered_users") == 0


def direct(rate: float = 50.0, devices: int = 20, hold: str = "50ms") -> dict[str, Any]:
    """Callers who call callees at their address, without a server between; both on one worker."""

    def side(name: str, port: int, model: dict[str, Any], **more: Any) -> dict[str, Any]:
        sip = {"sockets": "shared", "domain": "example.net"} | model
        target = f"sip://127.0.0.1:{port}"
        return {"name": name, "target": target, "devices": devices, "model": {"sip": sip}} | more

    uas = side("uas", 5060, {"scenario": {"preset": "uas"}, "port": CALLEE}, source=["127.0.0.1"])
    load = {"open": {"rate": f"{rate}/s", "stages": [{"over": "0s", "rate": f"{rate}/s"}]}}
    uac = side("uac", CALLEE, {"scenario": {"preset": "call"}, "hold": hold}, load=load)
    return {
        "name": "direct",
        "phases": {"warmup": "0s", "measure": "2s", "drain": "4s"},
        "validity": PATIENT,
        "groups": [uas, uac],
        "thresholds": [{"metric": "uac.index.scr", "min": "100%"}],
    }


def test_callers_and_callees_call_each_other_without_a_server(lab: Lab, cable: Wire) -> None:
    path = lab.write("direct.json", json.dumps(direct()))
    done = lab.run("run", path, "--quiet", prefix=tuple(cable.at_near))
    assert done.code == 0, done.text
    uac, uas = group(done, "uac"), group(done, "uas")
    calls = uac.total.own["session_requests"]
    assert calls > 20
    assert uac.total.own["sessions_completed"] == uas.total.own["calls_received"] == calls
    assert uas.total.own["answers_acknowledged"] == calls
    assert uac.total.own["unrelated_messages"] == uas.total.own["unrelated_messages"] == 0


def test_a_response_from_a_third_address_is_refused(lab: Lab, cable: Wire) -> None:
    """The server answers nothing; somebody at another port answers each request in its place."""
    stopped = threading.Event()

    def bound(port: int) -> socket.socket:
        one = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        one.bind((Wire.FAR, port))
        return one

    server = namespace.inside(cable.far, lambda: bound(5060))
    forger = namespace.inside(cable.far, lambda: bound(5061))
    server.settimeout(0.1)
    forged = 0

    def forge() -> None:
        nonlocal forged
        while not stopped.is_set():
            try:
                data, peer = server.recvfrom(65536)
            except TimeoutError:
                continue
            lines = data.decode().split("\r\n")
            kept = [line for line in lines if line.startswith(("Via:", "From:", "To:", "Call-ID:", "CSeq:"))]
            reply = ["SIP/2.0 200 OK", *kept, "Content-Length: 0", "", ""]
            forger.sendto("\r\n".join(reply).encode(), peer)
            forged += 1

    thread = threading.Thread(target=forge)
    thread.start()
    try:
        one = options(f"sip:{Wire.FAR}", sockets="shared")
        document = profile.scenario(one, {"preset": "options"}, "options")
        document["validity"] = PATIENT
        document["groups"][0]["model"]["sip"] |= {"t1": "100ms", "timeout": "1s"}
        path = lab.write("forged.json", json.dumps(document))
        done = lab.run("run", path, "--quiet", prefix=tuple(cable.at_near))
    finally:
        stopped.set()
        thread.join()
        server.close()
        forger.close()
    assert done.code == 99, done.text
    phones = group(done, "phones")
    assert forged > 20 and phones.total.messages_delivered == 0
    assert phones.total.messages_received == forged


def test_a_port_that_nobody_listens_on_is_refused_at_once(lab: Lab, cable: Wire) -> None:
    one = options(f"sip:{Wire.FAR}", sockets="shared")
    document = profile.scenario(one, {"preset": "options"}, "options")
    document["validity"] = PATIENT
    done = lab.run(
        "run", lab.write("none.json", json.dumps(document)), "--quiet", prefix=tuple(cable.at_near)
    )
    assert done.code == 99, done.text
    assert "refused" in done.text.lower(), done.text


@pytest.mark.parametrize(
    ("model", "said"),
    [({"port": 5070}, "is for shared sockets"), ({"sockets": "shared", "port": 0}, "is zero")],
)
def test_a_port_needs_a_shared_socket(lab: Lab, model: dict[str, Any], said: str) -> None:
    document = direct()
    document["groups"][0]["model"]["sip"] = {"scenario": {"preset": "uas"}} | model
    done = lab.run("run", lab.write("bad.json", json.dumps(document)), "--quiet")
    assert done.code == 104, done.text
    assert said in done.text and "port" in done.text, done.text


def test_a_port_in_use_is_said_before_the_run(lab: Lab, cable: Wire) -> None:
    def bound() -> socket.socket:
        one = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        one.bind(("127.0.0.1", CALLEE))
        return one

    taken = namespace.inside(cable.near, bound)
    try:
        path = Path(lab.write("taken.json", json.dumps(direct())))
        done = lab.run("run", path, "--quiet", prefix=tuple(cable.at_near))
    finally:
        taken.close()
    assert done.code == 92, done.text
    assert f"127.0.0.1:{CALLEE}" in done.text and "ND-92-10" in done.text, done.text
