"""The live view: what it draws, at every size, and that it gives the terminal back."""

from __future__ import annotations

import copy
import io
import re
from collections import deque
from typing import Any

import pytest
from rich.cells import cell_len
from rich.console import Console

from netdyno import quantities
from netdyno.cli import console
from netdyno.cli.live import Live
from netdyno.cli.live_frame import bar, render_frame, render_summary, sparkline
from netdyno.cli.live_state import Group, State, begin, share_over, take
from netdyno.cli.plain import PlainLines
from netdyno.core.wire import Counts, GroupPoint, Quantiles, SeriesPoint
from netdyno.report.text import M
from tests.report import sample


@pytest.fixture(scope="module")
def trial() -> dict[str, Any]:
    return sample.result()["legs"][0]["repetitions"][0]


PLAN = {
    "title": "iot-demo", "target": "mqtt://10.77.0.2:1883, http://10.77.0.2:8080", "transport": "sockets",
    "leg": "iot mixed", "repetition": 1, "repetitions": 2, "trial": 3, "trials": 4, "duration": 24.0,
}  # fmt: skip


def fed(trial: dict[str, Any], points: int, **changes: Any) -> State:
    state = begin(
        PLAN | {"groups": trial["groups"]} | changes, deque(["12:00:01 info  first", "12:00:02 warn  second"])
    )
    state.run_state = "running"
    for point in trial["series"][:points]:
        take(state, SeriesPoint.model_validate(point))
        state.left = 24 - state.elapsed
    state.duts = {"mosquitto": 0.61, "nginx": 0.18}
    return state


def draw(state: State, width: int, height: int) -> list[str]:
    console = Console(file=io.StringIO(), width=width, height=height, color_system=None)
    with console.capture() as captured:
        console.print(render_frame(state, width, height))
    return captured.get().rstrip("\n").split("\n")


@pytest.mark.parametrize("width", [40, 50, 80, 97, 120, 200])
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
    assert lines[0].endswith("iot mixed · 1/2 · trial 3 of 4 · sockets")
    assert lines[2].startswith("measure   ━")
    assert lines[2].endswith("12 s / 24 s, 12 s left")
    head = next(line for line in lines if line.startswith("group"))
    assert head.split() == ["group", "intended/s", "offered/s", "delivered/s", "p50", "p99", "loss", "errors"]
    assert [line.split()[0] for line in lines[5:8]] == ["sensors", "web", "probe"]
    for word in ("delivered", "core 1", "mosquitto", "nd-veth0", "pps", "bit/s", "12:00:02 warn  second"):
        assert word in text


@pytest.mark.parametrize(("transport", "shown"), [("sockets", ["lo", "nic0"]), ("dpdk", ["nic0"])])
def test_the_hosts_loopback_is_nothing_to_dpdk_ports(
    trial: dict[str, Any], transport: str, shown: list[str]
) -> None:
    state = fed(trial, 1, transport=transport)
    point = copy.deepcopy(trial["series"][1])
    point["interfaces"] = {name: {"tx_packets": 100, "rx_packets": 100} for name in ("lo", "nic0")}
    take(state, SeriesPoint.model_validate(point))
    assert list(state.interfaces) == shown
    assert any(line.startswith("nic0") for line in draw(state, 120, 60))


def test_what_a_stack_sends_again_and_drops_is_shown_at_its_port(trial: dict[str, Any]) -> None:
    state = fed(trial, 1, transport="dpdk")
    point = copy.deepcopy(trial["series"][1]) | {"dt": 1.0}
    counted = {"tx_packets": 100, "rx_packets": 100, "tcp_segments_sent": 90, "tcp_retransmitted": 7}
    point["interfaces"] = {"a": counted, "b": counted | {"tcp_retransmitted": 0, "dropped_bad_checksum": 3}}
    take(state, SeriesPoint.model_validate(point))
    (a,) = [line for line in draw(state, 130, 60) if line.startswith("a ")]
    (b,) = [line for line in draw(state, 130, 60) if line.startswith("b ")]
    assert re.search(r"TCP 90.0\W/s segments, 7.00\W/s sent again *$", a), a
    assert re.search(r"TCP 90.0\W/s segments +3.00\W/s dropped$", b), b


def test_small_screens_keep_names_and_the_main_figures(trial: dict[str, Any]) -> None:
    lines = draw(fed(trial, 12), 50, 12)
    head = next(i for i, line in enumerate(lines) if line.startswith("group"))
    assert lines[head].split() == ["group", "offered/s", "delivered/s", "p99", "errors"]
    assert [line.split()[0] for line in lines[head + 1 : head + 4]] == ["sensors", "web", "probe"]


def test_wide_screens_show_more(trial: dict[str, Any]) -> None:
    text = "\n".join(draw(fed(trial, 12), 140, 40))
    for word in ("intended/s", "max", "delay", "active", "960 of 2,400", "sensors mqtt"):
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
        (
            lambda p: p["groups"]["web"]["lateness"].update(p99=31e6, p999=31e6, max=31e6),
            "went out over 10 ms late",
        ),
        (lambda p: p["groups"]["web"]["counts"].update(messages_sent=5), "web: only"),
        (lambda p: p["groups"]["web"]["counts"].update(flows_intended=900), "of the intended flows offered"),
        (lambda p: p["workers"][0].update(starved=0.9), "core 1 waited for its CPU"),
    ],
)
def test_says_at_once_what_makes_a_run_invalid(trial: dict[str, Any], change: Any, warning: str) -> None:
    state = fed(trial, 4)
    assert state.warnings == {}
    point = copy.deepcopy(trial["series"][4])
    change(point)
    for _ in range(3):
        take(state, SeriesPoint.model_validate(point))
    assert any(warning in line for line in draw(state, 80, 24))


def test_a_warning_goes_when_it_is_no_longer_true(trial: dict[str, Any]) -> None:
    state = fed(trial, 4)
    late = copy.deepcopy(trial["series"][4])
    late["groups"]["web"]["lateness"].update(p90=11e6, p99=12e6, p999=13e6, max=14e6)
    take(state, SeriesPoint.model_validate(late))
    assert "web late" in state.warnings
    for point in trial["series"][5:20]:
        take(state, SeriesPoint.model_validate(point))
    assert state.warnings == {}


def test_more_warnings_than_room_are_counted(trial: dict[str, Any]) -> None:
    state = fed(trial, 4)
    state.warnings = {str(i): M(f"warning {i}") for i in range(5)}
    warned = [line for line in draw(state, 80, 24) if line.startswith("!")]
    assert len(warned) == 3
    assert warned[-1].rstrip().endswith("… and 3 more warnings")


def test_the_end_of_a_drain_is_no_rate(trial: dict[str, Any]) -> None:
    state = fed(trial, 12)
    before = copy.deepcopy(state)
    last = copy.deepcopy(trial["series"][12]) | {"dt": 0.001}
    last["workers"][0]["cpu"] = 1.0
    take(state, SeriesPoint.model_validate(last))
    assert (state.workers, state.throughput, state.p99) == (before.workers, before.throughput, before.p99)
    sent = last["groups"]["web"]["counts"]["messages_sent"]
    assert state.groups["web"].sent == before.groups["web"].sent + sent > before.groups["web"].sent


def test_done_is_done_however_early(trial: dict[str, Any]) -> None:
    state = fed(trial, 12)
    state.run_state = "done"
    line = draw(state, 80, 24)[2]
    assert line.startswith("done      ━")
    assert line.endswith("━ after 12 s")


def test_errors_are_told_by_kind(trial: dict[str, Any]) -> None:
    point = copy.deepcopy(trial["series"][0])
    point["groups"]["sensors"]["counts"]["failures"] = {"timeout": 3, "refused": 4321}
    state = fed(trial, 0)
    take(state, SeriesPoint.model_validate(point))
    assert "errors    sensors: refused 4,321, timeout 3" in draw(state, 80, 24)


COAP = {"groups": [{"name": "sensors", "protocol": "coap", "devices": 10}]}


def test_counters_and_indices_that_a_model_declares_are_shown(trial: dict[str, Any]) -> None:
    point = copy.deepcopy(trial["series"][0])
    point["groups"] = {"sensors": point["groups"]["sensors"]}
    point["groups"]["sensors"]["counts"] |= {"messages_sent": 1000, "retransmissions": 25, "notifications": 0}
    state = begin(PLAN | COAP, deque())
    assert not any(line.startswith("counts") for line in draw(state, 80, 24))
    for _ in range(2):
        take(state, SeriesPoint.model_validate(point))
    assert "counts    sensors: retransmissions 50, retransmission_ratio 2.50 %" in draw(state, 80, 24)


def test_plain_lines_have_the_declared_counters_that_should_be_few(trial: dict[str, Any]) -> None:
    out = io.StringIO()
    lines, point = PlainLines(out), copy.deepcopy(trial["series"][12])
    point["groups"] = {"sensors": point["groups"]["sensors"]}
    point["groups"]["sensors"]["counts"] |= {"retransmissions": 25, "notifications": 7}
    lines.start(PLAN | COAP)
    lines.sample(point)
    line = next(line for line in out.getvalue().splitlines() if " sensors: " in line)
    assert line.endswith(", 25 retransmissions")
    assert "notifications" not in line


def test_long_names_take_the_room_of_what_matters_less() -> None:
    names = [{"name": name, "protocol": "mqtt", "devices": 1} for name in ("subscribers-of-all", "b")]
    lines = draw(begin(PLAN | {"groups": names}, deque()), 80, 24)
    assert any(line.startswith("subscribers-of-all ") for line in lines)
    assert not any("intended/s" in line for line in lines)


@pytest.mark.parametrize(
    ("limit", "share"),
    [(5, 1.0), (10, 1.0), (100, 0.5), (1e3, 0.1), (1e4, 0.01), (10**1.5, 0.75), (1e6, 0.0)],
)
def test_share_over(limit: float, share: float) -> None:
    q = Quantiles(count=1000, min=10, p50=100, p90=1e3, p99=1e4, p999=1e5, max=1e6)
    assert share_over(q, limit) == pytest.approx(share)


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


def test_plain_lines_are_in_order_and_leave_out_what_says_nothing() -> None:
    def point(phase: str, dt: float, count: int, **failures: int) -> dict[str, Any]:
        one = {
            "counts": {
                "messages_intended": count, "messages_sent": count, "messages_delivered": count,
                "failures": failures,
            }
        }  # fmt: skip
        idle = {"counts": dict.fromkeys(("messages_intended", "messages_sent", "messages_delivered"), 0)}
        return {
            "t": 1, "dt": dt, "phase": phase, "workers": [{"cpu": 0.5}, {"cpu": 1}],
            "groups": {"a": one, "b": idle},
        }  # fmt: skip

    out = io.StringIO()
    view = PlainLines(out)
    named = [{"name": n, "protocol": "mqtt", "devices": 1} for n in ("b", "a")]
    view.start({"leg": "l", "target": "x", "duration": 3, "groups": named})
    view.dut("broker", 0.25)
    view.sample(point("measure", 1, 8))
    view.sample(point("drain", 1, 2))
    view.sample(point("drain", 0.001, 0, timeout=4))
    view.sample(point("drain", 0.001, 0))
    _, *lines = out.getvalue().splitlines()
    assert lines == [
        "   1.0 s measure  b: 0/s intended, 0/s offered, 0/s delivered",
        "   1.0 s measure  a: 8/s intended, 8/s offered, 8/s delivered",
        "                  cpu: generator 50% 100%, broker 25%",
        "   1.0 s drain    a: 2/s intended, 2/s offered, 2/s delivered",
        "                  cpu: generator 50% 100%, broker 25%",
        "   1.0 s drain    a: 4 failed (timeout)",
    ]


def test_a_table_leaves_out_what_is_spare_before_it_breaks_words(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def lines(width: int) -> list[str]:
        to = Console(file=io.StringIO(), width=width)
        monkeypatch.setattr(console, "out", lambda: to)
        rows = [("sensors", "2 ms", "7 ms"), ("web", "20 ms", "none")]
        console.table(("group", "p50", "max"), rows, right=("p50",), spare=("max",))
        assert isinstance(to.file, io.StringIO)
        return to.file.getvalue().splitlines()

    assert lines(20) == ["group      p50  max ", "sensors   2 ms  7 ms", "web      20 ms  none"]
    assert lines(19) == ["group      p50", "sensors   2 ms", "web      20 ms"]


def test_numbers_in_words() -> None:
    assert [quantities.number(x, "ratio") for x in (0, 0.001, 0.012345, 1)] == [
        "0%",
        "0.1%",
        "1.234%",
        "100%",
    ]
    assert quantities.delay(1500) == "1.5 µs"


def test_no_loss_is_shown_where_nobody_confirms() -> None:
    group = Group("s", sent=10, confirmed=False)
    assert group.open is None
    group.delivered = 9
    assert group.open == pytest.approx(0.1), "somebody counts at the far end after all"
    assert Group("s", sent=10).open == 1.0


def test_callers_and_callees_are_not_added_up() -> None:
    """Both count the same calls; the callers offer them."""
    names = {"name": "calls", "offered": "flows_started", "delivered": "flows_completed"}
    unit = {"callers": names | {"intended": "flows_intended"}, "callees": names | {"intended": None}}
    groups = [{"name": name, "model": "sip", "unit": one} for name, one in unit.items()]
    state = begin({"groups": groups}, deque())
    counts = Counts(flows_intended=20, flows_started=20, flows_completed=15)
    point = SeriesPoint(
        t=1.0, dt=1.0, phase="measure", groups={name: GroupPoint(counts=counts) for name in unit}
    )
    take(state, point)
    assert list(state.throughput) == [15.0]
    (line,) = (one for one in draw(state, 120, 30) if one.startswith("completed"))
    assert "15.0/s" in line.replace(" ", "").replace("\u202f", "") or "15/s" in line.replace(" ", "")
