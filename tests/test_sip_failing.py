"""SIP servers that fail, and what they depend on: each gets its verdict, and a healthy one is never blamed."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest
from failing import sip
from lab import Lab, Wire, root, sh
from sip_lab import BEHIND, PATIENT, SERVER, dut, experiment, group, measured, options

from netdyno.sip import profile

pytestmark = root


@pytest.mark.sampled(5)
@pytest.mark.parametrize(
    ("script", "preset", "code", "said"),
    [
        (sip.right, "options", 0, ""),
        (sip.disputed, "options", 0, ""),
        (sip.unavailable, "register", 99, "503"),
        (sip.unavailable, "call", 99, "503"),
        (sip.late, "options", 99, "unanswered"),
        (sip.late, "register", 99, "unanswered"),
        (sip.mirror, "call", 99, "unanswered"),
        (sip.mirror, "options", 99, "unanswered"),
        (sip.forged, "options", 99, "unanswered"),
        (sip.forged, "call", 99, "unanswered"),
        (sip.untagged, "call", 99, "without a tag"),
        (sip.foreign, "call", 99, "unanswered"),
        (sip.other_call, "options", 99, "unanswered"),
    ],
    ids=lambda one: getattr(one, "__name__", None) or str(one),
)
def test_each_fault_has_its_verdict(
    lab: Lab, cable: Wire, script: sip.Script, preset: str, code: int, said: str
) -> None:
    with sip.server(cable, script) as uri:
        document = profile.scenario(options(uri, rate=10.0), {"preset": preset}, preset)
        document["validity"] = PATIENT
        document["phases"]["drain"] = "4s"
        model = document["groups"][0]["model"]["sip"]
        model |= {"t1": "500ms", "timeout": "1s", "callee": "bob"}
        done = lab.run(
            "run", lab.write("sip.json", json.dumps(document)), "--quiet", prefix=tuple(cable.at_near)
        )
    assert done.code == code, done.text
    assert said in done.text, done.text
    phones = group(done, "phones")
    assert phones.total.flows_started > 5
    assert (phones.total.flows_completed > 0) is (code == 0)
    if script is sip.unavailable and preset == "call":
        # 503 makes a session attempt ineffective (RFC 6076 section 4.8)
        assert (phones.indices["ser"], phones.indices["isa"]) == (0.0, 1.0)


@pytest.mark.parametrize("preset", ["register", "call"])
def test_a_storm_of_503_that_begins_in_the_run_is_counted_from_there(
    lab: Lab, cable: Wire, preset: str
) -> None:
    """What was accepted before is not taken back, and each refusal is one failure: Retry-After is told, and obeyed by nobody."""
    # a call is INVITE and BYE, and ends before the next begins
    storm = sip.Storm(20)
    with sip.server(cable, storm) as uri:
        chosen = options(uri, rate=20.0, duration=3.0, warmup=0.0, arrival="constant", keep_bindings=True)
        document = profile.scenario(chosen, {"preset": preset}, preset)
        document["validity"] = PATIENT
        document["groups"][0]["model"]["sip"]["callee"] = "bob"
        done = lab.run(
            "run", lab.write("sip.json", json.dumps(document)), "--quiet", prefix=tuple(cable.at_near)
        )
    assert done.code == 99, done.text
    assert "503" in done.text and "Retry-After" in done.text, done.text
    phones = group(done, "phones")
    own, failed = phones.total.own, sum(phones.total.failures.values())
    asked = own["registrations" if preset == "register" else "session_requests"]
    again = (
        own[f"{'register' if preset == 'register' else 'invite'}_retransmissions"]
        + own["bye_retransmissions"]
    )
    # a request that is repeated is answered again
    assert (
        storm.taken + storm.refused - again
        <= own["disconnect_requests"] + asked
        <= storm.taken + storm.refused
    )
    assert failed == storm.refused or again, (failed, storm.refused)
    success = phones.indices["registration_success" if preset == "register" else "ser"]
    if not again:
        accepted = own["registrations_accepted" if preset == "register" else "sessions_answered"]
        assert 0 < accepted < asked and success == accepted / asked
        assert asked - accepted == failed - (own["disconnect_requests"] - own["disconnects_accepted"])


def test_a_drop_on_the_way_and_a_port_that_is_not_open_are_told_apart(lab: Lab, cable: Wire) -> None:
    """Datagrams that a firewall drops are not said to have been taken, by a server that never saw one."""
    load = ("sip", "register", f"sip:{Wire.FAR}", "--rate", "20/s", "--duration", "1s", "--quiet")
    refused = lab.run(*load, prefix=tuple(cable.at_near))
    assert refused.code in (90, 99) and "nothing listens there" in refused.text, refused.text
    sh(
        *cable.at_far,
        "nft",
        "table inet f { chain i { type filter hook input priority 0; udp dport 5060 drop; }; }",
    )
    dropped = lab.run(*load, prefix=tuple(cable.at_near))
    assert dropped.code in (90, 99), dropped.text
    assert "nothing shows that they arrived" in dropped.text and "firewalls" in dropped.text, dropped.text
    assert "nothing listens" not in dropped.text


def killed(
    lab: Lab,
    document: dict[str, Any],
    program: str,
    by: int = signal.SIGKILL,
    delivered: int = 10,
    measure: str = "40s",
    **duts: Any,
) -> Any:
    """A run during which a server is killed, once so many requests of calls or registrations have succeeded."""
    document["phases"] |= {"measure": measure, "drain": "2s"}
    path = lab.write("sip.json", json.dumps(experiment(document, duts)))
    running = lab.start("run", path, "--quiet")
    lab.sampled(points=3, delivered=delivered)
    victims = [pid for pid in lab.processes() if program in Path(f"/proc/{pid}/comm").read_text()]
    assert victims, f"{program} does not run"
    for pid in victims:
        os.kill(pid, by)
    return lab.wait(running)


def test_a_server_that_is_killed_is_lost(lab: Lab) -> None:
    done = killed(lab, profile.register(options()), "kamailio", server=dut("kamailio"))
    assert done.code == 91, done.text
    assert "ND-91-23" in done.text and "server" in done.text
    assert done.trial.dut["server"].died


def test_a_database_that_is_killed_is_named(lab: Lab) -> None:
    """The SIP server lives and rejects: the one that failed is the database."""
    document = profile.register(options())
    server = dut("kamailio", location="postgresql-only", database=BEHIND)
    done = killed(lab, document, "postgres", db=dut("postgresql", "back"), server=server)
    assert done.code == 91, done.text
    assert "at db" in done.text.replace("at  db", "at db"), done.text
    assert done.trial.dut["db"].died and not done.trial.dut["server"].died


@pytest.mark.sampled(1, of="sip-media-relay")
@pytest.mark.parametrize("by", [signal.SIGKILL, signal.SIGSTOP])
def test_a_media_relay_that_fails_is_not_passed(lab: Lab, by: int) -> None:
    """Killed it is named, frozen its silence is lost audio: of calls over SRTP, which were heard before."""
    audio = {"source": {"tone": 440}, "srtp": {}}
    document = profile.call(options(rate=4.0, users=20, hold=2.5, media=audio))
    for one in document["groups"]:
        one["model"]["sip"] |= {"timeout": "2s"}
    relayed = dut("kamailio", role="proxy", media_relay=f"{SERVER}:2223")
    duts = {"relay": dut("rtpengine"), "server": relayed}
    # the first calls are over
    done = killed(lab, document, "rtpengine", by, 20 + 15, "15s", **duts)
    callers = group(done, "callers").total.own
    assert callers["rtp_received"] > 50, callers
    assert not done.trial.dut["server"].died
    if by == signal.SIGKILL:
        assert done.code == 91 and "at relay" in done.text.replace("at  relay", "at relay"), done.text
        assert done.trial.dut["relay"].died
    else:
        assert done.code == 99, done.text
        # calls that were up heard nothing more: a second each at the least
        assert callers["rtp_lost"] > 50, callers
        assert group(done, "callers").values["mos_listening"].min < 2000


def through_two(lab: Lab, home: dict[str, Any], edge: dict[str, Any]) -> Any:
    """Calls to a user of `example.net` through two proxies, of which none serves that domain."""
    document = profile.scenario(options(rate=4.0), {"preset": "call"}, "call")
    document["phases"]["drain"] = "15s"
    document["groups"][0]["model"]["sip"]["callee"] = "bob"
    return measured(lab, document, home=dut("kamailio", port=5070, **home), server=dut("kamailio", **edge))


def test_a_name_server_that_is_silent_fails_the_calls(lab: Lab) -> None:
    edge = {"domain": "edge.example", "nameserver": BEHIND, "dns_cache": False}
    done = through_two(lab, {}, edge)
    assert done.code == 99, done.text
    assert "478" in done.text, done.text
    assert group(done, "phones").indices["ser"] == 0.0


def test_proxies_that_loop_end_with_too_many_hops(lab: Lab) -> None:
    home = {"domain": "home.example", "next_hops": {"example.net": f"sip:{SERVER}"}}
    edge = {"domain": "edge.example", "next_hops": {"example.net": f"sip:{SERVER}:5070"}}
    done = through_two(lab, home, edge)
    assert done.code == 99, done.text
    assert "483" in done.text, done.text
    assert group(done, "phones").indices["ser"] == 0.0
