"""What the terminal says of calls: the delay that stands for a group, and each limit once."""

from __future__ import annotations

import io
from collections import deque
from typing import Any

import pytest
from rich.console import Console

from netdyno.cli import console, summary
from netdyno.cli.live_state import begin, take
from netdyno.cli.plain import PlainLines
from netdyno.core.result import Result
from netdyno.core.wire import SeriesPoint
from netdyno.experiment.view import Plan

CALLS = {"name": "calls", "intended": None, "offered": "flows_started", "delivered": "flows_completed"}
DELAYS = {
    name: {"count": 40, "min": 1, "mean": ns, "p50": ns, "p90": ns, "p95": ns, "p99": ns, "max": ns}
    for name, ns in (
        ("first_audio", 2_000_000),
        ("session_disconnect", 3_000_000),
        ("session_request", 9_000_000),
    )
}
"""Of callers with audio, in the order in which results have them."""


def shown(thresholds: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch) -> str:
    group = {
        "name": "callers",
        "protocol": "sip",
        "devices": 4,
        "delays": DELAYS,
        "unit": CALLS,
        "indices": {"ser": 1.0},
    }
    leg = {"name": "proxy", "transport": "sockets", "summary": {"n": 1, "groups": [group]}}
    plain = {
        "id": "r",
        "started": "2026-01-01T00:00:00Z",
        "name": "calls",
        "legs": [leg],
        "thresholds": thresholds,
    }
    text = io.StringIO()
    monkeypatch.setattr(console, "out", lambda: Console(file=text, width=160))
    summary.show(Result.model_validate(plain))
    return text.getvalue()


def threshold(metric: str, **more: Any) -> dict[str, Any]:
    unit = {
        "metric": metric,
        "bound": 1.5e9 if "delay" in metric else 1.0,
        "kind": "max",
        "value": 9e6,
        "passed": True,
    }
    return unit | more


def test_calls_with_audio_are_headed_by_their_session_request_delay(monkeypatch: pytest.MonkeyPatch) -> None:
    text = shown([], monkeypatch)
    headline = next(line for line in text.splitlines() if line.split()[:2] == ["callers", "4"])
    assert "session_request" in headline and "9" in headline and "first_audio" not in headline, text
    assert any("first_audio" in line and "2" in line for line in text.splitlines()), "a metric of its own"


def test_the_live_view_heads_calls_by_the_same_delay() -> None:
    # audio comes more often than a call begins
    often = {"first_audio": DELAYS["first_audio"] | {"count": 400}}
    point = {"phase": "measure", "dt": 1.0, "t": 1.0, "groups": {"callers": {"delays": DELAYS | often}}}
    plan: Plan = {"groups": [{"name": "callers", "protocol": "sip", "devices": 4, "unit": CALLS}]}
    state = begin(plan, deque())
    take(state, SeriesPoint.model_validate(point))
    assert state.groups["callers"].delay_of == "session_request"
    assert state.p99_of == "callers session_request" and state.p99[-1] == 9_000_000


def test_a_limit_is_shown_once(monkeypatch: pytest.MonkeyPatch) -> None:
    limits = [
        threshold("callers.delay.session_request.p95"),
        threshold("callers.index.ser", kind="min"),
        threshold("callers.errors", bound=0.0, value=0.0),
    ]
    text = shown(limits, monkeypatch)
    assert "callers.delay.session_request.p95" not in text and "callers.index.ser" not in text, text
    assert text.count("pass") == 3 and "callers.errors" in text, text


def test_a_second_limit_of_a_delay_and_an_interval_are_not_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    limits = [
        threshold("callers.delay.session_request.p95", passed=False),
        threshold("callers.delay.session_request.p99"),
        threshold("callers.index.ser", kind="min", interval=(0.9, 1.0)),
    ]
    text = shown(limits, monkeypatch)
    assert "callers.delay.session_request.p95" not in text and text.count("not shown") == 1, text
    assert "callers.delay.session_request.p99" in text and "callers.index.ser" in text, text


def test_lines_of_a_run_without_a_terminal_have_it_too() -> None:
    to = io.StringIO()
    lines = PlainLines(to)
    group = {"name": "callers", "protocol": "sip", "devices": 4, "unit": CALLS}
    lines.start({"leg": "proxy", "target": "sip://10.0.0.1", "duration": 5, "groups": [group]})
    counts = {"flows_started": 40, "flows_completed": 40}
    lines.sample(
        {"t": 1.0, "dt": 1.0, "phase": "measure", "groups": {"callers": {"counts": counts, "delays": DELAYS}}}
    )
    assert "session_request p50 9" in to.getvalue() and "first_audio" not in to.getvalue(), to.getvalue()
