"""Studies of switches: files, what explains variance, tables and plots, and one that is measured."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from netdyno.cli.app import call
from netdyno.errors import Error
from netdyno.lab.workload.base import RETRANSMITTED
from netdyno.stats.observation import Observation
from netdyno.stats.variation import variation
from netdyno.switch.chain.bench import lengths
from netdyno.switch.driver import DRIVERS
from netdyno.switch.reproduce import study as studies
from netdyno.switch.reproduce.measure import Difference, Row, StudyOutcome, cause
from netdyno.switch.reproduce.plot import plot
from netdyno.switch.reproduce.run import explained, show
from netdyno.switch.reproduce.study import checked

from ..conftest import root

PLAIN: dict[str, Any] = {"format": studies.FORMAT, "title": "t", "switches": ["linux-bridge", "ovs-netdev"]}


def test_the_studies_are_the_figures_of_the_paper() -> None:
    found = studies.chosen([])
    assert (
        set(found)
        == {"lan", "lan-vms", "wan", "chain-lan", "chain-wan", "longest"}
        == set(studies.all_studies())
    )
    for name, one in found.items():
        assert (
            one.repeat == 10
            and one.bench(False).options["seconds"] == 60 > one.bench(True).options["seconds"]
        )
        if one.chain is not None:
            assert lengths(one.made_chain(name)) == [0, 1, 2, 3, 4]
    assert found["wan"].path and not found["lan"].path
    assert {name for name, one in found.items() if one.bench(True).endpoints == "vm"} == {"lan-vms"}
    with pytest.raises(Error) as wrong:
        studies.chosen(["figure-5"])
    assert wrong.value.code == "ND-104-22"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"switches": []}, "either switches or a chain"),
        ({"switches": ["linux-bridge"]}, "alone"),
        ({"switches": ["magic", "magic"]}, "no switch 'magic'"),
        ({"chain": {}}, "either switches or a chain"),
        ({"switches": [], "chain": {"vnfs": {}, "chain": ["x"]}}, "not in vnfs"),
        ({"target": "1Gbit/s"}, "a target needs a chain"),
        ({"switches": [], "chain": {}, "target": "fast"}, "fast"),
        ({"endpoints": "container"}, "endpoints"),
        ({"colour": 1}, "colour"),
    ],
)
def test_a_wrong_study_is_told(change: dict[str, Any], words: str) -> None:
    with pytest.raises(Error) as wrong:
        checked(PLAIN | change, "x.yaml")
    assert wrong.value.exit_code == 104
    assert words in str(wrong.value) or words in str(wrong.value.all)


def test_a_change_of_level_and_an_outlier_are_found() -> None:
    step = variation([10.0, 10.1, 9.9, 10.0, 10.2, 5.0, 5.1, 4.9, 5.0, 5.2])
    assert step.change and step.change.at == 5 and step.change.p < 0.05 and step.dependent
    odd = variation([10.0, 10.1, 9.9, 10.0, 10.2, 2.0, 10.1, 9.8, 10.0, 10.2])
    assert odd.outliers == (5,) and odd.change is None
    plain = variation([10.0, 10.3, 9.9, 10.2, 9.8, 10.1, 10.0, 9.7])
    assert not plain.outliers and plain.change is None
    assert variation([3.0]).sd == 0 and variation([2.0] * 8).change is None
    assert variation([2.0] * 7 + [9.0]).outliers == (7,), "also where most are equal"


def seen(rate: float, retransmits: float = 0.0, dropped: float = 0.0, steal: float = 0.0) -> Observation:
    counters = {"switch.dropped": dropped, "cpu.steal": steal, RETRANSMITTED: retransmits}
    return Observation({}, {"throughput": rate}, counters, seconds=10.0)


def test_the_cause_of_an_outlier_is_what_its_counters_show() -> None:
    usual = [seen(9e9, 5), seen(9e9, 7), seen(9e9, 6)]
    assert "900 TCP retransmits, median 6" in cause([*usual, seen(2e9, 900)], 3)
    assert "dropped by the switch" in cause([*usual, seen(2e9, 5, 4000)], 3)
    assert "the host took 20%" in cause([*usual, seen(2e9, 5, 0, 2.0)], 3)
    assert cause([*usual, seen(2e9, 6)], 3) == "no counter shows a cause"


def test_tables_and_plots(capfd: pytest.CaptureFixture[str]) -> None:
    values = [9e9, 9.1e9, 8.9e9, 9e9, 9.2e9, 2e9]
    rows = [Row("bridge", values, 6, variation(values), ["repetition 6: steal"]), Row("none", [], 2, None)]
    found = StudyOutcome(rows, [Difference("bridge", "none", "no difference shown", False, 0.4)], None, "r1")
    study = studies.all_studies()["lan"]
    ElementTree.fromstring(plot(study, found))
    assert ElementTree.fromstring(plot(study, StudyOutcome([], []))).get("width") == "760"
    long = [Row("client → one → two → three → four → server", values, 6, variation(values))]
    drawn = ElementTree.fromstring(plot(study, StudyOutcome(long, [])))
    (name,) = (one for one in drawn.iter() if one.text == long[0].name)
    assert float(drawn.get("width", "0")) >= float(name.get("x", "0")) + 6 * len(long[0].name), (
        "it is not cut"
    )
    assert not found.valid and explained(rows[1]) == ["no trial is valid"]
    show(study, found)
    said = capfd.readouterr().out
    assert "repetition 6: steal" in said and "not significant" in said and "in the paper:" in said


@root
def test_a_study_is_measured_and_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    if why := DRIVERS["ovs-netdev"].missing():
        pytest.skip(why)
    monkeypatch.setenv("NETDYNO_STATE", str(tmp_path / "state"))
    (tmp_path / "data").mkdir()
    small = {
        "format": studies.FORMAT, "title": "two", "target": "1bit/s", "quick": {"options": {"seconds": 1}},
        "chain": {"vnfs": {"a": {"kind": "bridge"}}, "chain": ["a"]},
    }  # fmt: skip
    (tmp_path / "data" / "small.yaml").write_text(json.dumps(small))
    monkeypatch.setattr(studies, "folder", lambda: tmp_path / "data")
    words = ["reproduce", "switches", "small", "--quick", "--repeat", "2", "--json"]
    assert call([*words, "--keep", str(tmp_path / "kept"), "--runs", str(tmp_path / "runs")]) == 0
    (found,) = json.loads(capfd.readouterr().out)
    assert (
        found["study"] == "small" and found["rows"] and all(len(row["values"]) == 2 for row in found["rows"])
    )
    assert json.loads((tmp_path / "kept" / "small.json").read_text()) == found
    ElementTree.parse(tmp_path / "kept" / "small.svg")
    (page,) = (tmp_path / "runs").glob("*/*.html")
    assert "functions hold the target" in page.read_text()
