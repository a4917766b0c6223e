"""What a load is counted in: calls and registrations where messages are steps of them."""

from __future__ import annotations

from typing import Any

import pytest

from netdyno.cli import indices, plain
from netdyno.core import load_unit
from netdyno.core.result import Estimate, GroupSummary, Leg, Result, Summary, ThresholdResult
from netdyno.core.wire import Counts, Distribution, LoadUnit

CALLS = LoadUnit(
    name="calls", intended="flows_intended", offered="flows_started", delivered="flows_completed"
)
RESULT = Result(id="r", name="sip", started="", verdict="fail")
TAKEN = LoadUnit(name="calls", offered="calls_received", delivered="answers_acknowledged")


def group(unit: LoadUnit | None, **more: Any) -> GroupSummary:
    counts = Counts(
        messages_intended=40, messages_sent=40, messages_delivered=36,
        flows_intended=20, flows_started=20, flows_completed=15, calls_received=20, answers_acknowledged=20,
    )  # fmt: skip
    return GroupSummary(name="g", protocol="sip", unit=unit, measured=counts, **more)


def test_a_call_that_did_not_end_well_is_lost_whatever_its_messages() -> None:
    assert load_unit.loss(group(CALLS)) == 0.25
    assert load_unit.loss(group(None, loss=Estimate(n=1, mean=0.1))) == 0.1
    assert load_unit.loss(group(TAKEN)) is None, "who is called asks for nothing"


def test_rates_are_those_of_the_unit_and_of_messages_in_older_results() -> None:
    one = Estimate(n=1, mean=9.8)
    assert load_unit.rate(group(CALLS, rates={"offered": one}), "offered") == 9.8
    assert load_unit.rate(group(TAKEN, rates={"intended": one}), "intended") is None
    assert load_unit.rate(group(None, rates={"messages_sent": one}), "offered") == 9.8


def lines(counts: dict[str, Any], unit: LoadUnit | None, capsys: pytest.CaptureFixture[str]) -> str:
    said = plain.PlainLines()
    about = {"name": "g", "protocol": "sip", "devices": 3}
    if unit is not None:
        about["unit"] = unit.model_dump()
    said.start({"groups": [about], "leg": "a", "target": "t", "duration": 1.0})
    said.sample({"t": 1.0, "dt": 1.0, "phase": "measure", "groups": {"g": {"counts": counts}}})
    return capsys.readouterr().err


def test_a_line_of_a_run_counts_calls(capsys: pytest.CaptureFixture[str]) -> None:
    counts = group(None).measured.model_dump()
    assert "g: 20 calls/s intended, 20/s offered, 15/s completed" in lines(counts, CALLS, capsys)
    assert "g: 20 calls/s offered, 20/s completed" in lines(counts, TAKEN, capsys)
    assert "g: 40/s intended, 40/s offered, 36/s delivered" in lines(counts, None, capsys)


def test_indices_have_names_limits_and_verdicts(capsys: pytest.CaptureFixture[str]) -> None:
    delay = Distribution(count=4, min=1e6, mean=2e6, p50=2e6, p90=3e6, p99=3e6, p999=3e6, max=4e6, sd=0)
    found = {"ser": 0.75, "isa": 0.0, "redirect_success": 0.0, "ira": None}
    summary = Summary(n=1, groups=[group(CALLS, indices=found, delays={"session_request": delay})])
    limits = [
        ThresholdResult(metric="g.index.ser", bound=1, kind="min", value=0.75, passed=False),
        ThresholdResult(
            metric="g.delay.session_request.p95", bound=1.5e9, kind="max", value=3e6, passed=True
        ),
        ThresholdResult(
            metric="g.delay.session_disconnect.p95", bound=5e8, kind="max", value=None, passed=False
        ),
    ]
    indices.show(Leg(name="a", summary=summary), limits)
    rows = [line.split() for line in capsys.readouterr().out.splitlines() if line.startswith("g ")]
    assert [row[1] for row in rows] == ["ser", "isa", "session_request", "session_disconnect"]
    assert rows[0][2:] == ["75%", "min", "100%", "FAIL"] and rows[1][2:] == ["0%"]
    assert rows[2][2] == "(SRD)" and rows[2][-4:] == ["max", "1.5", "s", "pass"]
    assert rows[3][-2:] == ["not", "judged"], "nothing was measured for it"


def test_a_load_of_messages_has_no_such_table(capsys: pytest.CaptureFixture[str]) -> None:
    leg = Leg(name="a", summary=Summary(n=1, groups=[group(None, indices={"ser": 1.0})]))
    indices.show(leg, [])
    assert capsys.readouterr().out == ""
