"""Scenarios of one's own: what is wrong with a step is named by line and column, and an assertion that fails by line."""

from __future__ import annotations

import pytest
from lab import Lab
from test_sip import group
from test_sip_connections import served

LOAD = ("--rate", "20/s", "--users", "10", "--duration", "1s", "--warmup", "0s", "--quiet")


@pytest.mark.parametrize(
    ("steps", "place", "said"),
    [
        (
            "- send: {method: OPTIONS}\n- expect:\n    status: 200\n    stauts: 4xx\n",
            "line 4 column 5",
            "stauts",
        ),
        ("- send: {method: OPTIONS}\n- pause: 2 parsecs\n", "line 2 column 3", "parsecs"),
        (
            "- send:\n    method: MESSAGE\n    body: '{response.number}'\n- expect: {status: 200}\n",
            "line 3 column 5",
            "number",
        ),
        (
            "- send: {method: OPTIONS}\n- expect:\n    status: 200\n    capture:\n      word:\n        regex: '('\n",
            "line 6 column 9",
            "regex",
        ),
        (
            "- send: {method: OPTIONS}\n- expect: {status: 200, then: nowhere}\n",
            "line 2 column 25",
            "nowhere",
        ),
        (
            "- label: a\n- repeat:\n    count: 2\n    steps: [pause: 1s, goto: b]\n",
            "line 4 column 24",
            "no label",
        ),
        ("- assert: {value: a}\n", "line 1 column 3", "no condition"),
        ("- set: {name: a b, value: c}\n", "line 1 column 9", "name"),
    ],
)
def test_a_fault_is_named_by_line_and_column(lab: Lab, steps: str, place: str, said: str) -> None:
    path = lab.write("mine.yaml", steps)
    done = lab.run("sip", "load", "sip:127.0.0.1", "--scenario", path, *LOAD)
    assert done.code == 104, done.text
    assert "ND-104" in done.text and f"mine.yaml: {place}" in done.text and said in done.text, done.text


STEPS = """- send: {method: OPTIONS}
- expect: {status: 200, capture: {cseq: {header: CSeq}}}
- set: {name: next, value: "{response.cseq}", regex: "[0-9]+", add: 1}
- repeat:
    count: 1
    steps:
      - pause: 1ms
      - assert: {value: "{response.next}", is: "NUMBER"}
"""


@pytest.mark.parametrize(("number", "code"), [(2, (0, 90)), (3, (99, 90))])
def test_an_assertion_names_its_line(lab: Lab, number: int, code: tuple[int, ...]) -> None:
    path = lab.write("mine.yaml", STEPS.replace("NUMBER", str(number)))
    with served(lab, "uas") as (port, counted):
        done = lab.run("sip", "load", f"sip:127.0.0.1:{port}", "--scenario", path, "--to", "", *LOAD)
    assert done.code in code, done.text
    phones = group(done, "phones")
    assert counted["requests"]["OPTIONS"] > 5
    if number == 2:
        assert phones.total.flows_completed > 5 and not phones.errors
        return
    (error,) = phones.errors
    assert [one.cause for one in error.causes] == ["an assertion of the scenario failed"]
    assert 'mine.yaml:8: the value "2" is not "3"' in done.text, done.text


@pytest.mark.parametrize("method", ["update", "invite"])
def test_calls_are_refreshed_by_their_session_timer(lab: Lab, method: str) -> None:
    """Whoever the 200 names refreshes, after six seconds."""
    with served(lab, "proxy") as (port, counted):
        words = (
            "sip",
            "call",
            f"sip:127.0.0.1:{port}",
            "--domain",
            "example.net",
            "--hold",
            "7s",
            "--users",
            "9",
        )
        timer = (
            "--session-timer",
            "12s",
            "--refresh",
            method,
            "--rate",
            "1/s",
            "--duration",
            "12s",
            "--warmup",
            "0s",
        )
        done = lab.run(*words, *timer, "--quiet")
    assert done.code in (0, 90, 99), done.text
    callers, callees = group(done, "callers").total.own, group(done, "callees").total.own
    assert callers["sessions_completed"] == callers["session_requests"] > 1
    # those of the first seconds last for seven, and are refreshed after six
    refreshes = callers["session_refreshes"] + callees["session_refreshes"]
    assert refreshes > 2
    assert callers["sessions_expired"] == callees["sessions_expired"] == 0
    asked = counted["requests"]["UPDATE"] if method == "update" else counted["requests"]["INVITE"]
    assert asked >= refreshes + (callers["session_requests"] if method == "invite" else 0)
