"""How the graph is shown, and what cannot be asked for. `tests/test_graph.py` watches real runs."""

import copy
from pathlib import Path
from typing import Any

import pytest

from netdyno.cli import app, graph_view
from netdyno.report import units

PAUSED = {"count": 1003, "ns": 31_500_000, "longest_ns": 20_000_000}
SHAPE: dict[str, Any] = {
    "run": "x-1",
    "workers": [{"worker": 0, "core": 2}, {"worker": 1, "core": None}],
    "elements": [
        {"name": "a.generator", "kind": "generator", "worker": 0, "core": 2},
        {"name": "a.tx", "kind": "tx", "worker": 1, "core": None},
    ],
    "edges": [{"from": "a.generator", "to": "a.tx", "ring": True}],
}
STATS: dict[str, Any] = {
    "status": {"run": "x-1", "state": "running", "elapsed": 2.0},
    "elements": [
        {
            "name": "a.generator",
            "worker": 0,
            "packets_in": 0,
            "packets_out": 2000,
            "drops": {},
            "packets_per_batch": 62.5,
            "cycles_per_packet": 51.4,
        },
        {
            "name": "a.tx",
            "worker": 1,
            "packets_in": 1990,
            "packets_out": 0,
            "drops": {"refused": 10},
            "packets_per_batch": 0.0,
            "cycles_per_packet": 0.0,
        },
    ],
    "workers": [
        {"worker": 0, "core": 2, "busy_cycles": 30, "idle_cycles": 70, "slept_ns": 0, "pauses": PAUSED},
        {
            "worker": 1,
            "core": None,
            "busy_cycles": 0,
            "idle_cycles": 0,
            "slept_ns": 9,
            "pauses": {"count": 0},
        },
    ],
}


def later() -> dict[str, Any]:
    stats = copy.deepcopy(STATS)
    stats["status"]["elapsed"] = 4.0
    stats["elements"][0]["packets_out"] = 5000
    return stats


def test_a_plan_has_places_and_ways() -> None:
    assert graph_view.rows(SHAPE) == [("a.generator", "0", "2", "a.tx (ring)"), ("a.tx", "1", "–", "")]
    assert [str(column.header) for column in graph_view.table(graph_view.rows(SHAPE)).columns] == [
        "element", "worker", "core", "to",
    ]  # fmt: skip


def test_ports_say_what_they_do_themselves() -> None:
    port = {"name": "a", "device": "0000:83:00.0", "driver": "net_ice", "mac": "02:00:00:00:00:01"}
    port |= {"rx_queues": 1, "tx_queues": 4, "uses": [], "offers": ["rss", "tso"]}
    port |= {"work": {"stamps": "software", "spread": "software"}}
    assert graph_view.ports({"ports": [port]}) == [
        "a: 0000:83:00.0 (net_ice), 02:00:00:00:00:01, 1 receive and 4 transmit queues; does by itself: nothing; "
        "in software: frames dealt out to queues, time stamps; offers besides: rss, tso"
    ]
    work = {"stamps": "hardware", "spread": "port", "vlan": "port and software", "checksums_sent": "software"}
    one = port | {"rx_queues": 4, "uses": ["rss"], "work": work}
    (told,) = graph_view.ports({"ports": [one]})
    assert told.endswith(
        "4 receive and 4 transmit queues; does by itself: frames dealt out to queues, VLAN tags, time stamps; "
        "in software: checksums sent, VLAN tags; offers besides: tso"
    )
    assert graph_view.ports(SHAPE) == []


def test_counts_rates_and_drops() -> None:
    rates = graph_view.Rates()
    assert rates.take(STATS) == {"a.generator": None, "a.tx": None}
    # the run's own clock, which stands still in a pause
    assert rates.take(STATS) == {"a.generator": None, "a.tx": None}
    found = rates.take(later())
    assert found == {"a.generator": 1500.0, "a.tx": 0.0}
    assert graph_view.rows(SHAPE, later(), found) == [
        ("a.generator", "0", "2", "0", "5,000", "1,500", "62.5", "51", "", "a.tx (ring)"),
        ("a.tx", "1", "–", "1,990", "0", "0", "–", "–", "refused 10", ""),
    ]
    assert graph_view.headline(STATS).replace(units.THIN, " ") == (
        "x-1: 2.0 s running; busy while awake: worker 0 30%; "
        "paused for want of a CPU: worker 0 1,003 × for 31.5 ms, longest 20.0 ms"
    )


def test_what_ports_lost_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    none = {"rx_packets": 9, "rx_dropped": 0, "tx_dropped": 0, "rx_errors": 0, "tx_errors": 0}
    lost = STATS | {"interfaces": {"a": none | {"rx_dropped": 1200, "tx_errors": 3}, "b": none}}
    told = "port a: 1,200 dropped on receive, 3 transmit errors"
    assert graph_view.headline(lost).endswith(f"; {told}")
    graph_view.Lines(SHAPE).take(lost)
    assert capsys.readouterr().out.splitlines()[-1] == f"2.0 s running {told}"


def test_lines_for_those_who_are_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    with graph_view.view(SHAPE) as lines:
        lines.take(STATS)
        lines.take(later())
    first, second, third, fourth = capsys.readouterr().out.splitlines()
    assert first == (
        "2.0 s running a.generator worker 0 core 2: in 0 out 2,000 rate – pkts/batch 62.5 cycles 51 drops none to a.tx (ring)"
    )
    assert second.endswith("in 1,990 out 0 rate – pkts/batch – cycles – drops refused 10")
    assert "rate 1,500 " in third
    assert fourth.startswith("4.0 s running a.tx")


def test_the_way_of_a_packet() -> None:
    steps = [
        {"element": "a.rx", "at": 1_000_500, "verdict": {"passed": "out"}},
        {"element": "a.receiver", "at": 1_002_000, "verdict": "consumed"},
    ]
    text = graph_view.way({"summary": "10.0.0.1:1 > 10.0.0.2:7 UDP, 60 B", "len": 60, "steps": steps}).plain
    assert text.splitlines() == [
        "10.0.0.1:1 > 10.0.0.2:7 UDP, 60 B",
        "       0.000 µs  a.rx        passed to out",
        "       1.500 µs  a.receiver  sent, used or kept here",
    ]
    assert graph_view.verdict({"dropped": "not_ip"}) == ("dropped: not_ip", "red")
    assert graph_view.verdict("held")[0].startswith("held until")


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        (["--filter", "tcp"], "--filter is for traces"),
        (["--trace", "65"], "is not a whole number from 1 to 64"),
        (["stream-64b", "--trace", "1"], "is for a run under way"),
        (["mqtt-t4"], "none of its traffic goes over DPDK"),
        (["no-such-thing"], "no preset"),
    ],
)
def test_what_cannot_be_asked_for(
    arguments: list[str], what: str, capsys: pytest.CaptureFixture[str], fake: Path
) -> None:
    assert app.call(["graph", *arguments]) == 104
    assert what in capsys.readouterr().err


def test_without_a_run_it_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("netdyno.paths.runtime", lambda: tmp_path)
    (tmp_path / "nd-stale.sock").touch()
    assert app.call(["graph"]) == 104
    assert "no run is under way" in capsys.readouterr().err
