"""What a result says of SIP besides: verdicts by limits of delay and by Timers B and F, and BHCA."""

from __future__ import annotations

from typing import Any

import pytest

from netdyno.core.result import Result
from netdyno.report.locale import catalogues
from netdyno.report.verdict import verdict
from netdyno.sip import remarks


def result(thresholds: list[tuple[str, bool]], answered: int = 0, model: str = "sip") -> Result:
    """A run of 10 s with these thresholds, and whether they passed."""
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
                    "groups": [{"name": "g", "protocol": model, "measured": {"sessions_answered": answered}}],
                },
            }
        ],
    }
    return Result.model_validate(made)


@pytest.mark.parametrize("limits", [True, False])
@pytest.mark.parametrize("timers", [True, False])
def test_both_verdicts_are_told_apart(limits: bool, timers: bool) -> None:
    found = result([("g.delay.session_request.p95", limits), ("g.index.ser", timers), ("g.errors", True)])
    said = remarks.remarks(found)
    words = {True: "pass", False: "fail"}
    assert {one.name: one.verdict for one in said} == {
        "delay_limits": words[limits],
        "timers_b_f": words[timers],
    }
    (text,) = [one.text for one in said if one.message]
    assert text.startswith("g: over a limit" if not limits else "g: within the limits")
    assert ("not all within" in text) is (not timers)


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
