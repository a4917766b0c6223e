"""Loads of `netdyno sip` that go on with the next server of a domain where one fails (RFC 3263 section 4.3)."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from netdyno.cli import app
from netdyno.core.result import Result
from netdyno.errors import Error
from netdyno.sip import profile
from netdyno.sip.failover import servers
from netdyno.sip.server import SipServer
from netdyno.sip.uri import parse
from netdyno.sip.verbs import targets

from .served import DOMAIN, server

WORD = "sesame"
TIMEOUT = 2.0
"""How long a silent server is waited for, s: longer than a busy machine holds one up."""


def pid(one: SipServer) -> int:
    assert one._process
    return one._process.pid


def load(
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    running: list[SipServer],
    verb: str,
    *words: str,
    then: Callable[[], None] | None = None,
) -> tuple[Result, Any]:
    """A load on servers that come one after the other; `then`: what is done once the first has answered some of it."""
    places = [one.addresses["ws"] if "ws" in words else one.address for one in running]
    ports = [at.rpartition(":")[2] for at in places]
    table = [word for n, port in enumerate(ports) for word in ("--srv", f"{n}0 0 {port} 127.0.0.1")]
    usual = ["--rate", "40/s", "--users", "60", "--duration", "4s", "--warmup", "200ms", "--json", "--quiet"]
    # what the servers count at the end is the load
    usual += [
        "--keep-bindings",
        "--password",
        "env:WORD",
        "--server-timeout",
        f"{TIMEOUT:g}s",
        "--runs",
        str(tmp_path),
    ]

    def act() -> None:
        end = time.monotonic() + 60
        while not first.counters.get("responses") and time.monotonic() < end:
            time.sleep(0.02)
        if then:
            then()

    first = running[0]
    acting = threading.Thread(target=act if then else lambda: None)
    acting.start()
    app.call(["sip", verb, f"sip:{DOMAIN}", *table, *usual, *words])
    acting.join()
    result = Result.model_validate(json.loads(capsys.readouterr().out))
    return result, result.legs[0].repetitions[0].groups[-1]


@pytest.mark.parametrize(
    ("verb", "act", "words"),
    [
        ("register", "STOP", ()),
        ("register", "KILL", ("--transport", "tcp")),
        ("register", "STOP", ("--sockets", "shared")),
        ("call", "KILL", ("--to", "bob")),
        ("call", "STOP", ("--to", "bob", "--transport", "tcp")),
        ("call", "KILL", ("--to", "bob", "--transport", "tcp", "--hold", "2s", "--rate", "20/s")),
        ("register", "STOP", ("--transport", "ws")),
        ("call", "KILL", ("--to", "bob", "--transport", "ws")),
    ],
)
@pytest.mark.slow
@pytest.mark.sampled(2)
def test_users_of_a_server_that_dies_are_served_by_the_next(
    verb: str,
    act: str,
    words: tuple[str, ...],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("WORD", WORD)
    more: dict[str, Any] = {"password": WORD} | ({"ws": "127.0.0.1:0"} if "ws" in words else {})
    with server("uas", **more) as first, server("uas", **more) as second:

        def fail() -> None:
            os.kill(pid(first), getattr(signal, f"SIG{act}"))

        _, phones = load(capsys, tmp_path, [first, second], verb, *words, then=fail)
        os.kill(pid(first), signal.SIGKILL)
        counted = second.stop()
    asked, took = ("registrations", "registrations_accepted")
    if verb == "call":
        asked, took = ("session_requests", "sessions_answered")
    own = phones.total.own
    # a call that rings at a server when that freezes cannot be asked for at another
    ringing = 2 if (verb, act) == ("call", "STOP") else 0
    assert own[asked] > 50 and own[asked] - own[took] <= ringing, own
    assert sum(phones.total.failures.values()) <= ringing, phones.total.failures
    ours, theirs = phones.addresses
    assert ours.delivered > 0 and theirs.delivered > 0, phones.addresses
    # over TCP it may be the connection for a request that is refused
    assert ours.failed >= own["requests_moved"] and ours.failed > 0, phones.addresses
    answered = counted["registrations" if verb == "register" else "calls_answered"]
    assert isinstance(answered, int) and answered > 0
    if verb == "register":
        assert answered == theirs.delivered
    if act == "STOP":
        failover = phones.delays["failover"]
        assert failover.count > 0 and failover.min >= 0.99 * TIMEOUT * 1e9


@pytest.mark.slow
@pytest.mark.drawn
def test_the_preset_measures_the_outage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("WORD", WORD)
    with server("uas", password=WORD) as first, server("uas", password=WORD) as second:
        frozen = ("--scenario", "failover", "--max-outage", "1s")
        result, phones = load(
            capsys,
            tmp_path,
            [first, second],
            "load",
            *frozen,
            then=lambda: os.kill(pid(first), signal.SIGSTOP),
        )
        os.kill(pid(first), signal.SIGKILL)
    assert phones.delays["failover"].count > 0 and phones.delays["failover"].max >= 0.99 * TIMEOUT * 1e9
    limits = {one.metric: one for one in result.thresholds}
    # they waited for the silent server, longer than is allowed here
    assert not limits["phones.delay.registration.max"].passed and "phones.stalls.longest" in limits
    assert limits["phones.index.registration_success"].passed and result.verdict == "fail"


@pytest.mark.slow
@pytest.mark.drawn
def test_calls_whose_server_died_while_they_were_held_are_dropped_and_the_next_is_not_blamed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Over TCP, and all calls are up by then: nothing is being asked when the connections close."""
    monkeypatch.setenv("WORD", WORD)
    knows_no_call: dict[str, Any] = {"error_share": 1.0, "error_status": 481, "password": WORD}
    with server("uas", password=WORD) as first, server("uas", **knows_no_call) as second:

        def fail() -> None:
            end = time.monotonic() + 60
            while first.counters["calls_acknowledged"] != 20 and time.monotonic() < end:
                time.sleep(0.02)
            os.kill(pid(first), signal.SIGKILL)

        # each user is in a call until the load ends, and no more calls begin
        words = ("--to", "bob", "--transport", "tcp", "--users", "20", "--hold", "30s", "--duration", "5s")
        _, phones = load(capsys, tmp_path, [first, second], "call", *words, then=fail)
        counted = second.stop()
    own = phones.total.own
    assert own["sessions_answered"] == own["calls_dropped"] == 20 and own["sessions_completed"] == 0, own
    assert not any(phones.total.failures.values()), phones.total.failures
    ours, theirs = phones.addresses
    assert ours.failed > 0 and theirs.failed == theirs.delivered == 0, phones.addresses
    assert counted["requests"]["BYE"] == own["calls_dropped"]


@pytest.mark.slow
@pytest.mark.drawn
def test_users_return_when_the_server_is_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("WORD", WORD)
    with server("uas", password=WORD) as first, server("uas", password=WORD) as second:
        before = 0

        def away() -> None:
            nonlocal before
            os.kill(pid(first), signal.SIGSTOP)
            before = first.counters["registrations"]
            time.sleep(2.5)
            os.kill(pid(first), signal.SIGCONT)

        words = ("--avoid", "300ms", "--users", "20", "--duration", "8s", "--server-timeout", "1s")
        _, phones = load(capsys, tmp_path, [first, second], "register", *words, then=away)
        after = first.stop()["registrations"]
        moved = second.stop()["registrations"]
    own = phones.total.own
    assert own["registrations_accepted"] == own["registrations"]
    theirs = phones.addresses[1]
    # it served before, and again: some requests went to the other in between
    assert theirs.delivered == moved and own["requests_moved"] > 0 and after > before + 40, (before, after)


@pytest.mark.slow
@pytest.mark.drawn
def test_a_server_that_is_unavailable_is_left_and_one_alone_is_blamed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("WORD", WORD)
    busy: dict[str, Any] = {"error_share": 1.0, "error_status": 503, "password": WORD}
    with server("uas", **busy) as first, server("uas", password=WORD) as second:
        _, phones = load(capsys, tmp_path, [first, second], "register")
        assert phones.total.own["registrations_accepted"] == phones.total.own["registrations"] > 0
        ours, theirs = phones.addresses
        assert ours.delivered == 0 and ours.failed > 0 and "503" in (ours.error or "")
        assert theirs.delivered == phones.total.own["registrations"]
        # with nobody else to ask, it is a failure
        result, phones = load(capsys, tmp_path, [first], "register")
        assert phones.total.own["registrations_accepted"] == 0 and result.verdict == "fail"
        assert phones.total.own["requests_moved"] == 0


@pytest.mark.slow
@pytest.mark.drawn
def test_a_limit_of_the_outage_replaces_those_of_delay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every request waits for the silent server first: longer than the limit, which says so."""
    monkeypatch.setenv("WORD", WORD)
    with server("uas", password=WORD) as first, server("uas", password=WORD) as second:
        os.kill(pid(first), signal.SIGSTOP)
        words = ("--max-outage", "300ms", "--avoid", "0s", "--rate", "10/s")
        result, phones = load(capsys, tmp_path, [first, second], "register", *words)
        os.kill(pid(first), signal.SIGCONT)
    judged = {one.metric: one.passed for one in result.thresholds}
    assert judged == {
        "phones.index.registration_success": True,
        "phones.delay.registration.max": False,
        "phones.stalls.longest": False,
    }
    assert (
        result.verdict == "fail"
        and phones.total.own["registrations_accepted"] == phones.total.own["registrations"]
    )
    assert phones.delays["registration"].min >= 0.99 * TIMEOUT * 1e9


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("sip:127.0.0.1:5060", "--srv", "10 0 5060 127.0.0.1"), 104),
        (("sip:example.net", "--srv", "10 0 5060"), 104),
        (("sip:example.net", "--srv", "10 0 5060 127.0.0.1", "--dns", "127.0.0.1"), 104),
        (("sip:example.net", "--srv", "10 0 5060 127.0.0.1", "--server-timeout", "0s"), 104),
        (("sip:example.net", "--dns", "127.0.0.1:x"), 104),
        (("sip:127.0.0.1:5060", "--max-outage", "1s"), 104),
    ],
)
def test_wrong_options_are_named(words: tuple[str, ...], code: int) -> None:
    assert app.call(["sip", "register", *words]) == code


@pytest.mark.parametrize(
    ("name", "delays"),
    [
        ("options", ["response"]),
        ("register", ["registration"]),
        ("call", ["session_request", "session_disconnect"]),
        ("early-media", ["session_request", "session_disconnect"]),
        ("redirect", ["redirect"]),
    ],
)
def test_the_limit_of_the_outage_is_of_delays_that_the_scenario_has(name: str, delays: list[str]) -> None:
    failover = profile.Failover((servers.Server("127.0.0.1", 5060),), 1.0, 30.0, 2.0)
    options = profile.Options(server=parse("sip:example.net"), rate=10.0, failover=failover)
    made = profile.scenario(options, {"preset": name.replace("-", "_")}, name)["thresholds"]
    judged = [one["metric"] for one in made if ".delay." in one["metric"]]
    assert judged == [f"phones.delay.{delay}.max" for delay in delays]
    assert {"metric": "phones.counts.calls_dropped", "max": "0"} in made
    assert "phones.stalls.longest" in [one["metric"] for one in made]
    if name == "options":
        with pytest.raises(Error, match="ND-104-07"):
            profile.scenario(options, {"steps": []}, "scenario")


def test_a_server_without_address_is_named() -> None:
    given = {"dns": None, "srv": ["10 0 5060 a.example.net"], "server_timeout": "2s", "avoid": "30s"}
    given |= {"max_outage": None}
    with pytest.raises(Error, match="no address"):
        targets.located(parse("sip:example.net"), given)
