"""What `tune apply STUDY` takes from a study, and what it refuses."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from netdyno.cli import app
from netdyno.errors import Error
from netdyno.stats.winner import never_hit, winners
from netdyno.tuning import study_setting
from tests import spaces
from tests.conftest import root
from tests.spaces import somaxconn

SPACE = f"ndt-chosen-{os.getpid()}"


def proof(objective: str, value: int, verdict: str = "better", **more: Any) -> dict[str, Any]:
    made = {
        "objective": objective, "setting": {"net.core.somaxconn": value}, "verdict": verdict,
        "proven": verdict == "better", "broken": [], "failed": [0, 0], "shortage": "",
        "comparison": {"pairs": 8, "counters": []},
    }  # fmt: skip
    return made | more


def search(*proofs: dict[str, Any], bench: str = "connects") -> dict[str, Any]:
    return {"format": 1, "kind": "search", "name": "mine", "bench": bench, "finished": "", "plan": {},
            "tunables": [], "trials": [], "result": {"proofs": list(proofs)}}  # fmt: skip


def test_a_proven_winner_is_taken() -> None:
    one = study_setting.winner(search(proof("rate", 8192)))
    assert (one.metric, dict(one.setting), one.proven, one.pairs) == (
        "rate",
        {"net.core.somaxconn": 8192},
        True,
        8,
    )
    # of several objectives the first that is proven, or the one that is asked for
    both = search(proof("rate", 4096, "not shown"), proof("latency", 512))
    assert study_setting.winner(both).metric == "latency"
    assert study_setting.winner(both, "rate", unproven=True).setting == {"net.core.somaxconn": 4096}


@pytest.mark.parametrize(
    ("study", "why"),
    [
        (search(proof("rate", 1, "not shown")), "no difference was shown"),
        (search(proof("rate", 1, "better", proven=False, broken=["failed"])), "it exceeds failed"),
        (search(proof("rate", 1, "better", proven=False, failed=[3, 1])), "3 of its trials failed"),
        (search(proof("rate", 1, "too few pairs", shortage="too few valid pairs: 4 of 7")), "4 of 7"),
        (search(proof("rate", 1), bench="sim"), "measured on a simulation"),
    ],
)
def test_what_is_not_proven_is_refused(study: dict[str, Any], why: str) -> None:
    with pytest.raises(Error, match=why) as raised:
        study_setting.winner(study)
    assert raised.value.code == "ND-104-54"
    assert study_setting.winner(study, unproven=True).setting == {"net.core.somaxconn": 1}


def test_studies_without_a_setting_are_refused() -> None:
    with pytest.raises(Error, match="nothing looked better"):
        study_setting.winner(search(), unproven=True)
    with pytest.raises(Error, match="kind screen"):
        study_setting.winner(search() | {"kind": "screen"}, unproven=True)
    with pytest.raises(Error, match="not searched for 'jitter'"):
        study_setting.winner(search(proof("rate", 1)), "jitter")


def test_a_comparison_proposes_its_second_setting() -> None:
    def compared(*verdicts: str) -> dict[str, Any]:
        metrics = [{"metric": {"name": f"m{i}"}, "verdict": v} for i, v in enumerate(verdicts)]
        result = {"b": {"setting": {"net.core.somaxconn": 1024}}, "metrics": metrics, "pairs": 8}
        return search() | {"kind": "compare", "result": result}

    (one,) = winners(compared("better", "no effect"))
    assert one.proven and one.metric == "m0"
    assert "worse in m1" in winners(compared("better", "worse"))[0].why
    assert "unequal shares" in winners(compared("invalid"))[0].why


def compared(a: str, b: dict[str, Any], **verdicts: str) -> dict[str, Any]:
    metrics = [{"metric": {"name": name}, "verdict": verdict} for name, verdict in verdicts.items()]
    result = {"a": {"name": a, "setting": {}}, "b": {"setting": b}, "metrics": metrics, "pairs": 8}
    return search() | {"kind": "compare", "result": result}


def test_a_baseline_that_is_compared_second_is_no_setting() -> None:
    for verdicts, why, fix in (
        (
            {"rate": "better", "jitter": "no effect"},
            r"the baseline is the better one \(rate\)",
            "nothing to apply",
        ),
        ({"rate": "worse"}, "the baseline is the worse one", "baseline small"),
        ({"rate": "not shown"}, "second setting is the baseline", "nothing to apply"),
    ):
        with pytest.raises(Error, match=why) as raised:
            study_setting.winner(compared("small", {}, **verdicts), unproven=True)
        assert fix in raised.value.fix


def test_what_was_shown_to_be_worse_is_not_to_be_measured_again() -> None:
    study = compared("baseline", {"net.core.somaxconn": 16}, rate="worse")
    of_search = search(proof("rate", 16, "worse"))
    for one in (study, of_search):
        with pytest.raises(Error, match=r"does not help: .*worse") as raised:
            study_setting.winner(one)
        assert raised.value.fix.startswith("Keep the baseline")
        assert study_setting.winner(one, unproven=True).setting == {"net.core.somaxconn": 16}


def test_the_effect_is_enough_unless_its_counters_contradict_it() -> None:
    """A third of all parameters have no counter: real winners were refused for that."""
    for mechanism in ("observed", "not observable"):
        study = search(proof("rate", 8192, comparison={"pairs": 9, "counters": [], "mechanism": mechanism}))
        assert study_setting.winner(study).proven
    study = search(proof("rate", 8192, comparison={"pairs": 9, "counters": [], "mechanism": "contradicted"}))
    with pytest.raises(Error, match="no counter moved as would explain it") as raised:
        study_setting.winner(study)
    assert (raised.value.code, raised.value.exit_code) == ("ND-104-54", 104)
    one = study_setting.winner(study, contradicted=True)
    assert one.proven and one.contradicted and not one.objection


def test_a_limit_that_was_never_hit_needs_a_counter_that_says_so() -> None:
    assert never_hit([0.0, 0.0])
    assert not never_hit([0.0, 0.1])
    assert not never_hit([])


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("NETDYNO_STATE", str(tmp_path))
    (tmp_path / "tuning").mkdir()
    path = tmp_path / "tuning" / "mine.json"
    path.write_text(json.dumps(search(proof("rate", 8192))), encoding="utf-8")
    return path


def test_it_is_found_by_name_file_and_folder(kept: Path, tmp_path: Path) -> None:
    run = tmp_path / "20260101-120000-mine-3f2a"
    run.mkdir()
    (run / "study.json").write_text(kept.read_text(), encoding="utf-8")
    for name in ("mine", str(kept), str(run)):
        found = study_setting.study(name)
        assert found is not None and found["name"] == "mine"
    (tmp_path / "setting.json").write_text('{"net.core.somaxconn": 512}', encoding="utf-8")
    assert study_setting.study(str(tmp_path / "setting.json")) is None
    assert study_setting.study("paper-latency") is None
    assert study_setting.study("../tuning/mine") is None


@pytest.fixture(scope="module")
def space() -> Iterator[str]:
    with spaces.made(SPACE) as name:
        yield name


@root
def test_it_is_applied_and_put_back(kept: Path, space: str, capsys: pytest.CaptureFixture[str]) -> None:
    before = somaxconn(space)
    assert app.call(["tune", "apply", "mine", "--where", space, "--for", "1ms", "--json"]) == 0
    shown = capsys.readouterr()
    (change,) = json.loads(shown.out)["changes"]
    assert (change["name"], change["new"], change["got"]) == ("net.core.somaxconn", 8192, 8192)
    assert "mine: best for rate, proven over 8 pairs on connects" in shown.err
    assert somaxconn(space) == before


@root
def test_the_command_refuses(kept: Path, space: str, capsys: pytest.CaptureFixture[str]) -> None:
    kept.write_text(json.dumps(search(proof("rate", 8192, "no effect"))), encoding="utf-8")
    before = somaxconn(space)
    assert app.call(["tune", "apply", "mine", "--where", space, "--for", "1ms"]) == 104
    assert "ND-104-54" in capsys.readouterr().err
    assert somaxconn(space) == before
    assert app.call(["tune", "apply", "mine", "--where", space, "--unproven", "--dry-run"]) == 0
    assert app.call(["tune", "apply", "--set", "net.core.somaxconn=1", "--unproven", "--dry-run"]) == 104
