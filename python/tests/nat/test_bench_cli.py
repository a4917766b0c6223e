"""What `netdyno nat bench` and `advise` say without measuring."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from netdyno.cli import app
from netdyno.experiment import spec
from netdyno.nat import cores
from netdyno.nat.advice import Cycles
from netdyno.nat.search import advice as nat_advice

from .shared import machine

Said = pytest.CaptureFixture[str]


@pytest.mark.daemon
def test_what_is_planned_is_said_and_nothing_is_run(capsys: Said) -> None:
    assert (
        app.call(["nat", "bench", "figure-8", "--sizes", "64,9000", "--legs", "l2fwd,kernel", "--dry-run"])
        == 0
    )
    said = capsys.readouterr().out
    assert "figure-8: about" in said and "3 searches" in said
    assert "kernel: not at 9000B" in said and "static forward" in said


@pytest.mark.daemon
def test_a_plan_of_one_leg_names_it(capsys: Said) -> None:
    assert app.call(["nat", "bench", "figure-7", "--sizes", "64", "--legs", "l2fwd", "--dry-run"]) == 0
    said = capsys.readouterr().out
    assert "for 1 search," in said
    assert re.search("^l2fwd +64B ", said, re.MULTILINE)


def test_a_study_is_printed_as_an_experiment(capsys: Said) -> None:
    assert app.call(["nat", "bench", "rfc9693-rate", "--expand"]) == 0
    made = spec.load(json.loads(capsys.readouterr().out), "printed")
    assert [leg.name for leg in made.legs] == ["run-to-completion", "pipeline"]


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        (["bench", "figure-11"], "no study"),
        (["bench", "figure-7", "--legs", "x"], "no leg"),
        (["bench", "figure-7", "--sizes", "7"], "no frame size"),
        (["bench", "figure-7", "--line", "fast"], "is not a rate in bits"),
        (["bench", "figure-7", "--line", "0Gbit/s"], "too slow"),
        (["bench", "rfc9693-capacity", "--line", "25Gbit/s"], "no share of a link's rate"),
        (["advise", "--measure", "--loss", "2"], "--loss"),
        (["advise", "--cycles", "none.json"], "none.json"),
        (["advise", "--cores", "0"], "--cores"),
        (["bench", "figure-7", "--sizes", "9000", "--legs", "kernel"], "no leg can be measured"),
    ],
)
def test_what_is_wrong_is_said(arguments: list[str], what: str, capsys: Said, tmp_path: Path) -> None:
    assert app.call(["nat", *arguments]) == 104
    assert what in capsys.readouterr().err


def test_more_cores_than_there_are_are_not_measured(capsys: Said, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cores, "here", lambda: machine(1, 2))
    assert app.call(["nat", "advise", "--cores", "3", "--measure"]) == 104
    assert "ND-104-07" in (said := capsys.readouterr().err) and "3 cores cannot be measured" in said


def test_a_placement_is_proposed_from_kept_cycles(capsys: Said, tmp_path: Path) -> None:
    costs = {"rx": 40.0, "validity": 20.0, "nat": 30.0, "conntrack": 90.0, "tx": 20.0}
    file = tmp_path / "cycles.json"
    nat_advice.save_cycles(Cycles(costs, 20.0, 2e9), file)
    assert app.call(["nat", "advise", "--cores", "2", "--cycles", str(file)]) == 0
    assert "rx+validity+nat | conntrack+tx" in capsys.readouterr().out
    assert app.call(["nat", "advise", "--cores", "2", "--cycles", str(file), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["placements"][0]["predicted"] == pytest.approx(2e9 / 120)
    assert found["measured"] == []
