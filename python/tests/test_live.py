"""The live view: what it draws, at every size, and that it gives the terminal back."""

from __future__ import annotations

import io
from collections import deque
from typing import Any

import pytest
from rich.cells import cell_len
from rich.console import Console

from netdyno.cli.live import Live, State, begin, take
from netdyno.cli.live_frame import bar, render_frame, render_summary, sparkline
from netdyno.model import Sample
from tests.report import sample


@pytest.fixture(scope="module")
def trial() -> dict[str, Any]:
    return sample.result()["legs"][0]["repetitions"][0]


PLAN = {
    "title": "iot-demo", "target": "mqtt://10.77.0.2:1883, http://10.77.0.2:8080", "transport": "sockets",
    "leg": "iot mixed", "repetition": 1, "repetitions": 2, "duration": 24.0,
}  # fmt: skip


def fed(trial: dict[str, Any], points: int, **changes: Any) -> State:
    state = begin(
        PLAN | {"groups": trial["groups"]} | changes, deque(["12:00:01 info  first", "12:00:02 warn  second"])
    )
    state.run_state = "running"
    for point in trial["series"][:points]:
        take(state, Sample.model_validate(point))
        state.left = 24 - state.elapsed
    state.duts = {"mosquitto": 0.61, "nginx": 0.18}
    return state


def draw(state: State, width: int, height: int) -> list[str]:
    console = Console(file=io.StringIO(), width=width, height=height, color_system=None)
    with console.capture() as captured:
        console.print(render_frame(state, width, height))
    return captured.get().rstrip("\n").split("\n")


@pytest.mark.parametrize("width", [80, 97, 120, 200])
@pytest.mark.parametrize("height", [6, 12, 24, 60])
@pytest.mark.parametrize("points", [0, 1, 24])
def test_fits_any_terminal(trial: dict[str, Any], width: int, height: int, points: int) -> None:
    state = fed(trial, points, title="긴 이름 " * 30, target="x" * 500)
    lines = draw(state, width, height)
    assert len(lines) <= height
    assert max(map(cell_len, lines)) <= width


def test_eighty_columns_say_what_matters(trial: dict[str, Any]) -> None:
    lines = draw(fed(trial, 12), 80, 24)
    text = "\n".join(lines)
    assert lines[0].startswith("netdyno iot-demo")
    assert lines[0].endswith("iot mixed · 1/2 · sockets")
    assert lines[2].startswith("measure   ━")
    assert lines[2].endswith("12 s / 24 s, 12 s left")
    head = next(line for line in lines if line.startswith("group"))
    assert head.split() == ["group", "offered/s", "achieved/s", "p50", "p99", "loss", "errors"]
    assert [line.split()[0] for line in lines[5:8]] == ["sensors", "web", "probe"]
    for word in ("achieved", "core 1", "mosquitto", "nd-veth0", "pps", "bit/s", "12:00:02 warn  second"):
        assert word in text


def test_wide_screens_show_more(trial: dict[str, Any]) -> None:
    text = "\n".join(draw(fed(trial, 12), 140, 40))
    for word in ("intended/s", "max", "active", "960 of 2 400", "sensors mqtt"):
        assert word in text


def test_more_groups_than_room(trial: dict[str, Any]) -> None:
    groups = [{"name": f"g{i}", "protocol": "ping", "devices": 1} for i in range(60)]
    lines = draw(begin(PLAN | {"groups": groups}, deque()), 100, 24)
    assert len(lines) <= 24
    assert any("more groups" in line for line in lines)


def test_loss_is_a_bound_until_all_is_drained(trial: dict[str, Any]) -> None:
    state = fed(trial, 24)
    lost = state.groups["sensors"].sent - state.groups["sensors"].delivered
    assert lost > 0
    assert "≤ 0." in "\n".join(draw(state, 80, 24))
    state.run_state = "done"
    assert "≤" not in "\n".join(draw(state, 80, 24))


@pytest.mark.parametrize(
    ("change", "warning"),
    [
        (lambda p: p["groups"]["web"]["lateness"].update(p99=31e6), "web: the generator is late by 31 ms"),
        (lambda p: p["groups"]["web"]["counts"].update(messages_sent=5), "web: only"),
        (lambda p: p["workers"][0].update(starved=0.9), "core 1 waited for its CPU"),
    ],
)
def test_says_at_once_what_makes_a_run_invalid(trial: dict[str, Any], change: Any, warning: str) -> None:
    import copy

    state = fed(trial, 4)
    assert state.warnings == {}
    point = copy.deepcopy(trial["series"][4])
    change(point)
    for _ in range(3):
        take(state, Sample.model_validate(point))
    assert any(warning in line for line in draw(state, 80, 24))


def test_control_characters_do_not_reach_the_terminal(trial: dict[str, Any]) -> None:
    state = fed(trial, 2, title="a\x1b[2Jb")
    state.logs.append("evil \x1b]0;title\x07\r line")
    assert "\x1b" not in "\n".join(draw(state, 100, 30))


def test_sparkline_and_bar() -> None:
    assert sparkline([0, 4, None, 8], 10) == "▁▄ █"
    assert sparkline([1, 2, 3], 2) == "▅█"
    assert sparkline([0, 0], 5) == "▁▁"
    assert bar(0.5, 4) == "██  "
    assert bar(2.0, 3) == "███"


def test_close_leaves_a_summary_and_may_be_called_twice(trial: dict[str, Any]) -> None:
    out = io.StringIO()
    live = Live(Console(file=out, width=100, height=30, force_terminal=True), screen=True)
    for repetition in (1, 2):
        live.start(PLAN | {"repetition": repetition, "groups": trial["groups"]})
        for point in trial["series"][:3]:
            live.sample(point)
        live.state({"state": "done", "phase": "drain", "elapsed": 3, "left": 0})
    live.dut("nginx", 0.4)
    live.log("said")
    live.close()
    live.close()
    tail = out.getvalue().split("\x1b[?1049l")[-1]
    assert "\x1b[?1049h" in out.getvalue()
    for word in ("iot mixed 1/2", "iot mixed 2/2", "done after 3 s", "sensors", "not confirmed"):
        assert word in tail


def test_summary_tells_of_errors(trial: dict[str, Any]) -> None:
    state = fed(trial, 24)
    state.run_state, state.error = "failed", "broker gone"
    console = Console(file=io.StringIO(), width=80, color_system=None)
    with console.capture() as captured:
        console.print(render_summary([state], 80))
    assert "failed after 24 s" in captured.get()
    assert "✕ broker gone" in captured.get()
