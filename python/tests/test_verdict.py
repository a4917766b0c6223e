"""What is judged: thresholds, and the checks that every group is held to without being asked."""

from __future__ import annotations

import io
import json
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from netdyno.cli import app, console, summary
from netdyno.core.load_unit import MESSAGES
from netdyno.core.result import HostReport, Leg, Repetition, Result, ThresholdResult
from netdyno.core.wire import (
    CauseCount,
    Counts,
    Distribution,
    FailureCount,
    GroupResult,
    Reason,
    SeriesPoint,
    SlowdownResult,
    StallResult,
    TrialResult,
    Validity,
)
from netdyno.experiment.verdict import exit_code, judge_all
from netdyno.experiment.verdict import verdict as decide
from netdyno.export.junit import junit
from netdyno.export.markdown import summary as markdown
from netdyno.export.prometheus import Exporter
from netdyno.report.page import facts
from netdyno.report.thresholds import judged as threshold_tables
from netdyno.report.verdict import verdict as shown
from netdyno.stats.backlog import hides_delays
from netdyno.stats.checks import checks
from netdyno.stats.summary import summarise
from netdyno.store import Store

from .command import PROFILE, result

HTTP = {"name": "web", "target": "http://h", "model": {"http": {}}}


def group(stalls: StallResult | None = None, **counts: Any) -> GroupResult:
    return GroupResult(name="web", protocol="http", measured=Counts(**counts), stalls=stalls)


def judged(
    one: GroupResult,
    thresholds: list[dict[str, Any]],
    spec: dict[str, Any] | None = None,
    **changes: Any,
) -> Result:
    made = Result(
        id="r",
        name="n",
        started="2026-01-01T00:00:00Z",
        legs=[Leg(name="sockets", repetitions=[Repetition(run="r1", groups=[one])])],
        **changes,
    )
    judge_all(made, {"sockets": {"groups": [spec or HTTP], "thresholds": thresholds}}, 0.95)
    return made


GOOD = {"messages_intended": 10, "messages_sent": 10, "messages_delivered": 10}
SILENT = {"messages_intended": 10, "messages_sent": 10, "failures": {"unanswered": 10}}
ERRORS = {"metric": "web.errors", "max": 100}
STALLED = StallResult(limit=2e9, time=30, share=0.75, longest=7.5e9, waiting=1.0)


def test_nothing_judged_is_no_verdict_and_no_pass() -> None:
    found = judged(group(**GOOD), [])
    assert (found.verdict, exit_code(found)) == ("none", 0)
    assert found.no_verdict == "no verdict: there are no thresholds to judge by"
    assert judged(group(**GOOD), [ERRORS]).verdict == "pass"


def test_a_group_that_delivered_nothing_fails_whatever_its_thresholds_say() -> None:
    for thresholds in ([], [ERRORS]):
        found = judged(group(**SILENT), thresholds)
        assert (found.verdict, exit_code(found)) == ("fail", 99)
        assert all(t.passed for t in found.thresholds)
        (check,) = found.checks
        assert (check.check, check.value, check.passed) == ("delivery", 0, False)
        assert "of 10 messages; in that time 10 failures" in check.what


def test_who_was_refused_before_the_measure_phase_and_rests_there_fails() -> None:
    never = group()
    never.total = Counts(flows_failed=50, failures={"refused": 50})
    found = judged(never, [])
    (check,) = found.checks
    assert (found.verdict, check.check, check.passed) == ("fail", "delivery", False)
    assert "before it 50 failures, and nothing but these: refused × 50" in check.what
    # one that was let in before is not blamed for a phase in which nothing fell due
    once = group()
    once.total = Counts(messages_sent=1, messages_delivered=1, flows_failed=50, failures={"refused": 50})
    assert not judged(once, []).checks


def test_flows_that_end_well_do_not_stand_for_answers() -> None:
    refused = {"messages_sent": 60, "flows_completed": 4, "failures": {"rejected": 60}}
    one = group(**refused)
    for confirmed, verdict in ((True, "fail"), (False, "none")):
        one.confirmed = confirmed
        assert judged(one, []).verdict == verdict


def test_stalls_are_judged_unless_the_profile_does() -> None:
    stalled = group(STALLED, **GOOD)
    assert judged(stalled, [ERRORS]).verdict == "fail"
    own = {"metric": "web.stalls.share", "max": 0.8}
    found = judged(stalled, [ERRORS, own])
    assert (found.verdict, found.thresholds[1].value) == ("pass", 0.75)
    assert [check.check for check in found.checks] == ["delivery"]
    other = {"metric": "web.stalls.longest", "max": "5s"}
    assert judged(stalled, [other]).thresholds[0].value == 7.5e9
    short = StallResult(limit=2e9, time=0.1, share=0.01, longest=2.1e9)
    assert judged(group(short, **GOOD), [ERRORS]).verdict == "pass"


@pytest.mark.parametrize("code", ["", "ND-90-08", "ND-90-01"])
def test_a_server_that_slows_down_under_the_load_fails_a_valid_run(code: str) -> None:
    one = group(messages_intended=100, messages_sent=40, messages_delivered=40)
    one.slowdown, one.devices = SlowdownResult(few=20_000_000, busy=200_000_000), 10
    one.rates = {"messages_delivered": 48.5}
    trial = TrialResult(run="a", groups=[one])
    if code:
        trial.validity = Validity(valid=False, reasons=[Reason(code=code, group="web", what="short")])
    found = [check for check in checks("leg", {"groups": [HTTP]}, [trial]) if check.check == "load"]
    # what the generator or the connections did not offer does not count against the server
    assert [check.passed for check in found] == ([] if code else [False])
    for check in found:
        assert (check.value, check.limit) == (0.4, 0.99)
        assert "40 of 100 messages sent, as 10 devices waited for answers; 48.5/s delivered" in check.what
        assert "took 20 ms with few devices waiting and 200 ms with all of them" in check.what


def test_a_slower_server_that_was_offered_the_load_is_not_too_slow() -> None:
    one = group(**GOOD)
    one.slowdown = SlowdownResult(few=20, busy=200)
    assert judged(one, [ERRORS]).verdict == "pass"


OPEN = {"load": {"open": {"rate": "1/s"}}}
FLOWS = {"intended": "flows_intended", "offered": "flows_started", "delivered": "flows_completed"}
JUDGED = {
    "sip": ("registrations", FLOWS, "web.index.registration_success"),
    "http": ("messages", MESSAGES.model_dump(exclude={"name"}), "web.delay.response.p95"),
    "coap": ("messages", MESSAGES.model_dump(exclude={"name"}), "web.loss"),
}
"""By model: what its load is counted in, and something that nothing is known of where nothing fell due."""


@pytest.mark.parametrize("model", JUDGED)
def test_nothing_fell_due_is_no_verdict(model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    unit, names, metric = JUDGED[model]
    one = GroupResult.model_validate({"name": "web", "protocol": model, "unit": names | {"name": unit}})
    one.stalls = StallResult(limit=2e9)
    unknown = {"metric": metric, "min": 1.0} if "index" in metric else {"metric": metric, "max": 0.1}
    # a condition that no traffic breaks, and one that it cannot hold
    for more in ([], [ERRORS], [{"metric": "web.messages_delivered.rate", "min": "1/s"}]):
        found = judged(one, [unknown, *more], {**HTTP, "model": {model: {}}, **OPEN})
        assert (found.verdict, found.valid, exit_code(found)) == ("none", False, 90)
        assert [reason.code for reason in found.reasons] == ["ND-90-09"]
        text = " ".join(words(found, monkeypatch).split())
        assert f"no {unit} fell due" in text and "measure for longer, or raise the rate" in text
        assert "not judged" in text and "FAIL" not in text.replace("1/s 0/s one trial: none FAIL", "")
        assert "nothing fell due" in str(shown(found).points)
    judge_all(found, {"sockets": {"groups": [{**HTTP, **OPEN}], "thresholds": [unknown]}}, 0.95)
    assert [reason.code for reason in found.reasons] == ["ND-90-09"], "said once"


@pytest.mark.parametrize(
    ("changes", "spec"),
    [
        ({"measured": {"flows_intended": 1}}, OPEN),
        ({"measured": {"messages_intended": 1}}, OPEN),
        # a request from before the measure phase failed in it, or is still not answered
        ({"measured": {"failures": {"timeout": 1}}}, OPEN),
        ({"stalls": {"limit": 2, "busy": 0.1}}, OPEN),
        # a subscriber, and a user agent that is called: nothing came, and they do not ask
        ({}, {}),
        ({"unit": FLOWS | {"name": "calls", "intended": None}, "total": {"messages_sent": 4}}, {}),
    ],
)
def test_a_server_that_had_something_to_do_is_judged(changes: dict[str, Any], spec: dict[str, Any]) -> None:
    one = GroupResult.model_validate({"name": "web", "protocol": "http"} | changes)
    found = judged(one, [{"metric": "web.messages_delivered", "min": "1"}], {**HTTP, **spec})
    assert (found.verdict, found.valid) == ("fail", True)


def test_a_limit_without_a_value_is_not_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    unknown = {"metric": "web.delay.connect.p95", "max": "1s"}
    found = judged(group(**GOOD), [unknown, ERRORS])
    assert (found.verdict, found.valid, exit_code(found)) == ("none", True, 90)
    text = " ".join(words(found, monkeypatch).split())
    assert "nothing was measured for web.delay.connect.p95 (ND-90-10)" in text
    assert "not judged" in text and "FAIL" not in text
    assert shown(found).state == "none" and "it is not judged" in str(shown(found).points)
    assert "1 of 2 thresholds pass" in str(shown(found).lead).replace("{n}", "1").replace("{total}", "2")
    assert "| not judged |" in markdown(found) and "FAIL" not in markdown(found)
    suite = ET.fromstring(junit(found).split("?>", 1)[1])
    assert (suite.get("failures"), suite.get("errors")) == ("0", "1"), "CI does not take it for a pass"
    error = suite.find("testcase/error")
    assert error is not None and error.get("type") == "ND-90-10"


def test_a_limit_without_a_value_says_nothing_where_another_one_fails() -> None:
    unknown = {"metric": "web.delay.connect.p95", "max": "1s"}
    found = judged(group(**GOOD), [unknown, {"metric": "web.messages_delivered", "min": "1000000"}])
    assert (found.verdict, exit_code(found), found.unmeasured) == ("fail", 99, [])
    suite = ET.fromstring(junit(found).split("?>", 1)[1])
    assert (suite.get("failures"), suite.get("errors"), suite.get("skipped")) == ("1", "0", "1")


def test_answers_to_what_fell_due_before_are_no_reason_to_blame_the_server() -> None:
    one = group(StallResult(limit=2e9, busy=0.001))
    one.rates = {"messages_delivered": 0.5}
    one.total = Counts(messages_sent=1)
    limits = [{"metric": "web.delay.response.p95", "max": "1s"}]
    assert judged(one, limits).verdict == "none"
    assert judged(one, []).valid, "nobody asked for anything to be judged"


def test_one_repetition_with_something_to_do_is_judged() -> None:
    found = judged(group(**GOOD), [])
    idle = group()
    idle.total = Counts(messages_sent=1)
    found.legs[0].repetitions.append(Repetition(run="r2", groups=[idle]))
    for bound, verdict in ((1, "pass"), (1000, "fail")):
        limit = {"metric": "web.messages_delivered", "min": bound, "confidence": 0.5}
        judge_all(found, {"sockets": {"groups": [HTTP], "thresholds": [limit]}}, 0.95)
        assert (found.verdict, found.valid) == (verdict, False)


def test_delays_hidden_by_a_backlog_are_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    one = group(messages_intended=200)
    one.rates = {"messages_delivered": 46.5, "messages_sent": 46.5}
    found = judged(one, [])
    found.legs[0].summary = summarise(found.legs[0].repetitions)
    text = " ".join(words(found, monkeypatch).split())
    assert (
        "web: no delay: all messages answered in the measure phase (46.5/s) fell due in the warm-up" in text
    )
    for known in ({"messages_sent": 1}, {"rates": {}}, {"delays": {"response": Distribution(count=1)}}):
        other = one.model_copy(deep=True)
        for name, value in known.items():
            setattr(other.measured if name == "messages_sent" else other, name, value)
        assert not hides_delays(other)


def test_the_worst_repetition_decides() -> None:
    trials = [TrialResult(run="a", groups=[group(**GOOD)]), TrialResult(run="b", groups=[group(**SILENT)])]
    (check,) = checks("leg", {"groups": [HTTP]}, trials)
    assert not check.passed


@pytest.mark.parametrize(
    ("model", "counts", "asked"),
    [
        ({"mqtt": {}}, {"messages_sent": 5}, True),
        ({"mqtt": {"qos": 0}}, {"messages_sent": 5}, False),
        # not one publish left: it was not even let in
        ({"mqtt": {"qos": 0}}, {"failures": {"refused": 5}}, True),
        ({"mqtt": {"publish": False}}, {"failures": {"unanswered": 1}}, True),
        ({"mqtt": {"publish": False}}, {}, False),
        ({"stream": {}}, {"messages_sent": 5}, True),
        ({"stream": {"echo": False}}, {"messages_sent": 5}, False),
        ({"script": {}}, {"messages_sent": 5}, False),
        ({"script": {}}, {"messages_sent": 5, "failures": {"timeout": 1}}, True),
        ({"ping": {}}, {"messages_sent": 5}, True),
        ({"http": {}}, {"flows_intended": 5}, True),
    ],
)
def test_only_who_asks_for_answers_is_held_to_delivery(
    model: dict[str, Any], counts: dict[str, Any], asked: bool
) -> None:
    found = checks(
        "leg", {"groups": [HTTP | {"model": model}]}, [TrialResult(run="a", groups=[group(**counts)])]
    )
    assert [check.passed for check in found] == ([False] if asked else [])


@pytest.mark.parametrize(
    ("changes", "verdict"),
    [
        ({"interrupted": True}, "none"),
        ({"error": {"code": "ND-92-05", "what": "no sockets"}}, "none"),
        ({"error": {"code": "ND-91-21", "what": "the daemon is gone"}}, "none"),
        # the system under test did not survive the load
        ({"error": {"code": "ND-91-23", "what": "the broker ended"}}, "fail"),
    ],
)
def test_what_ended_early_is_judged_only_if_the_system_under_test_ended_it(
    changes: dict[str, Any], verdict: str
) -> None:
    for counts in (GOOD, SILENT):
        found = judged(group(**counts), [ERRORS], **changes)
        assert found.verdict == verdict
        assert exit_code(found) == (105 if "interrupted" in changes else int(changes["error"]["code"][3:5]))


def words(found: Result, monkeypatch: pytest.MonkeyPatch) -> str:
    text = io.StringIO()
    monkeypatch.setattr(console, "out", lambda: Console(file=text, width=160))
    summary.show(found)
    return text.getvalue()


def test_no_verdict_is_said_everywhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    found = judged(group(**GOOD), [])
    text = words(found, monkeypatch)
    assert text.startswith("no verdict, measurement valid\n  no verdict: there are no thresholds")
    assert "pass" not in text
    suite = ET.fromstring(junit(found))
    assert (suite.get("skipped"), suite.get("failures")) == ("2", "0")
    skipped = [case.get("name") for case in suite.iter("testcase") if case.find("skipped") is not None]
    assert skipped == ["web delivery", "verdict"]
    exporter = Exporter()
    exporter.result(found)
    assert f'netdyno_passed{{run="{found.id}"}} 0.0' in exporter.text()
    assert f'netdyno_verdict{{run="{found.id}",verdict="none"}} 1.0' in exporter.text()
    said = shown(found)
    assert (said.state, said.headline.id) == ("none", "No verdict")
    with Store(tmp_path / "s.sqlite") as store:
        store.begin(found, tmp_path)
        assert store.rows()[0].verdict == "none"
        store.finish(found)
        assert store.rows()[0].verdict == "none"


def test_a_failed_check_is_said_everywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    found = judged(group(STALLED, **SILENT), [ERRORS])
    text = words(found, monkeypatch)
    assert text.startswith("verdict FAIL")
    assert "web: nothing was delivered" in text
    assert "devices waited longer than 2 s for an answer 75.0% of the time, the longest 7.5 s" in text
    assert "unanswered at" in text
    suite = ET.fromstring(junit(found))
    assert suite.get("failures") == "2"
    assert {one.get("type") for one in suite.iter("failure")} == {"ND-99-21"}
    points = [point.plain() for point in shown(found).points]
    assert len(points) == 2
    assert "nothing was delivered" in points[0]


def test_a_limit_that_few_trials_do_not_show_is_told_alike_in_every_output(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = judged(group(**GOOD), [ERRORS])
    found.thresholds = [
        ThresholdResult(
            leg="sockets", metric="web.delay.response.p95", bound=5e8, kind="max", value=1.62e6,
            interval=(14, 187e9), passed=False, n=2,
        )
    ]  # fmt: skip
    found.verdict = decide(found)
    assert (found.verdict, exit_code(found)) == ("fail", 99)
    sentence = (
        "web: response delay, 95th percentile: 1.62 ms is within 500 ms, but 2 trials are too few to show it "
        "with 95 % confidence (interval 14.0 ns … 187 s). Use --repeat 5."
    )
    assert [point.text() for point in shown(found).points] == [sentence]
    text = words(found, monkeypatch)
    assert sentence in text
    (row,) = (line for line in text.splitlines() if "max 500 ms" in line)
    assert row.endswith("not shown"), "value and interval disagree, which is no plain FAIL"
    (failure,) = ET.fromstring(junit(found)).iter("failure")
    assert failure.get("message") == sentence
    lines = markdown(found).splitlines()
    assert f"- {sentence}" in lines
    assert any(line.startswith("| not shown | sockets |") for line in lines)
    (first,) = threshold_tables(found)[0].table.rows
    assert getattr(first[0].text, "id", "") == "not shown"
    # a value beyond the limit is a plain failure
    found.thresholds[0].value = 6e8
    (row,) = (line for line in words(found, monkeypatch).splitlines() if "max 500 ms" in line)
    assert row.endswith("FAIL")


def test_an_interrupted_run_has_passed_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    found = judged(group(**GOOD), [ERRORS], interrupted=True)
    assert "no verdict: the run was interrupted" in words(found, monkeypatch)
    suite = ET.fromstring(junit(found))
    passed = [case.get("name") for case in suite.iter("testcase") if not len(case)]
    assert passed == ["validity"]
    assert shown(found).headline.id == "No verdict"


def test_a_host_that_was_done_without_stands_beside_the_verdict(monkeypatch: pytest.MonkeyPatch) -> None:
    found = judged(group(**GOOD), [ERRORS])
    assert found.verdict == "pass"
    (trial,) = found.legs[0].repetitions
    trial.hosts = [HostReport(name="left"), HostReport(name="right", lost="after 3 s")]
    sentence = "1 of 2 hosts generated the load; lost: right."
    assert [point.text() for point in shown(found).points] == [sentence]
    assert sentence in words(found, monkeypatch) and sentence in markdown(found)
    assert {name.id: text for name, text in facts(found)}["Hosts"] == "left, right"
    trial.hosts[1].lost = None
    assert shown(found).points == [] and "hosts generated" not in words(found, monkeypatch)


def test_a_stopped_run_is_told_as_stopped_in_every_output(monkeypatch: pytest.MonkeyPatch) -> None:
    found = judged(group(**GOOD), [ERRORS], interrupted=True)
    found.valid = False
    found.reasons = [Reason(code="ND-90-05", what="cut", value=22.0, limit=60.0)]
    sentence = "Interrupted after 22 s of 1 min. The figures are of that time."
    said = shown(found)
    assert (said.state, said.headline.id, said.lead.text()) == ("none", "Interrupted", sentence)
    assert not any("of the" in point.text() for point in said.points), "it is said once"
    text = words(found, monkeypatch)
    assert sentence in text and "INVALID" not in text and "ND-90-05" not in text
    assert sentence in markdown(found) and "do not draw conclusions" not in markdown(found)
    (error,) = ET.fromstring(junit(found)).iter("error")
    assert error.get("message") == sentence
    # with any other fault the measurement is not valid
    found.reasons.append(Reason(code="ND-90-02", what="late", value=2e7, limit=1e7))
    assert shown(found).headline.id == "Not valid"
    assert "INVALID" in words(found, monkeypatch) and "late" in words(found, monkeypatch)
    # cut short, and not on request
    found.reasons, found.interrupted = found.reasons[:1], False
    assert shown(found).lead.text().startswith("The measurement ended early.")


def test_a_run_without_thresholds_exits_0_and_says_no_verdict(
    profile: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    profile.write_text(json.dumps(PROFILE | {"thresholds": []}))
    assert app.call(["run", str(profile), "-q"]) == 0
    assert result(tmp_path)[0].verdict == "none"
    assert "no verdict" in capsys.readouterr().out
    assert app.call(["runs", "list"]) == 0
    assert "no verdict" in capsys.readouterr().out


def test_results_of_older_versions_are_read() -> None:
    old = {
        "id": "r", "name": "n", "started": "2026-01-01T00:00:00Z", "verdict": "pass", "valid": True,
        "legs": [{"name": "l", "repetitions": [{"run": "a", "groups": [{
            "name": "web", "errors": [{"kind": "reset", "count": 3}]}]}]}],
    }  # fmt: skip
    found = Result.model_validate(old)
    assert (found.verdict, found.checks, found.no_verdict) == ("pass", [], "")
    (one,) = found.legs[0].repetitions[0].groups
    assert (one.stalls, one.errors[0].total) == (None, None)


def test_the_core_says_who_asks() -> None:
    silent = group(messages_sent=5)
    for confirmed in (True, False):
        silent.confirmed = confirmed
        found = checks("leg", {"groups": [HTTP]}, [TrialResult(run="a", groups=[silent])])
        assert len(found) == confirmed


REFUSED = FailureCount(kind="refused", count=10, total=12)
CERTIFICATE = FailureCount(kind="tls", count=9, causes=[CauseCount(cause="certificate expired", count=9)])
HANG_UP = FailureCount(
    kind="tls", count=9, causes=[CauseCount(cause="closed during the TLS handshake", count=9)]
)
TOO_SLOW = FailureCount(kind="rejected", count=9, causes=[CauseCount(cause="408", count=9)])


@pytest.mark.parametrize(
    ("errors", "reasons", "answered", "code"),
    [
        ([REFUSED], [("ND-90-01", "web"), ("ND-90-03", None)], 0, 99),
        ([REFUSED, CERTIFICATE], [("ND-90-02", "web")], 0, 99),
        # what time may explain does not count against the server
        ([REFUSED, FailureCount(kind="timeout", count=1)], [("ND-90-02", "web")], 0, 90),
        ([HANG_UP], [("ND-90-02", "web")], 0, 90),
        ([TOO_SLOW], [("ND-90-02", "web")], 0, 90),
        # one answer in the warm-up: it can be used
        ([REFUSED], [("ND-90-02", "web")], 1, 90),
        # another cause of invalidity stays one
        ([REFUSED], [("ND-90-02", "web"), ("ND-90-04", "web")], 0, 90),
        ([], [("ND-90-02", "web")], 0, 90),
    ],
)
def test_a_target_that_says_it_cannot_be_used_fails_whatever_time_the_generator_had(
    errors: list[FailureCount], reasons: list[tuple[str, str | None]], answered: int, code: int
) -> None:
    failures = {one.kind: one.count for one in errors}
    one = group(messages_intended=10, messages_sent=10, failures=failures).model_copy(
        update={"errors": errors}
    )
    point = {"t": 1, "phase": "warmup", "groups": {"web": {"counts": {"messages_delivered": answered}}}}
    checked = Validity(valid=False, reasons=[Reason(code=c, group=g, what="") for c, g in reasons])
    trial = Repetition(run="r1", groups=[one], validity=checked, series=[SeriesPoint.model_validate(point)])
    made = Result(id="r", name="n", started="", legs=[Leg(name="sockets", repetitions=[trial])])
    judge_all(made, {"sockets": {"groups": [HTTP], "thresholds": [ERRORS | {"max": 0}]}}, 0.95)
    assert (exit_code(made), made.verdict) == (code, "fail")
