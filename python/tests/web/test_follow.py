"""A run under way, read from the files of its folder as they grow."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from netdyno.experiment.events import EventFile
from netdyno.experiment.view import NullView
from netdyno.web.follow import CHUNK, Follower, Tail, daemon

PLAN: Any = {
    "title": "x", "leg": "sockets", "trial": 1, "trials": 1, "duration": 5.0, "daemon": "/run/x.sock",
    "phases": {"warmup": 1.0, "measure": 3.0, "drain": 1.0},
    "groups": [{"name": "a", "protocol": "http", "devices": 2, "target": "http://127.0.0.1"}],
}  # fmt: skip


def point(t: float, sent: int, delivered: int, phase: str = "measure", **more: Any) -> dict[str, Any]:
    counts = {"messages_intended": sent, "messages_sent": sent, "messages_delivered": delivered, **more}
    return {
        "t": t,
        "dt": 1.0,
        "phase": phase,
        "elapsed": t,
        "left": 5 - t,
        "groups": {"a": {"counts": counts}},
    }


class Folder:
    """The files of a run."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.events = EventFile(path / "events.jsonl", NullView())

    def samples(self, *points: dict[str, Any]) -> None:
        with (self.path / "samples.jsonl").open("a") as file:
            file.writelines(json.dumps(one) + "\n" for one in points)

    def trial(self) -> None:
        (self.path / "samples.jsonl").write_text("")
        self.events.start(PLAN)


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path)


def values(charts: list[dict[str, Any]], name: str) -> list[list[Any]]:
    chart = next(one for one in charts if one["id"] == name)
    return [line["values"] for line in chart["views"][0]["lines"]]


def test_points_that_come_continue_the_charts_that_are_there(folder: Folder) -> None:
    folder.trial()
    folder.samples(point(1, 10, 8), point(2, 20, 18))
    follower = Follower(folder.path)
    assert follower.read().again
    whole = follower.snapshot()
    assert whole["t"] == [1, 2]
    assert values(whole["charts"], "load") == [[10, 20], [10, 20], [8, 18]]
    assert values(whole["charts"], "outstanding") == [[2, 4]]
    folder.samples(point(3, 30, 24, failures={"timeout": 6}))
    update = follower.read()
    assert (update.t, update.again) == ([3], False)
    assert values(update.columns, "load") == [[30], [30], [24]]
    # counted from the beginning, in what is new as in the whole
    assert values(update.columns, "outstanding") == [[10]]
    assert values(follower.snapshot()["charts"], "outstanding") == [[2, 4, 10]]
    assert values(update.columns, "errors") == [[6]]
    assert [phase["to"] for phase in whole["phases"]] == [1, 4, 5]


def test_a_trial_that_begins_replaces_the_one_before(folder: Folder) -> None:
    folder.trial()
    folder.samples(point(1, 10, 10))
    follower = Follower(folder.path)
    follower.read()
    folder.trial()
    folder.samples(point(1, 5, 5))
    assert follower.read().again
    assert values(follower.snapshot()["charts"], "load") == [[5], [5], [5]]


def test_figures_and_validity_follow(folder: Folder) -> None:
    folder.trial()
    follower = Follower(folder.path)
    folder.events.state({"state": "running", "phase": "measure", "elapsed": 1.0, "left": 4.0})
    folder.samples(point(1, 10, 10))
    folder.events.dut("nginx", 0.5)
    folder.events.log("a line")
    follower.read()
    now = follower.now()
    assert (now["state"], now["phase"], now["warnings"], now["duts"]) == (
        "running",
        "measure",
        [],
        {"nginx": 0.5},
    )
    assert now["groups"][0]["offered"] == 10
    assert now["logs"] == ["a line"]
    short = point(2, 10, 10)
    short["groups"]["a"]["counts"]["messages_sent"] = 1
    folder.samples(short)
    follower.read()
    (warning,) = follower.now()["warnings"]
    assert warning["a"] == {"group": "a", "share": "55.0%"}
    assert "cpu" in {chart["id"] for chart in follower.snapshot()["charts"]}


def test_half_a_line_waits_for_its_other_half_and_nonsense_is_left_out(folder: Folder) -> None:
    folder.trial()
    follower = Follower(folder.path)
    follower.read()
    text = json.dumps(point(1, 10, 10)) + "\n"
    with (folder.path / "samples.jsonl").open("a") as file:
        file.write("{nonsense\n[]\n" + text[:40])
        file.flush()
        assert not follower.read().t
        file.write(text[40:])
    assert follower.read().t == [1]
    with (folder.path / "events.jsonl").open("a") as file:
        file.write('{"event": "dut"}\n{}\n7\n{"event": "state", "status": null}\n')
    follower.read()


def test_a_folder_without_files_is_a_run_that_has_not_begun(tmp_path: Path) -> None:
    follower = Follower(tmp_path)
    assert not follower.read().changed
    assert follower.snapshot() == {"t": [], "phases": [], "charts": []}


def test_a_tail_reads_a_long_file_in_parts_and_no_link(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(b"x" * CHUNK + b"\ny\n")
    tail = Tail(path)
    assert tail.lines() == []
    assert tail.lines() == [b"x" * CHUNK, b"y"]
    (tmp_path / "link").symlink_to(path)
    assert Tail(tmp_path / "link").lines() == []


def test_secrets_are_not_in_the_events(folder: Folder) -> None:
    folder.events.log("see http://user:password@host/")
    assert "password" not in (folder.path / "events.jsonl").read_text()


def test_thresholds_are_judged_as_points_come(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    limits = [{"metric": "a.errors", "max": 5}, {"metric": "a.delay.response.p99", "max": "50ms"}]
    monkeypatch.setitem(PLAN, "thresholds", limits)
    folder.trial()
    follower = Follower(folder.path)
    follower.read()

    def passes() -> list[str]:
        follower.read()
        return [row[0]["text"]["t"] for row in follower.now()["thresholds"]["rows"]]

    assert passes() == ["not judged", "not judged"]
    delays = {
        "response": {"count": 10, "min": 1e6, "mean": 1e6, "p50": 1e6, "p90": 1e6, "p99": 1e6, "max": 1e6}
    }
    first = point(2, 10, 10)
    first["groups"]["a"]["delays"] = delays
    folder.samples(first)
    assert passes() == ["yes", "yes"]
    (_, (_, _, limit, value, _)) = follower.now()["thresholds"]["rows"]
    assert (limit["text"]["d"], value["text"]["d"]) == ("≤\u00a050\u202fms", "≈\u00a01.00\u202fms")
    folder.samples(point(3, 10, 4, failures={"timeout": 6}))
    assert passes() == ["no", "yes"]
    # another trial begins with none
    folder.trial()
    assert passes() == ["not judged", "not judged"]
    # a threshold of a later version is no reason to show nothing
    monkeypatch.setitem(PLAN, "thresholds", [{"metric": "a.mood", "max": 1}])
    folder.trial()
    assert passes() == [] and follower.now()["leg"] == "sockets"


def test_what_is_steered_is_the_trial_under_way(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    assert daemon(folder.path) == ""
    folder.trial()
    # more than what is read at a time
    line = "x" * 1_000_000
    for _ in range(2 * CHUNK // len(line)):
        folder.events.log(line)
    assert daemon(folder.path) == "/run/x.sock"
    monkeypatch.setitem(PLAN, "daemon", "/run/y.sock")
    folder.trial()
    assert daemon(folder.path) == "/run/y.sock"
