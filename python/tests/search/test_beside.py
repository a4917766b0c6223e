"""Several legs beside each other: what is said of them, and their table and plot."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from netdyno.cli import summary
from netdyno.core.result import Result
from netdyno.core.search import SearchFinding, SearchPart
from netdyno.errors import Error
from netdyno.experiment.measurer import Load, TrialOutcome
from netdyno.experiment.runner import ExperimentRun
from netdyno.experiment.spec import load
from netdyno.experiment.view import NullView
from netdyno.report import leg_comparison as page
from netdyno.report.compact import keep
from netdyno.report.render import render
from netdyno.search.bench import prepare
from netdyno.search.ratio import Ratio, ratio_lines
from netdyno.search.request import SearchRequest
from netdyno.search.trial import loss_goal
from netdyno.system.interrupt import Interrupts

from .test_schedule import PROFILE, repetition

CAPACITY = {"fast": 80_000, "slow": 20_000}


def part(
    leg: str, load: float | None, interval: tuple[float, float] | None, limit: Any = "dut"
) -> SearchPart:
    found = SearchFinding(goal="ndr", load=load, interval=interval, limit=limit, stop="resolution", trials=9)
    return SearchPart(name=f"{leg},64B", leg=leg, size="64B", frame=64, most=1e6, findings=[found])


def test_a_ratio_has_the_interval_of_both() -> None:
    parts = [part("a", 300.0, (290.0, 310.0)), part("b", 100.0, (95.0, 105.0))]
    (line, published) = ratio_lines(parts, [Ratio("a", "b", "3 × elsewhere")])
    assert line == "64B: a carries 3 × what b does, between 2.76 and 3.26 by their intervals"
    assert published == "published of a and b: 3 × elsewhere"


def test_a_ratio_says_where_something_else_was_the_limit() -> None:
    parts = [
        part("a", 300.0, None, "generator"),
        part("b", 100.0, (95.0, 105.0)),
        part("c", None, None, "lowest"),
    ]
    assert list(ratio_lines(parts, [Ratio("a", "b")])) == [
        "64B: a carries 3 × what b does, where a limit was not the DUT's"
    ]
    assert list(ratio_lines(parts, [Ratio("a", "c")])) == []


class TwoDuts:
    """Each leg has a capacity of its own."""

    def __init__(self) -> None:
        self.ran: list[str] = []

    def measure(self, asked: Load, seed: int) -> TrialOutcome:
        leg, profile = asked.variant.name.partition(",")[0], asked.variant.profile
        self.ran.append(leg)
        sent = round(float(profile["groups"][0]["frame"]["rate"]["frames"].removesuffix("/s")))
        return TrialOutcome(repetition(sent, max(0, sent - CAPACITY[leg]), profile=profile))


def searched(tmp_path: Path, what: str) -> tuple[Result, Path, list[str]]:
    duts = TwoDuts()
    legs = [{"name": name, "profile": PROFILE} for name in CAPACITY]
    experiment = load({"name": "two", "legs": legs}, "two")
    wanted = SearchRequest(goals=(loss_goal("ndr", 0.0),), seconds=1.0, repeat=6, resolution=0.01, sizes=what)
    search, _ = prepare(
        wanted, experiment, tmp_path, [Ratio("fast", "slow")],
        lambda leg, label, _: (leg, label) != ("slow", "1518B"),
    )  # fmt: skip
    result, folder = ExperimentRun(
        experiment=experiment, base=tmp_path, runs=tmp_path / "runs", live=NullView(), interrupts=Interrupts(),
        schedule=search, measurer=duts,
    ).run()  # fmt: skip
    return result, folder, duts.ran


def test_each_leg_is_found_by_its_own_trials_in_turns(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    result, folder, ran = searched(tmp_path, "64,512,1518")
    assert result.search is not None and result.valid
    found = {part.name: part for part in result.search.parts}
    assert found.keys() == {"fast,64B", "slow,64B", "fast,512B", "slow,512B", "fast,1518B"}
    for one in found.values():
        load = one.findings[0].load
        assert load == pytest.approx(CAPACITY[one.leg], rel=0.02) and load <= CAPACITY[one.leg]
        # every figure comes from trials of that leg which are there
        legs = {leg.name: leg for leg in result.legs}
        assert all(trial.leg.startswith(one.name) for trial in one.trials)
        assert all(legs[trial.leg].repetitions for trial in one.trials)
    # as long as both have trials left, each block has one of each
    blocks = [set(ran[i : i + 2]) for i in range(0, 12, 2)]
    assert blocks == [{"fast", "slow"}] * 6
    fast, slow = (found[name].findings[0].load or 0.0 for name in ("fast,512B", "slow,512B"))
    said = f"512B: fast carries {fast / slow:.3g} × what slow does"
    assert sum(note.startswith(said) for note in result.search.notes) == 1
    summary.show(result, folder)
    shown = capsys.readouterr().out
    assert "legs beside each other" in shown
    html = render(result)
    assert "Legs beside each other" in html


def test_table_and_plot_have_a_place_for_what_was_not_measured(tmp_path: Path) -> None:
    result, _, _ = searched(tmp_path, "64,1518")
    assert result.search is not None
    table = page.table(result.search, "/s")
    assert [len(row) for row in table.rows] == [3, 3]
    assert [cell.sort is None for cell in table.rows[1]] == [False, False, True]
    plot = page.plot(result.search, "/s")
    assert plot is not None
    bits, frames = plot["views"]
    assert bits["x"] == frames["x"] == [64, 1518]
    for fast, factor in ((bits["lines"][0], 64 * 8), (frames["lines"][0], 1)):
        assert fast["values"][0] == result.search.parts[0].findings[0].load * factor
        assert fast["low"][0] <= CAPACITY["fast"] * factor <= fast["high"][0]
    assert frames["lines"][1]["values"][1] is None


def test_a_single_leg_is_not_measured_at_a_size_that_its_ports_do_not_take(tmp_path: Path) -> None:
    experiment = load({"name": "one", "legs": [{"name": "slow", "profile": PROFILE}]}, "one")
    wanted = SearchRequest(goals=(loss_goal("ndr", 0.0),), seconds=1.0, repeat=6, resolution=0.01)

    def parts(what: str) -> list[str]:
        def fits(leg: str, label: str, _: object) -> bool:
            return (leg, label) != ("slow", "1518B")

        search, _ = prepare(replace(wanted, sizes=what), experiment, tmp_path, (), fits)
        return [part.name for part in search.parts]

    assert parts("64,1518") == ["64B"]
    with pytest.raises(Error, match="no leg can be measured at these frame sizes") as none:
        parts("1518")
    assert (none.value.code, none.value.at) == ("ND-104-07", "--sizes")


def test_at_one_size_the_plot_is_over_legs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    result, _, _ = searched(tmp_path, "64")
    assert result.search is not None
    plot = page.plot(result.search, "/s")
    assert plot is not None and plot["views"][0]["names"] == ["fast", "slow"]


def test_a_small_copy_has_every_trial_and_the_same_findings(tmp_path: Path) -> None:
    result, folder, _ = searched(tmp_path, "64,512")
    data, report = keep(result, tmp_path / "kept")
    assert (data.name, report.name) == ("two.json", "two.html")
    kept = Result.model_validate_json(data.read_text())
    assert kept.search == result.search
    for leg, whole in zip(kept.legs, result.legs, strict=True):
        assert [one.groups for one in leg.repetitions] == [one.groups for one in whole.repetitions]
        assert not any(one.series for one in leg.repetitions)
    assert "Legs beside each other" in report.read_text()
    assert data.stat().st_size < (folder / "result.json").stat().st_size
