"""What kept the load from being offered: a server that slows down under it, too few connections, or nothing at all."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import pytest
from lab import Done, Lab
from ports import free_port

SERVER = Path(__file__).with_name("queueing_server.py")
PATIENT = {"lateness_p99": "60s", "offered": 0.99, "starved": 1.0}
"""A busy machine is no matter here."""


def server(lab: Lab, how: str, milliseconds: int, cut: int = 0) -> str:
    port = free_port()
    child = lab.spawn(sys.executable, str(SERVER), how, str(port), str(milliseconds), str(cut))
    assert child.stdout and child.stdout.readline() == "ready\n"
    return f"http://127.0.0.1:{port}"


def run(lab: Lab, target: str, model: dict[str, Any], phases: dict[str, str], **more: Any) -> Done:
    group = {"name": "web", "target": target, "model": {"http": model}, **more}
    phases = {"drain": "500ms", "sample": "250ms"} | phases
    document = {"name": "t", "phases": phases, "groups": [group], "validity": PATIENT}
    return lab.run("run", lab.write("p.json", document))


RAMP = {"rate": "10/s", "stages": [{"over": "1s", "rate": "100/s"}]}
OPEN = {"model": {"requests": 1}, "load": {"open": RAMP}}
PACED = {"model": {"interval": "100ms"}, "load": {"closed": {"ramp": "1s"}}}
"""100 requests per second over ten connections: a flow for each, or on the schedule of each connection. The load
rises in the warm-up, so that few of them wait at first, on a busy machine too."""


@pytest.mark.parametrize("load", [OPEN, PACED], ids=["open", "paced"])
def test_a_server_that_queues_fails_and_the_run_is_valid(lab: Lab, load: dict[str, Any]) -> None:
    # 50/s one after the other: ten wait 200 ms each
    done = run(lab, server(lab, "queue", 20), phases={"warmup": "1s", "measure": "1s"}, devices=10, **load)
    assert done.result.valid and done.code == 99, done.text
    (check,) = [one for one in done.result.checks if one.check == "load"]
    assert not check.passed and check.value is not None and check.value < 0.9
    said = re.search(
        r"took ([\d.]+) ms with few devices waiting and ([\d.]+) ms with all of them", check.what
    )
    assert said, check.what
    assert 20 <= float(said[1]) < float(said[2]) / 2
    assert re.search(r"\d/s delivered", check.what) and check.what in done.out


@pytest.mark.parametrize("load", [OPEN, PACED], ids=["open", "paced"])
def test_too_few_connections_at_a_healthy_server_stay_invalid(lab: Lab, load: dict[str, Any]) -> None:
    # each takes 250 ms, however many there are: ten carry 40/s
    done = run(lab, server(lab, "each", 250), phases={"warmup": "1s", "measure": "1s"}, devices=10, **load)
    assert done.code == 90, done.text
    (reason,) = done.result.reasons
    assert reason.code == "ND-90-08", done.text
    assert all(one.passed for one in done.result.checks if one.check != "load"), done.text
    assert not [one for one in done.result.checks if one.check == "load"]
    devices = re.search(r"use devices: (\d+) or more", done.text)
    assert devices and int(devices[1]) >= 27, done.text


def test_the_series_shows_what_was_intended_while_the_load_is_not_kept(lab: Lab) -> None:
    phases = {"warmup": "0s", "measure": "2s"}
    done = run(lab, server(lab, "each", 250), {"interval": "100ms"}, phases, devices=10)
    points = [point for point in done.trial.series if point.phase == "measure" and point.t > 0.4]
    intended = sum(point.groups["web"].counts.messages_intended for point in points)
    sent = sum(point.groups["web"].counts.messages_sent for point in points)
    seconds = sum(point.dt for point in points)
    # the last point has what no interval before it had
    assert abs(intended - 100 * seconds) <= 20, (intended, seconds)
    assert sent < intended / 2
    for point in points:
        counts = point.groups["web"].counts
        assert counts.messages_intended > 1.5 * counts.messages_sent, (point.t, counts)


def test_a_total_that_was_sent_was_intended_once(lab: Lab) -> None:
    # flows that end early leave requests that had fallen due: the next flows send them
    model = {"requests": 20, "interval": "20ms"}
    target = server(lab, "each", 50, cut=3)
    done = run(lab, target, model, {"warmup": "0s", "measure": "60s"}, devices=2, total=40)
    counts = done.trial.groups[0].measured
    assert done.result.valid, done.text
    assert (counts.messages_intended, counts.messages_sent) == (40, 40)
    assert counts.flows_failed > 1


def test_flows_for_which_a_total_has_no_message_are_not_intended(lab: Lab) -> None:
    # 50 flows of five requests per second, of which four devices carry eight: the backlog is longer than the total
    load = {"open": {"rate": "50/s"}}
    target = server(lab, "each", 100)
    phases = {"warmup": "0s", "measure": "60s"}
    done = run(lab, target, {"requests": 5}, phases, devices=4, total=60, load=load)
    counts = done.trial.groups[0].measured
    assert done.result.valid, done.text
    assert (counts.messages_sent, counts.flows_intended) == (60, counts.flows_started)
