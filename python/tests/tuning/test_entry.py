"""A study is a run: listed, shown, reported and compared like every other, and entered once."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from netdyno import paths
from netdyno.cli.app import call
from netdyno.errors import Error
from netdyno.experiment.entry import Entry, setting_name
from netdyno.stats.observation import Observation, Setting
from netdyno.store import Store
from netdyno.system.interrupt import interrupted
from netdyno.tuning.simulated import SimulatedBench

PROVEN = ">Proven better<"
"""As a page says it, and not only its dictionary."""
SEARCH = ["tune", "search", "sim", "--for", "throughput", "--limit", "failed=0", "--trials", "12"]


def said(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert call(list(arguments)) == 0
    return capsys.readouterr().out


@pytest.fixture(autouse=True)
def _runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NETDYNO_RUNS", str(tmp_path / "runs"))


def test_a_study_is_listed_shown_and_reported(capsys: pytest.CaptureFixture[str]) -> None:
    said(capsys, *SEARCH)
    (row,) = json.loads(said(capsys, "runs", "list", "--json"))
    assert (row["kind"], row["state"], row["valid"]) == ("search", "done", True)
    assert "throughput better" in row["finding"]
    shown = said(capsys, "runs", "show", "latest")
    assert row["finding"] in shown
    assert "bit/s" in shown
    result: dict[str, Any] = json.loads(said(capsys, "runs", "show", row["name"], "--json"))
    baseline = next(leg for leg in result["legs"] if leg["name"] == "baseline")
    figure = baseline["repetitions"][0]["metrics"]["throughput"]
    assert (figure["unit"], figure["better"]) == ("bit/s", "higher")
    assert baseline["summary"]["metrics"]["throughput"]["n"] == len(baseline["repetitions"])
    assert sum(len(leg["repetitions"]) for leg in result["legs"]) == row["trials"]
    page = Path(said(capsys, "report", "latest").strip())
    assert page == paths.runs() / row["id"] / "report.html"
    assert PROVEN in page.read_text()


def test_gone_on_with_it_stays_one_run_and_another_seed_is_another(
    capsys: pytest.CaptureFixture[str],
) -> None:
    for seed in ("1", "1", "2"):
        said(capsys, *SEARCH, "--seed", seed)
    rows = json.loads(said(capsys, "runs", "list", "--json"))
    assert len(rows) == 2
    compared = json.loads(said(capsys, "compare", rows[0]["id"], rows[1]["id"], "--json"))
    (throughput,) = [row for row in compared["legs"]["baseline"] if row["metric"] == "throughput"]
    assert throughput["unit"] == "bit/s"
    # the same baseline: what differs is its noise
    assert not throughput["significant"]
    assert throughput["interval"][0] < 0 < throughput["interval"][1]


def test_a_study_survives_its_folder(capsys: pytest.CaptureFixture[str]) -> None:
    said(capsys, *SEARCH)
    with Store() as store:
        (row,) = store.rows()
        for file in Path(row.folder).iterdir():
            file.unlink()
    assert "baseline" in said(capsys, "runs", "show", "latest")


def test_a_study_that_is_killed_is_found_and_goes_on_as_the_same_run(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Each trial is in the store when it is over, and none twice when the study goes on."""
    program = (
        "import os, signal, sys\n"
        "from netdyno.cli.app import call\n"
        "from netdyno.tuning.simulated import SimulatedBench\n"
        "measure = SimulatedBench.measure\n"
        "def ends(self, setting, seed):\n"
        "    if self.measured == 7:\n"
        "        os.kill(os.getpid(), signal.SIGKILL)\n"
        "    return measure(self, setting, seed)\n"
        "SimulatedBench.measure = ends\n"
        f"call({SEARCH!r})\n"
    )
    died = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert died.returncode == -signal.SIGKILL, died.stderr
    (row,) = json.loads(said(capsys, "runs", "list", "--json"))
    assert (row["kind"], row["state"], row["trials"]) == ("search", "lost", 7)
    assert "baseline" in said(capsys, "runs", "show", "latest")
    said(capsys, "report", "latest", "--html", str(tmp_path / "killed.html"))
    said(capsys, *SEARCH)
    (whole,) = json.loads(said(capsys, "runs", "list", "--json"))
    assert (whole["id"], whole["state"], whole["valid"]) == (row["id"], "done", True)
    assert whole["trials"] > 12


def test_a_study_that_is_interrupted_says_so(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    measure = SimulatedBench.measure

    def interrupts(self: SimulatedBench, setting: Setting, seed: int) -> Observation:
        if self.measured == 5:
            raise interrupted()
        return measure(self, setting, seed)

    with monkeypatch.context() as patch:
        patch.setattr(SimulatedBench, "measure", interrupts)
        assert call(SEARCH) == 105
    capsys.readouterr()
    result = json.loads(said(capsys, "runs", "show", "latest", "--json"))
    assert (result["interrupted"], result["valid"], result["error"]) == (True, False, None)
    assert result["finding"] == "interrupted after 5 trials; the same command goes on"
    assert sum(len(leg["repetitions"]) for leg in result["legs"]) == 5
    page = Path(said(capsys, "report", "latest").strip())
    assert "interrupted after 5 trials" in page.read_text()
    said(capsys, "runs", "rm", "latest")
    assert not page.parent.exists()
    # its trials are the study's, and not lost with the run
    assert "5 of " in (told := _noted(capsys, *SEARCH)) and "trials are from" in told


def test_measured_anew_it_is_another_run(capsys: pytest.CaptureFixture[str]) -> None:
    """That of before stays as it was, with its page."""
    said(capsys, *SEARCH)
    first = Path(said(capsys, "report", "latest").strip())
    before = first.read_bytes()
    said(capsys, *SEARCH, "--fresh")
    rows = json.loads(said(capsys, "runs", "list", "--json"))
    assert [(row["state"], row["valid"]) for row in rows] == [("done", True)] * 2
    assert first.read_bytes() == before
    assert Path(said(capsys, "report", "latest").strip()) != first


def test_a_finished_study_that_is_gone_on_with_shows_no_page_of_before(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    said(capsys, *SEARCH)
    page = Path(said(capsys, "report", "latest").strip())
    assert PROVEN in page.read_text()
    with monkeypatch.context() as patch:
        patch.setattr(SimulatedBench, "measure", _interrupted)
        assert call([*SEARCH[:-1], "40"]) == 105
    capsys.readouterr()
    # no trial was over: it is as it was
    assert PROVEN in Path(said(capsys, "report", "latest").strip()).read_text()

    def second(self: SimulatedBench, setting: Setting, seed: int) -> Observation:
        return _interrupted() if self.measured else measure(self, setting, seed)

    measure = SimulatedBench.measure
    with monkeypatch.context() as patch:
        patch.setattr(SimulatedBench, "measure", second)
        assert call([*SEARCH[:-1], "40"]) == 105
    capsys.readouterr()
    (row,) = json.loads(said(capsys, "runs", "list", "--json"))
    assert row["finding"].startswith("interrupted after") and not row["valid"]
    shown = Path(said(capsys, "report", "latest").strip()).read_text()
    assert PROVEN not in shown and "interrupted after" in shown


def test_what_ended_it_is_told_though_the_disk_is_full_too(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise Error("ND-92-27", "the disk is full")

    monkeypatch.setattr(SimulatedBench, "measure", _interrupted)
    monkeypatch.setattr(Entry, "ended", full)
    assert call(SEARCH) == 105
    assert "ND-92" not in capsys.readouterr().err


def _interrupted(*_: object) -> Observation:
    raise interrupted()


def _noted(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert call(list(arguments)) == 0
    return capsys.readouterr().err


def test_what_failed_before_its_first_trial_is_no_run(capsys: pytest.CaptureFixture[str]) -> None:
    assert call([*SEARCH, "--param", "nothing"]) == 104
    capsys.readouterr()
    assert json.loads(said(capsys, "runs", "list", "--json")) == []


def test_a_setting_has_a_short_name_of_its_own() -> None:
    assert setting_name({}) == "baseline"
    assert setting_name({"net.core.somaxconn": 8192}) == "net.core.somaxconn=8192"
    many = {f"net.core.parameter_{n}": n for n in range(9)}
    assert setting_name(many) == setting_name(dict(reversed(many.items()))) != setting_name(many | {"x": 1})
    assert setting_name(many).startswith("9 parameters ")
