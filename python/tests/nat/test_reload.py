"""A NAT's configuration read anew, over the stand-in daemon; and what went on from the one before."""

import json
import os
import subprocess
from pathlib import Path

import pytest

from netdyno.cli import app
from netdyno.nat import cores, reload, running

from .shared import CGN
from .test_cli import cgn, file, runtime, written

__all__ = ["cgn", "file", "runtime"]

Said = pytest.CaptureFixture[str]


def test_what_has_changed_is_told_by_its_keys(cgn: Path, file: Path, capsys: Said) -> None:
    assert app.call(["nat", "reload", str(file)]) == 0
    assert capsys.readouterr().out == "reloaded: filtering.udp, forwards\n"
    assert app.call(["nat", "reload", str(file), "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown == {"nat": "cgn", "changed": ["filtering.udp", "forwards"], "left_out": []}


def test_only_a_nat_that_runs_is_reloaded(runtime: Path, tmp_path: Path, capsys: Said) -> None:
    assert app.call(["nat", "reload", str(written(tmp_path, CGN))]) == 104
    assert "ND-104-35: no NAT named cgn runs here" in capsys.readouterr().err


def test_a_wrong_file_changes_nothing(cgn: Path, tmp_path: Path, capsys: Said) -> None:
    assert app.call(["nat", "reload", str(written(tmp_path, CGN | {"pool": ["10.0.0.0/28"]}))]) == 104
    assert "overlaps the subscribers" in capsys.readouterr().err


def test_words() -> None:
    assert reload.describe(reload.ReloadOutcome((), ())) == "reloaded: nothing has changed"
    done = reload.ReloadOutcome(("mss",), ("forwards[0].outside: a subscriber has this port now",))
    assert reload.describe(done) == (
        "reloaded: mss; left out forwards[0].outside: a subscriber has this port now"
    )


def test_what_went_on_is_told_of_all_workers() -> None:
    assert list(reload.restored([{"restored": None}, {}])) == []
    one = {"age_s": 2, "subscribers": 3, "sessions": 1200, "left_out": {"expired": 4}}
    other = {"age_s": 2, "subscribers": 1, "sessions": 5, "left_out": {"expired": 1, "pool": 9}}
    (text,) = reload.restored([{"restored": one}, {"restored": other}])
    assert text == "1,205 sessions of 4 subscribers go on after 2 s; left out: 9 pool, 5 expired"
    (text,) = reload.restored([{"restored": one | {"left_out": {}}}])
    assert text == "1,200 sessions of 3 subscribers go on after 2 s"


def test_the_cores_are_those_that_the_nat_may_use(cgn: Path) -> None:
    with running.connected("cgn") as nat:
        # the stand-in is this process, or a child of it
        assert nat.process > 0
    one = min(os.sched_getaffinity(0))
    # the child has its cores before it is there
    with subprocess.Popen(["sleep", "60"], preexec_fn=lambda: os.sched_setaffinity(0, {one})) as other:  # noqa: PLW1509
        try:
            assert cores.here(other.pid).allowed == {one}
        finally:
            other.kill()
    assert cores.here(other.pid).allowed == os.sched_getaffinity(0)
