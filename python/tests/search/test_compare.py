"""Two searches beside each other: intervals decide, on the terminal, in JSON and on the page."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from netdyno.cli import app
from netdyno.core.search import SearchFinding, SearchPart, SearchReport, SearchTrial
from netdyno.errors import Error
from netdyno.stats import searches
from tests.report import sample

INTERVALS = [
    ((100.0, 101.0), (102.0, 103.0), True),
    ((100.0, 101.0), (98.0, 99.9), False),
    ((100.0, 101.0), (100.5, 103.0), None),
]


def finding(load: float | None, interval: tuple[float, float] | None, limit: str = "dut") -> SearchFinding:
    return SearchFinding.model_validate(
        {
            "goal": "ndr", "loss_ratio": 0.0, "load": load, "interval": interval, "limit": limit,
            "stop": "resolution", "trials": 9,
        }
    )  # fmt: skip


def report(*found: SearchFinding, kind: str = "throughput") -> SearchReport:
    trial = SearchTrial(number=1, leg="1", load=5.0, seconds=1, sent=5, lost=5, loss=1.0)
    parts = [
        SearchPart(name=str(64 << i), frame=64 << i, most=1000, findings=[one], trials=[trial])
        for i, one in enumerate(found)
    ]
    return SearchReport(
        kind=kind, strategy="binary", unit="frames/s", resolution=0.005, confidence=0.95, seconds=1,
        planned=9, valid=True, parts=parts,
    )  # fmt: skip


@pytest.mark.parametrize(("a", "b", "better"), INTERVALS)
def test_they_differ_where_intervals_do_not_overlap(
    a: tuple[float, float], b: tuple[float, float], better: bool | None
) -> None:
    (one,) = searches.compare(report(finding(a[0], a)), report(finding(b[0], b)))
    assert one.better is better
    assert one.claimed


def test_an_edge_that_was_not_reached_is_open() -> None:
    open_end = finding(1000.0, None, "offered")
    (part,) = report(open_end).parts
    assert searches.edge(part, open_end) == (1000.0, math.inf)
    assert searches.edge(part, finding(None, None, "lowest")) == (0.0, 5.0)
    assert searches.edge(part, finding(100.0, None)) is None
    (worse,) = searches.compare(report(open_end), report(finding(900.0, (899.0, 901.0))))
    assert (worse.better, worse.change) == (False, pytest.approx(-0.1))
    (same,) = searches.compare(report(open_end), report(open_end))
    assert same.better is None
    assert searches.document(same)["b_interval"] == [1000.0, None]
    (none,) = searches.compare(report(finding(100.0, None)), report(finding(50.0, (49.0, 51.0))))
    assert not none.claimed


def test_searches_of_different_things_are_refused() -> None:
    one = finding(100.0, (99.0, 101.0))
    with pytest.raises(Error, match="one search is for throughput"):
        searches.compare(report(one), report(one, kind="back-to-back"))
    with pytest.raises(Error, match="no frame size and goal in common"):
        searches.compare(report(one), report())


@pytest.mark.slow
def test_the_verb_compares_what_was_found(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    files = []
    for name, found in (
        ("a", [finding(20e6, (19.9e6, 20.1e6)), finding(8e6, (7.9e6, 8.1e6))]),
        ("b", [finding(18e6, (17.9e6, 18.1e6)), finding(8e6, (7.95e6, 8.05e6))]),
    ):
        made = sample.result() | {"id": name, "search": report(*found).model_dump()}
        files.append(tmp_path / f"{name}.json")
        files[-1].write_text(json.dumps(made), encoding="utf-8")
    page = tmp_path / "page.html"
    monkeypatch.setenv("COLUMNS", "160")
    assert app.call(["compare", *map(str, files), "--fail", "--html", str(page)]) == 99
    lines = capsys.readouterr().out.splitlines()
    assert any("64" in line and "20 Mpps" in line and "-10.00%" in line and "worse" in line for line in lines)
    assert any("128" in line and "no difference shown" in line for line in lines)
    html = page.read_text(encoding="utf-8")
    assert "B carries less at 1 of 2 goals." in html
    assert 'id="searches"' in html
    assert app.call(["compare", *map(str, files), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert [one["better"] for one in document["searches"]] == [False, None]
    assert document["legs"] == {}
    # they have no metrics to name
    assert app.call(["compare", *map(str, files), "--metric", "foo"]) == 104
    assert "--metric" in capsys.readouterr().err
