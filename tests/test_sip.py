"""SIP against Kamailio: registrations and calls, what it counted itself, and servers that fail."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from inconclusive import Verdict
from lab import Done, Lab, Wire, experiment, root

from netdyno.sip import profile
from netdyno.sip.uri import parse

pytestmark = root

SERVER = "10.92.0.2"
PATIENT = {"lateness_p99": "60s", "offered": 0.001, "starved": 1.0}


def options(uri: str, **more: Any) -> profile.Options:
    return profile.Options(
        server=parse(uri),
        rate=30.0,
        duration=2.0,
        warmup=0.5,
        domain="example.net",
        password="secret",
        **more,
    )


def measured(lab: Lab, document: dict[str, Any], **settings: Any) -> Done:
    """A profile measured against Kamailio in a namespace."""
    document["validity"] = PATIENT
    document["phases"]["sample"] = "500ms"
    dut = {"driver": "kamailio", "host": "srv", "options": settings}
    wanted = experiment(document, server=dut)
    return lab.run("run", lab.write("sip.json", json.dumps(wanted)), "--quiet")


# Kamailio 5.6 with OpenSSL 3: what one of its processes leaves in the error queue breaks a connection of another
BROKEN_TLS = "digital envelope routines::unsupported algorithm"


def moved(done: Done, name: str) -> float:
    """By how much a counter of Kamailio moved."""
    witness = done.trial.dut["server"]
    return witness.counters_after[name] - witness.counters_before[name]


def group(done: Done, name: str) -> Any:
    return next(one for one in done.trial.groups if one.name == name)


@pytest.mark.parametrize("uri", [f"sip:{SERVER}", f"sip:{SERVER};transport=tcp", f"ws://{SERVER}:5060"])
def test_registrations_are_what_kamailio_counted(lab: Lab, uri: str) -> None:
    document = profile.register(options(uri, keep_bindings=True))
    document["phases"]["warmup"] = "0s"
    done = measured(lab, document, websocket=uri.startswith("ws"))
    assert done.code == 0, done.text
    phones = group(done, "phones")
    count = phones.total.own
    assert count["registrations"] == count["registrations_accepted"] == count["challenges"] > 20
    assert phones.indices["registration_success"] == 1.0
    assert phones.indices["ira"] == 0.0
    # each registration is two REGISTERs: one without, and one with the answer to the challenge
    sent = 2 * count["registrations"] + count["register_retransmissions"]
    assert moved(done, "core_rcv_requests_register") == sent


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    "uri", [f"sip:{SERVER}", f"sip:{SERVER};transport=tcp", f"ws://{SERVER}:5060", f"wss://{SERVER}:5061"]
)
@pytest.mark.parametrize("role", ["proxy", "stateless-proxy"])
def test_calls_are_what_kamailio_counted(lab: Lab, uri: str, role: str, verdict: Verdict) -> None:
    document = profile.call(options(uri, hold=0.2, insecure=uri.startswith("wss")))
    by_web = {"websocket": uri.startswith("ws"), "tls": uri.startswith("wss")}
    done = measured(lab, document, role=role, call_auth=role == "proxy", **by_web)
    assert done.folder, done.text
    verdict.peer_is_sound(done.folder / "dut-server.log", BROKEN_TLS)
    assert done.code == 0, done.text
    callers, callees = group(done, "callers"), group(done, "callees")
    count = callers.measured.own
    assert count["session_requests"] == count["sessions_answered"] == count["sessions_completed"] > 20
    assert [callers.indices[name] for name in ("ser", "seer", "isa", "scr")] == [1.0, 1.0, 0.0, 1.0]
    # some of those that were measured may have arrived after the phase
    assert callees.total.own["calls_received"] >= count["session_requests"]
    for delay in ("session_request", "session_setup", "session_disconnect"):
        assert callers.delays[delay].count > 20, delay
    assert callees.delays["answer_signal"].count > 20
    # what callees registered is gone when they leave
    assert moved(done, "usrloc_registered_users") == 0


def test_a_call_before_its_callee_has_registered_is_held_against_no_server(lab: Lab) -> None:
    document = profile.call(options(f"sip:{SERVER}"))
    callers, callees = sorted(document["groups"], key=lambda one: one["name"] == "callees")
    callers["load"] = {"open": {"rate": "30/s"}}
    callees["load"]["closed"]["ramp"] = "30s"
    document["phases"]["warmup"] = "0s"
    done = measured(lab, document, role="proxy")
    assert done.code == 90, done.text
    callers = group(done, "callers")
    assert callers.total.own["session_requests"] > 20
    (reason,) = done.trial.validity.reasons
    assert reason.what.startswith(f"{int(reason.value)} failures of the generator's own: called before its")
    assert [(one.kind, [cause.cause for cause in one.causes]) for one in callers.errors] == [
        ("local", ["called before its registration"])
    ]


def test_a_redirect_server_redirects(lab: Lab) -> None:
    document = profile.call(options(f"sip:{SERVER}"))
    callers = next(one for one in document["groups"] if one["name"] == "callers")
    callers["model"]["sip"]["scenario"] = {"preset": "redirect"}
    document["thresholds"] = [{"metric": "callers.index.redirect_success", "min": "100%"}]
    done = measured(lab, document, role="redirect")
    assert done.code == 0, done.text
    redirected = group(done, "callers")
    assert redirected.indices["redirect_success"] == 1.0
    assert redirected.delays["redirect"].count == redirected.measured.own["sessions_redirected"] > 0


def test_a_wrong_password_fails_every_registration(lab: Lab) -> None:
    done = measured(lab, profile.register(options(f"sip:{SERVER}")), password="other")
    assert done.code == 99, done.text
    assert "401" in done.text
    assert "secret" not in (done.folder / "result.json").read_text()
    assert group(done, "phones").indices["registration_success"] == 0.0


def test_callees_that_are_not_there_are_404(lab: Lab) -> None:
    document = profile.call(options(f"sip:{SERVER}", callee="nobody"))
    done = measured(lab, document)
    assert done.code == 99, done.text
    assert "404" in done.text and "INVITE was answered with 404" in done.text
    assert group(done, "callers").indices["ser"] == 0.0


@contextmanager
def server(cable: Wire, answer: Any) -> Iterator[str]:
    """A UDP server of the test's own in the far namespace: `answer` makes datagrams of a datagram."""
    from netdyno.system import namespace

    stopped = threading.Event()

    def bound() -> socket.socket:
        one = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        one.bind((Wire.FAR, 5060))
        return one

    listener: socket.socket = namespace.inside(cable.far, bound)
    listener.settimeout(0.1)

    def serve() -> None:
        while not stopped.is_set():
            try:
                data, peer = listener.recvfrom(65536)
            except TimeoutError:
                continue
            for reply in answer(data):
                listener.sendto(reply, peer)

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield f"sip:{Wire.FAR}"
    finally:
        stopped.set()
        thread.join()
        listener.close()


def reply(request: bytes, status: str, **fields: str) -> bytes:
    """A response with what each has to repeat."""
    lines = request.decode().split("\r\n")
    kept = [line for line in lines if line.startswith(("Via:", "From:", "Call-ID:", "CSeq:"))]
    to = next(line for line in lines if line.startswith("To:"))
    tag = "" if fields.pop("tag", "yes") == "no" or ";tag=" in to else ";tag=srv"
    more = [f"{name.replace('_', '-')}: {value}" for name, value in fields.items()]
    return "\r\n".join([f"SIP/2.0 {status}", *kept, to + tag, *more, "Content-Length: 0", "", ""]).encode()


def lying(what: str) -> Any:
    """A server that does one thing wrong."""

    def answer(request: bytes) -> list[bytes]:
        good = reply(request, "200 OK", Contact=f"<sip:{Wire.FAR}>")
        match what:
            case "silent":
                return []
            case "others":
                return [good.replace(b"branch=z9hG4bKnd", b"branch=z9hG4bKxx")]
            case "malformed":
                return [good.replace(b"CSeq: ", b"CSeq x ")]
            case "unavailable":
                return [reply(request, "503 Service Unavailable", Retry_After="5")]
            case "untagged":
                return [reply(request, "200 OK", Contact=f"<sip:{Wire.FAR}>", tag="no")]
            case _:
                return [good]

    return answer


@pytest.mark.parametrize(
    ("what", "preset", "code", "said"),
    [
        ("right", "options", 0, ""),
        ("silent", "options", 99, "unanswered"),
        ("others", "options", 99, "unanswered"),
        ("malformed", "options", 99, "a malformed message"),
        ("unavailable", "options", 99, "503"),
        ("untagged", "call", 99, "without a tag"),
    ],
)
def test_a_server_that_lies_never_passes(
    lab: Lab, cable: Wire, what: str, preset: str, code: int, said: str
) -> None:
    with server(cable, lying(what)) as uri:
        document = profile.scenario(options(uri), {"preset": preset}, preset)
        document["validity"] = PATIENT
        document["groups"][0]["model"]["sip"] |= {"t1": "100ms", "timeout": "1s"}
        path = lab.write("sip.json", json.dumps(document))
        done = lab.run("run", path, "--quiet", prefix=tuple(cable.at_near))
    assert done.code == code, done.text
    assert said in done.text, done.text


def test_a_dead_server_gets_the_load_and_no_more(lab: Lab, cable: Wire) -> None:
    document = profile.call(options(f"sip:{Wire.FAR};transport=tcp", users=30))
    document["validity"] = PATIENT
    done = lab.run("run", lab.write("sip.json", json.dumps(document)), "--quiet", prefix=tuple(cable.at_near))
    assert done.code == 99, done.text
    callers, callees = group(done, "callers"), group(done, "callees")
    assert callers.unit.name == "calls" and callers.rates["intended"] == callers.rates["flows_intended"] > 10
    # each call once, and registrations at 0, 0.1, 0.3, 0.7, 1.5 and 3.1 s
    assert callers.total.flows_started <= callers.total.flows_intended
    assert 30 <= callees.total.flows_started <= 7 * 30, done.text
    # what is wrong is said once for both
    assert done.out.count("refused at") == 1 and "callees, callers: " in done.out, done.out


def test_the_command_line_makes_the_same(lab: Lab, cable: Wire) -> None:
    with server(cable, lying("right")) as uri:
        done = lab.run(
            "sip", "load", uri, "--scenario", "options", "--rate", "20/s", "--duration", "2s", "--json",
            "--threshold", "errors <= 0", prefix=tuple(cable.at_near),
        )  # fmt: skip
    assert done.code in (0, 90), done.text
    document = json.loads(done.out)
    assert document["legs"][0]["repetitions"], document
    for arguments, code, said in [
        (("load", "sip:10.0.0.1;transport=quic"), 104, "quic"),
        (("load", "http://10.0.0.1"), 104, "no SIP URI"),
        (("load", "sip:10.0.0.1", "--scenario", "nothing"), 104, "no scenario is called"),
        (("register", "sip:10.0.0.1", "--rate", "0/s"), 104, "no flow ever begins"),
        (("register", "sips:10.0.0.1", "--transport", "udp"), 104, "--transport"),
    ]:
        done = lab.run("sip", *arguments)
        assert done.code == code and said in done.text, (arguments, done.text)


def test_a_scenario_of_ones_own_is_checked_by_its_steps(lab: Lab) -> None:
    path = Path(lab.write("steps.yaml", "- send: {method: OPTION}\n- expect: {status: 200}\n"))
    done = lab.run("sip", "load", "sip:10.0.0.1", "--scenario", str(path))
    assert done.code == 104, done.text
    assert "steps[0].send.method" in done.text and "Did you mean OPTIONS?" in done.text
