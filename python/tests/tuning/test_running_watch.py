"""Watches that run here: what their files say, which findings can be applied, and what the dashboard refuses."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from netdyno.errors import Error
from netdyno.system.journal import journal
from netdyno.tuning import dashboard, running_watch
from netdyno.tuning.running_watch import Finding
from netdyno.tuning.watch import Sample, Say, Set

from ..conftest import root

NAME, FILES = "net.core.somaxconn", "fs.file-max"


@pytest.fixture(autouse=True)
def _own_folder(tmp_path: Path, state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running_watch, "folder", lambda: tmp_path)


def sample(load: float) -> Sample:
    return Sample(1.0, {"IpInReceives": load}, {})


def test_a_watch_is_found_while_it_runs_with_what_it_sees_and_finds() -> None:
    with running_watch.published(journal(), "web", "podman:web", True) as told:
        told.begin([NAME], [FILES])
        (one,) = running_watch.running()
        assert (one.pid, one.where, one.called, one.dry) == (os.getpid(), "web", "podman:web", True)
        assert (one.watched, one.left_out, one.time, one.findings) == ([NAME], [FILES], 0.0, ())
        told.see(sample(250.0), "requests")
        told.tell(Set("queue", NAME, 32, "full"))
        told.tell(Say("the traffic is idle now"))
        (one,) = running_watch.running()
        assert (one.traffic, one.load) == ("requests", 250.0)
        first, second = one.findings
        assert first.says == f"would set {NAME} to 32: full"
        assert first.command("podman:web") == f"netdyno tune apply --set {NAME}=32 --where podman:web"
        assert (second.number, second.action, second.command("web")) == (2, "say", "")
    assert running_watch.running() == []


def test_a_command_says_what_is_of_the_whole_machine_and_is_one_for_a_shell() -> None:
    with running_watch.published(journal(), None, "", False) as told:
        told.tell(Say("short", "files", {FILES: 4096}))
        told.tell(Set("queue", NAME, 32, "full"))
        files, queue = running_watch.running()[0].findings
    assert files.widely and not files.held
    assert files.command(None) == f"netdyno tune apply --set {FILES}=4096 --global"
    assert queue.held and not queue.widely
    spaced = Finding(1, 0.0, "set", "", {"a": "1 2"})
    assert spaced.command(None) == "netdyno tune apply --set 'a=1 2'"


def test_the_latest_findings_are_kept() -> None:
    with running_watch.published(journal(), None, "", True) as told:
        for number in range(running_watch.KEPT + 20):
            told.tell(Say(f"line {number}"))
        findings = running_watch.running()[0].findings
    assert len(findings) == running_watch.KEPT
    assert (findings[0].number, findings[-1].says) == (21, f"line {running_watch.KEPT + 19}")


def test_what_a_killed_watch_left_is_removed(tmp_path: Path) -> None:
    with running_watch.published(journal(), None, "", True) as told:
        told.begin([], [])
        (file,) = tmp_path.glob("nd-*.json")
        about = json.loads(file.read_text())
        left = tmp_path / "nd-left.json"
        left.write_text(json.dumps(about | {"start": about["start"] - 1}))
        (tmp_path / "nd-damaged.json").write_text("{")
        (tmp_path / "nd-other.json").write_text("[]")
        assert [one.pid for one in running_watch.running()] == [os.getpid()]
        assert not left.exists()


@root
@pytest.mark.parametrize(
    ("what", "body", "code"),
    [
        ("preview", {"watch": "none", "finding": 1}, "ND-104-28"),
        ("preview", {"watch": "../../etc", "finding": 1}, "ND-104-28"),
        ("preview", {"watch": "THIS", "finding": 1, "where": "web"}, "ND-104-10"),
        ("preview", {"watch": "THIS", "finding": 1, "run": "x"}, "ND-104-10"),
        ("preview", {"watch": "THIS", "finding": 1}, "ND-104-28"),
        ("preview", {"watch": "THIS", "finding": "2"}, "ND-104-28"),
        ("apply", {"watch": "THIS", "finding": 2}, "ND-104-07"),
        ("apply", {"watch": "THIS", "finding": 3}, "ND-104-28"),
        ("stop", {"watch": "none"}, "ND-104-28"),
        ("stop", {"process": 1}, "ND-104-10"),
    ],
)
def test_what_is_no_finding_of_a_watch_is_refused(what: str, body: dict[str, object], code: str) -> None:
    with running_watch.published(journal(), None, "", False) as told:
        told.tell(Say("the traffic is idle now"))
        told.tell(Set("queue", NAME, 32, "full"))
        (one,) = running_watch.running()
        with pytest.raises(Error) as caught:
            getattr(dashboard, what)(
                {key: one.id if value == "THIS" else value for key, value in body.items()}
            )
    assert caught.value.code == code


@root
def test_a_finding_is_looked_at_without_being_applied() -> None:
    with running_watch.published(journal(), None, "", True) as told:
        told.tell(Set("queue", NAME, 4097, "full"))
        (one,) = running_watch.running()
        told_of = dashboard.watches({})["watches"]
        found = dashboard.preview({"watch": one.id, "finding": 1})
    assert [(c["name"], c["new"]) for c in found["changes"]] == [(NAME, 4097)]
    assert told_of[0]["findings"][0]["command"] == f"netdyno tune apply --set {NAME}=4097"
