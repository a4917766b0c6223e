"""What a result says of SIP besides: verdicts by limits of delay and by Timers B and F, and BHCA."""

from __future__ import annotations

from typing import Any

import pytest

from netdyno.core.result import Result
from netdyno.report.locale import catalogues
from netdyno.report.verdict import verdict
from netdyno.sip import remarks


def result(
    thresholds: list[tuple[str, bool]],
    answered: int = 0,
    model: str = "sip",
    delivered: int = 100,
    failures: dict[str, int] | None = None,
) -> Result:
    """A run of 10 s with these thresholds, and whether they passed; how many failed, by kind."""
    measured = {"sessions_answered": answered, "messages_delivered": delivered, "failures": failures or {}}
    made: dict[str, Any] = {
        "id": "r",
        "name": "n",
        "started": "",
        "valid": True,
        "verdict": "pass" if all(passed for _, passed in thresholds) else "fail",
        "thresholds": [
            {
                "leg": "a",
                "metric": metric,
                "kind": "max",
                "bound": 1.0,
                "value": 0.5 if passed else 2.0,
                "passed": passed,
            }
            for metric, passed in thresholds
        ],
        "legs": [
            {
                "name": "a",
                "transport": "sockets",
                "repetitions": [{"run": "r", "phases": {"measure": 10.0}}],
                "summary": {
                    "n": 1,
                    "groups": [{"name": "g", "protocol": model, "measured": measured}],
                },
            }
        ],
    }
    return Result.model_validate(made)


@pytest.mark.parametrize("limits", [True, False])
@pytest.mark.parametrize("timers", [True, False])
def test_both_verdicts_are_told_apart(limits: bool, timers: bool) -> None:
    judged = [("g.delay.session_request.p95", limits), ("g.index.ser", timers), ("g.errors", True)]
    found = result(judged, failures={} if timers else {"unanswered": 1})
    said = remarks.remarks(found)
    words = {True: "pass", False: "fail"}
    assert {one.name: one.verdict for one in said} == {
        "delay_limits": words[limits],
        "timers_b_f": words[timers],
    }
    (text,) = [one.text for one in said if one.message]
    assert text.startswith("g: over a limit" if not limits else "g: within the limits")
    assert ("not all within" in text) is (not timers)


@pytest.mark.parametrize(
    ("metric", "failures", "delivered", "verdict"),
    [
        # all had their final response
        ("g.counts.one_way_audio_calls", {}, 100, "pass"),
        ("g.counts.srtp_unauthenticated", {}, 100, "pass"),
        ("g.index.ended_by_callee", {}, 100, "pass"),
        ("g.index.ser", {"rejected": 1, "protocol": 1}, 100, "pass"),
        ("g.errors", {"timeout": 1, "closed": 1}, 100, "pass"),
        # one had none
        ("g.index.ser", {"rejected": 5, "unanswered": 1}, 100, "fail"),
        ("g.errors", {"refused": 1}, 100, "fail"),
        ("g.errors", {"timeout": 9}, 0, "fail"),
    ],
)
def test_only_a_request_without_a_final_response_is_over_timers_b_and_f(
    metric: str, failures: dict[str, int], delivered: int, verdict: str
) -> None:
    judged = [("g.delay.session_request.p95", True), (metric, False)]
    (limits, timers) = remarks.remarks(result(judged, delivered=delivered, failures=failures))
    assert (limits.verdict, timers.verdict) == ("pass", verdict)
    assert ("not all within Timers" in limits.text) is (verdict == "fail")


def test_calls_an_hour_are_those_of_the_measure_phase() -> None:
    (said,) = remarks.remarks(result([], answered=250))
    assert (said.name, said.value, said.text) == (
        "bhca",
        90_000.0,
        "g: 90,000 calls answered an hour (BHCA).",
    )


def test_other_models_and_no_thresholds_say_nothing() -> None:
    assert remarks.remarks(result([("g.errors", True)], 10, model="http")) == []
    assert remarks.remarks(result([])) == []
    (one, other) = remarks.remarks(result([("g.errors", True)]))
    assert (one.verdict, other.verdict) == ("none", "pass")


def test_the_report_says_it_in_both_languages() -> None:
    found = result([("g.delay.session_request.p95", True), ("g.index.ser", True)], answered=10)
    found.remarks = remarks.remarks(found)
    points = [one.id for one in verdict(found).points]
    assert points == [one.message for one in found.remarks if one.message] and len(points) == 2
    known = catalogues()
    messages = [*(one.id for one in remarks.VERDICTS.values()), remarks.BHCA.id]
    assert all(message in known["ko"] and known["ko"][message] != message for message in messages)
