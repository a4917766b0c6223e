"""Studies of the paper: what there is, tables and plots of results, and the highest rate without failure."""

from collections.abc import Sequence
from pathlib import Path
from xml.etree import ElementTree

import pytest

from netdyno.core.result import Leg, Repetition, Result
from netdyno.core.wire import Counts, Distribution, GroupResult, Reason, Validity
from netdyno.errors import Error
from netdyno.experiment.spec import variants
from netdyno.reproduction.texts import KOREAN
from netdyno.sip.reproduce import parts
from netdyno.sip.reproduce import study as studies
from netdyno.sip.reproduce.plot import plot
from netdyno.sip.reproduce.study import Point

FIGURE = studies.chosen(["figure-10"])[0]
RATE, USERS = "profile.groups.phones.load.open.rate", "profile.groups.population.load.closed.stages.0.devices"


@pytest.mark.parametrize("one", studies.all_studies(), ids=lambda one: one.name)
def test_every_study_has_an_experiment_and_what_its_table_names(one: studies.Study) -> None:
    for quick in (False, True):
        made = studies.experiment(one, quick, None)
        found = variants(made, studies.folder())
        assert found
        for variant in found:
            groups = [group["name"] for group in variant.profile["groups"]]
            assert one.group in groups, variant.name
            judged = [line["metric"] for line in variant.profile["thresholds"]]
            assert f"{one.group}.index.{one.success}" in judged
            assert any(metric.startswith(f"{one.group}.delay.{one.delay}.") for metric in judged)
        assert not quick or (made.repeat == 1 and all(v.leg.trial.measure == "2s" for v in found))


def test_without_names_the_figures_of_the_paper_are_measured() -> None:
    names = [one.name for one in studies.chosen([])]
    assert names[:3] == ["figure-10", "figure-11", "figure-12"]
    assert all(name.startswith("figure-") for name in names)
    with pytest.raises(Error) as unknown:
        studies.chosen(["figure-13"])
    assert unknown.value.exit_code == 104


def trial(accepted: int, attempts: int, valid: bool, mean: float) -> Repetition:
    counts = Counts.model_validate({"registrations": attempts, "registrations_accepted": accepted})
    delays = {"registration": Distribution(count=accepted, mean=mean, p95=3_000_000)} if accepted else {}
    reasons = [] if valid else [Reason(code="ND-90-02", what="late")]
    group = GroupResult(
        name="phones", protocol="sip", devices=1, total=counts, measured=counts, delays=delays
    )
    return Repetition(run="r", validity=Validity(valid=valid, reasons=reasons), groups=[group])


def leg(
    rate: str,
    users: int,
    accepted: int,
    attempts: int = 10,
    valid: bool = True,
    means: Sequence[float] = (2e6,),
) -> Leg:
    trials = [trial(accepted, attempts, valid, mean) for mean in means]
    return Leg(name=f"registrar@{rate},{users}", levels={RATE: rate, USERS: users}, repetitions=trials)


def result(*legs: Leg) -> Result:
    return Result(id="r", name="sip-figure-10", started="now", legs=list(legs))


def test_a_table_has_a_line_for_each_level() -> None:
    found = studies.points(FIGURE, result(leg("2/s", 0, 10), leg("1k/s", 500, 0, valid=False)))
    assert [(p.rate, p.levels["registered"], p.success, p.valid) for p in found] == [
        (2.0, 0, 1.0, 1),
        (1000.0, 500, 0.0, 0),
    ]
    assert [p.reasons for p in found] == [(), ("ND-90-02",)]
    assert found[0].mean_ns == 2e6 and found[1].mean_ns is None


def test_the_highest_rate_without_failure_has_none_below_it() -> None:
    """A rate above one that failed counts for nothing."""
    legs = [leg("2/s", 0, 10), leg("5/s", 0, 10), leg("10/s", 0, 9), leg("100/s", 0, 10), leg("2/s", 500, 9)]
    found = studies.highest(studies.points(FIGURE, result(*legs)))
    assert list(found.values()) == [5.0]


def test_a_rate_without_a_valid_trial_is_not_the_highest() -> None:
    at = [Point({"rate": rate}, 9, 1.0, 2e6, 3e6, 1, valid) for rate, valid in (("2/s", 1), ("5/s", 0))]
    assert list(studies.highest(at).values()) == [2.0]


def test_a_point_has_intervals_of_success_and_delay() -> None:
    [one] = studies.points(FIGURE, result(leg("2/s", 0, 10, means=(2e6, 2e6, 4e6))))
    # Clopper and Pearson, 30 of 30; Student's t of the logarithms
    assert one.success_interval == (pytest.approx(0.8843, abs=1e-4), 1.0)
    assert one.mean_interval_ns is not None
    assert one.mean_interval_ns == (pytest.approx(0.9325e6, rel=1e-3), pytest.approx(6.8095e6, rel=1e-3))
    [alone] = studies.points(FIGURE, result(leg("2/s", 0, 5)))
    assert alone.mean_interval_ns is None
    assert alone.success_interval == (pytest.approx(0.1871, abs=1e-4), pytest.approx(0.8129, abs=1e-4))
    assert studies.shares(alone.success_interval) == "18.71% – 81.29%"
    assert (studies.delays(None), studies.delays((2e6, 4e6))) == ("–", "2 ms – 4 ms")


def test_an_invalid_trial_is_left_out_where_another_is_valid() -> None:
    mixed = leg("2/s", 0, 10)
    mixed.repetitions.append(trial(0, 10, False, 9e9))
    [one] = studies.points(FIGURE, result(mixed))
    assert (one.attempts, one.success, one.mean_ns, one.trials, one.valid) == (10, 1.0, 2e6, 2, 1)


@pytest.mark.parametrize("rated", [True, False])
def test_a_plot_shows_intervals(rated: bool) -> None:
    levels = {"rate": "2/s"} if rated else {"location": "memory"}
    point = Point(levels, 9, 1.0, 2e6, 3e6, 3, 3, (), (0.7, 1.0), (1e6, 4e6))
    drawn = ElementTree.fromstring(plot(FIGURE, [point]))
    assert sum(one.get("class") == "interval" for one in drawn.iter()) == 2


@pytest.mark.parametrize(
    "points",
    [
        [Point({"rate": "2/s", "registered": 5}, 9, 1.0, 2e6, 3e6, 1, 1)],
        [Point({"rate": "2/s"}, 9, 0.0, None, None, 1, 1), Point({"rate": "9/s"}, 9, 0.5, 7e8, 9e8, 1, 1)],
        [Point({"location": "<memory>"}, 9, 1.0, 2e6, 3e6, 1, 1), Point({"location": "x"}, 0, None, None, None, 1, 0)],
    ],
)  # fmt: skip
def test_a_plot_is_a_drawing(points: list[Point]) -> None:
    drawn = ElementTree.fromstring(plot(FIGURE, points))
    shapes = [one.tag.rpartition("}")[2] for one in drawn.iter()]
    assert shapes.count("circle") + shapes.count("rect") > len([p for p in points if p.mean_ns])


def test_what_is_kept_says_where_it_was_measured() -> None:
    kept = studies.document(FIGURE, result(leg("2/s", 0, 10)), quick=True)
    assert kept["run"] == "r" and kept["quick"] is True and len(kept["points"]) == 1


def test_a_part_of_the_report_has_each_interval_and_korean_heads(tmp_path: Path) -> None:
    about = studies.document(FIGURE, result(leg("2/s", 0, 10, means=(2e6, 2e6, 2e6))), quick=True)
    summary = parts._summary([about], tmp_path)
    assert summary.rows == [
        ("2/s", "0", "30", "100%", "88.43% – 100%", "2 ms", "2 ms – 2 ms", "3 ms", "3 of 3")
    ]
    assert len(summary.heads) == len(summary.rows[0])
    assert set(summary.heads) - {"rate", "registered", "p95"} <= KOREAN.keys()
