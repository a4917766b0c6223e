"""The conformance suite against a server that conforms, and against the same server with one fault for each test."""

from __future__ import annotations

import json
import socket
import xml.etree.ElementTree as ET
from collections.abc import Callable
from pathlib import Path

import pytest

from netdyno.cli import app
from netdyno.errors import Error
from netdyno.sip.conformance import ladder, page, suite
from netdyno.sip.conformance.junit import junit
from netdyno.sip.server import SipServer

from .served import DOMAIN, USERS, server

pytestmark = pytest.mark.slow

FILES = list(suite.PURPOSES.glob("*.yaml"))
IDS = sorted(one.stem for one in FILES)
ROLES = {"R": "registrar", "P": "proxy", "D": "redirect"}
SERVED = {"R": "proxy", "P": "proxy", "D": "redirect"}
"""Role of our server that a purpose is of."""
T1_MS = 100
TIMED = {"P21", "P22"}
"""Purposes that wait for each timer in turn, of which `tests/test_sip_timers.py` has those that a conforming server passes."""
RECOMMENDED = {"P07", "P11", "P25", "R16", "R17", "R18", "D03", "D04", "D05"}
"""Purposes whose clause, or the part of it that our faults break, is a SHOULD of RFC 3261."""


def target(address: str, password: bool = True, transport: str = "udp") -> suite.Target:
    accounts = [suite.Account(name, word if password else None) for name, word in USERS.items()]
    return suite.Target(address, transport, DOMAIN, *accounts, t1_ms=T1_MS, nonce_lifetime=1)


def outcome(test: str, fault: str = "", password: bool = True, transport: str = "udp") -> suite.Outcome:
    with server(SERVED[test[0]], fault, T1_MS / 1000) as served:
        wanted = target(served.address, password, transport)
        return suite.run(wanted, suite.chosen([], [test])).tests[0]


def test_every_purpose_has_its_file() -> None:
    numbers = {"R": 19, "P": 25, "D": 7}
    assert sorted(f"{role}{n + 1:02}" for role, most in numbers.items() for n in range(most)) == IDS
    for one in suite.chosen(ROLES.values()):
        assert one.file
        assert one.role == ROLES[one.id[0]]
        assert "RFC" in one.clause


@pytest.mark.parametrize("test", [one for one in IDS if one not in TIMED])
def test_a_conforming_server_passes(test: str) -> None:
    found = outcome(test)
    assert found.verdict == "pass", found.reason + "\n" + "\n".join(ladder.lines(found.ladder))


@pytest.mark.parametrize("test", IDS)
def test_its_fault_is_found(test: str) -> None:
    found = outcome(test, fault=test)
    assert found.verdict == ("warning" if test in RECOMMENDED else "fail"), (
        found.reason + "\n" + "\n".join(ladder.lines(found.ladder))
    )
    assert found.reason
    assert not any(word in arrow.text for arrow in found.ladder for word in USERS.values())


def test_a_proxy_that_sends_100_before_it_asks_for_credentials_passes() -> None:
    with server("proxy", t1=T1_MS / 1000, delay_ms=300) as served:
        (found,) = suite.run(target(served.address), suite.chosen([], ["P23"])).tests
    assert any(arrow.summary.startswith("100") for arrow in found.ladder), ladder.lines(found.ladder)
    assert found.verdict == "pass", found.reason


def test_a_proxy_that_asks_nobody_for_credentials_is_told() -> None:
    with server("proxy", t1=T1_MS / 1000, call_auth=False) as served:
        (found,) = suite.run(target(served.address), suite.chosen([], ["P23"])).tests
    assert (found.verdict, "asks nobody" in found.reason) == ("inconclusive", True), found.reason


@pytest.mark.parametrize("test", ["R01", "R15", "P01", "P23", "D01"])
def test_without_a_password_nothing_is_told_of_a_server_that_asks_for_one(test: str) -> None:
    found = outcome(test, password=False)
    assert found.verdict == "inconclusive"
    assert "password" in found.reason


def test_nobody_answers() -> None:
    with socket.socket(type=socket.SOCK_DGRAM) as silent:
        silent.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        found = suite.run(target(address), suite.chosen([], ["R14", "R13", "T-wsinv", "R01", "T-ncl"]))
    assert [one.verdict for one in found.tests] == ["inconclusive"] * 5
    unplayed = [one.reason.startswith("not played") for one in found.tests]
    assert unplayed == [False, False, False, True, True]
    assert found.exit_code == 90


def test_the_messages_of_rfc_4475_are_sent() -> None:
    with server("proxy", t1=T1_MS / 1000) as served:
        found = suite.run(target(served.address), suite.chosen([], ["T-wsinv", "T-zeromf", "T-unreason"]))
    assert {one.id: one.verdict for one in found.tests}["T-zeromf"] == "pass"
    assert all(any("OPTIONS" in arrow.summary for arrow in one.ladder) for one in found.tests)


def arguments(served: SipServer) -> list[str]:
    uri = f"sip:alice@{served.address}"
    return ["sip", "conformance", uri, "--domain", DOMAIN, "--password", "env:WORD", "--t1", str(T1_MS)]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Callable[..., int]:
    monkeypatch.setenv("WORD", USERS["alice"])

    def call(*more: str, fault: str = "") -> int:
        with server("proxy", fault, T1_MS / 1000) as served:
            return app.call([*arguments(served), *more])

    return call


def test_the_command_tells_verdicts(
    run: Callable[..., int], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    junit_file, html = tmp_path / "junit.xml", tmp_path / "page.html"
    words = ["--only", "R06,P04,R16", "--junit", str(junit_file), "--html", str(html)]
    assert run(*words, fault="P04") == 99
    said = capsys.readouterr().out
    assert "Max-Forwards is 20" in said
    assert "1 pass, 0 warning, 1 fail, 1 inconclusive" in said
    assert "INVITE sip:alice@" in said
    assert USERS["alice"] not in said + html.read_text() + junit_file.read_text()
    suite_node = ET.parse(junit_file).getroot()
    assert (suite_node.get("tests"), suite_node.get("failures"), suite_node.get("skipped")) == ("3", "1", "1")
    assert "<svg" in html.read_text()


def test_a_recommendation_that_is_not_met_fails_nothing(
    run: Callable[..., int], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    junit_file = tmp_path / "junit.xml"
    assert run("--only", "P25", "--junit", str(junit_file), fault="P25") == 0
    said = capsys.readouterr().out
    assert "0 pass, 1 warning, 0 fail" in said and "Accept is absent" in said
    node = ET.parse(junit_file).getroot()
    assert (node.get("failures"), node.get("skipped")) == ("0", "0")
    assert "RFC 3261 11.2 recommends it" in (node.findtext("testcase/system-out") or "")


def test_every_test_has_a_korean_title(run: Callable[..., int], tmp_path: Path) -> None:
    titles = page.korean()
    assert titles.keys() == {one.id for one in suite.purposes()}
    html = tmp_path / "page.html"
    assert run("--only", "P04", "--html", str(html)) == 0
    shown = html.read_text()
    assert titles["P04"] in shown and titles["P05"] not in shown
    assert "적합성" in shown


def test_the_command_prints_json(run: Callable[..., int], capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--only", "P04", "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert found["tests"][0]["verdict"] == "pass"
    assert found["tests"][0]["ladder"][0]["from"] == "uas"


def test_the_command_lists_tests(capsys: pytest.CaptureFixture[str]) -> None:
    assert app.call(["sip", "conformance", "--list", "--json", "--role", "redirect,torture"]) == 0
    assert len(json.loads(capsys.readouterr().out)) == 7 + 49


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["http://x"], "ND-104-22"),
        (["sips:a@h"], "ND-104-26"),
        ([], "ND-104-26"),
        (["sip:127.0.0.1"], "ND-104-03"),
        (["sip:a@127.0.0.1", "--only", "X99"], "ND-104-06"),
        (["sip:a@127.0.0.1", "--role", "gateway"], "ND-104-22"),
        (["sip:a@127.0.0.1", "--password", "env:NOT_SET_ANYWHERE"], "ND-104-60"),
        (["sip:a@no-such-host.invalid"], "ND-92-03"),
    ],
)
def test_wrong_arguments(words: list[str], code: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert app.call(["sip", "conformance", *words]) == int(code.split("-")[1])
    assert code in capsys.readouterr().err


def test_a_wrong_file_is_told() -> None:
    file = {
        "id": "X",
        "title": "",
        "role": "proxy",
        "clause": "",
        "agents": ["uac"],
        "steps": [{"wait": "5"}],
    }
    with pytest.raises(Error, match="X step 1") as caught:
        suite.run(target("127.0.0.1:9"), [suite.Purpose("X", "", "proxy", "", file)])
    assert caught.value.code == "ND-104-70"


def test_a_ladder_and_a_page_show_hostile_texts_as_they_are() -> None:
    arrow = suite.Arrow(at_ms=1, source="uac", to="server", summary="<u>\x1b", text="<u>\x1b", again=True)
    one = suite.Outcome(
        id="R01", title="t", role="r", clause="c", verdict="fail", reason="<i>", duration_ms=1, ladder=[arrow]
    )
    report = suite.Report(server="s", transport="udp", tests=[one])
    for text in (page.render(report), junit(report)):
        assert "<u>" not in text
        assert "\x1b" not in text
    assert ladder.lines([arrow])[0].split() == ["uac", "server"]
