"""How often the tuner is wrong when it says better, simulated with its own functions on benches of known truth.

Each rate has its binomial standard error beside it. Of 500 runs each, before these faults were removed: a search that
went on with more trials proved something false in 8.2 %, a comparison of 17 looks was wrong in 17.6 %, and a setting
that disturbs the machine and is 12 % worse was called better in 99.8 to 100 %.
"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from netdyno.experiment.looks import Looks
from netdyno.experiment.pairs import measure_pairs
from netdyno.experiment.record import Record
from netdyno.stats.comparison import Comparison, Verdict, judge
from netdyno.stats.discards import Discard, fisher
from netdyno.stats.sequential import first_look, look_at, looks, share
from netdyno.tuning.bench import Spec
from netdyno.tuning.compare_run import ComparisonRequest, measure_stages
from netdyno.tuning.prove import ProofPlan, measure, plan, resume_or_plan
from netdyno.tuning.search import Budget, Goal, SearchOutcome, search
from netdyno.tuning.space import space
from netdyno.tuning.study_listener import StudyListener

from .drifting import COUNTER, INERT, METRICS, Disturbing, Drifting

LEVEL = 0.05
CLAIMS = (Verdict.BETTER, Verdict.WORSE)


@pytest.fixture(autouse=True)
def _in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", lambda _: None)


def at_most(wrong: int, of: int, level: float = LEVEL) -> None:
    """Whether so many are no more than the level, within three standard errors of such an estimate."""
    error = math.sqrt(level * (1 - level) / of)
    print(f"{wrong} of {of}: {wrong / of:.3f}, standard error {error:.3f}")
    assert wrong / of <= level + 3 * error


# ---- a search that goes on


def gone_on_with(path: Path, seed: int, drift: float, trials: Sequence[int] = (8, 20)) -> list[SearchOutcome]:
    """A search of what changes nothing, with more trials each time."""
    bench, found = Drifting(seed, drift), []
    for count in trials:
        # another hour, and the machine is another
        bench.at += bench.draw.gauss(0, 0.1)
        with Record(path, {}) as record:
            goal, budget = Goal(("throughput",)), Budget(trials=count)
            found.append(search(bench, space(INERT), goal, record, budget=budget, seed=seed, level=LEVEL))
    return found


def test_trials_of_a_proof_are_its_own(tmp_path: Path) -> None:
    """Another proposal is proven by blocks that are all measured after it was made; the same one is not measured
    again, and each further proof has half the level of the one before."""
    bench, one, two = Drifting(1), {"a": 1}, {"a": 2}
    told: list[tuple[int, int, float, int]] = []
    for setting in (one, one, two, one):
        with Record(tmp_path / "a.jsonl", {}) as record:

            def make(level: float, pairs: int | None, spare: int | None) -> ProofPlan:
                return plan(
                    METRICS, {"throughput": 1.0}, {"throughput": 0.1}, 3, arms=2, level=level, pairs=pairs
                )

            planned = resume_or_plan(record, [{}, setting], LEVEL, None, make)
            before = bench.trials
            measured, _ = measure(bench, record, planned, [{}, setting], 1)
            assert all(len(side.trials) == planned.pairs for side in measured)
            started = [t.observation.started for side in measured for t in side.trials]
            told.append((planned.number, planned.pairs, planned.level, bench.trials - before))
            if bench.trials > before:
                assert min(started) == before + 1
    numbers, pairs, levels, fresh = zip(*told, strict=True)
    assert numbers == (1, 1, 2, 1)
    assert levels == (LEVEL / 2, LEVEL / 2, LEVEL / 4, LEVEL / 2)
    assert fresh == (2 * pairs[0], 0, 2 * pairs[2], 0)
    assert pairs[2] > pairs[0] == pairs[3]
    # more pairs than it has are another proof, and not a longer one
    with Record(tmp_path / "a.jsonl", {}) as record:
        assert resume_or_plan(record, [{}, one], LEVEL, pairs[0] + 1, make).number == 3
        assert resume_or_plan(record, [{}, one], LEVEL, pairs[0], make).number == 1


@pytest.mark.long
@pytest.mark.parametrize("drift", [0.01, 0.03])
def test_a_search_that_goes_on_is_falsely_proven_no_more_often_than_stated(
    tmp_path: Path, drift: float
) -> None:
    wrong = 0
    for seed in range(500):
        wrong += any(one.proven for one in gone_on_with(tmp_path / f"{seed}.jsonl", seed, drift))
    at_most(wrong, 500)


# ---- a comparison that goes on


def compared(record: Record, bench: Drifting, pairs: int, seed: int) -> tuple[Comparison, Looks]:
    """As `tune compare` does it, from the record to the verdict."""
    wanted = ComparisonRequest(Spec(workload="wrk"), "baseline", [], pairs=pairs, seed=seed)
    planned = Looks(record, first_look(pairs, LEVEL, 1), pairs, LEVEL)
    found, discarded, rest = measure_stages(
        Kept(bench, record), {}, {"x": 1}, planned, wanted, StudyListener()
    )
    result = judge(found, METRICS, [COUNTER], level=planned.now.level, again=rest.again, discarded=discarded)
    if not result.too_few:
        planned.judged(result.pairs)
    return result, planned


class Kept:
    """A bench whose trials are answered from the record."""

    metrics = METRICS

    def __init__(self, bench: Drifting, record: Record) -> None:
        from netdyno.tuning.benches import RecordedBench

        self.measure = RecordedBench(bench, record, "compare").measure


def wrong_at_any_look(folder: Path, runs: int, pairs: Sequence[int]) -> int:
    wrong = 0
    for seed in range(runs):
        claimed = False
        with Record(folder / f"{seed}.jsonl", {}) as record:
            bench = Drifting(seed)
            for count in pairs:
                result, _ = compared(record, bench, count, seed)
                claimed = claimed or result.findings[0].verdict in CLAIMS
        wrong += claimed
    return wrong


def test_looks_are_planned_and_spend_no_more_than_the_level() -> None:
    planned = [one for one, _ in zip(looks(8, LEVEL), range(40), strict=False)]
    assert [one.pairs for one in planned[:4]] == [8, 12, 18, 27]
    assert sum(one.level for one in planned) <= LEVEL
    # the share belongs to the size: who leaves looks out gains nothing
    assert look_at(8, LEVEL, 100) == next(one for one in planned if one.pairs >= 100)
    assert look_at(8, LEVEL, 8, after=2) == planned[1]
    # each can prove something, however many metrics there are
    for tests in (1, 3, 6):
        first = first_look(2, LEVEL, tests)
        assert tests * 2.0 ** (1 - first) <= share(LEVEL, 1) < tests * 2.0 ** (2 - first)


def test_more_pairs_are_the_next_look_and_nothing_is_judged_twice(tmp_path: Path) -> None:
    bench = Disturbing(3, 0.0, others=0.3)
    counts = []
    for pairs, spare_of in ((8, 1), (8, 1), (9, 2), (12, 2), (8, 2), (30, 5)):
        with Record(tmp_path / "a.jsonl", {}) as record:
            result, planned = compared(record, bench, pairs, 1)
        counts.append((planned.now.number, planned.now.pairs, bench.trials))
        assert planned.now.number == spare_of
        assert result.level == share(LEVEL, spare_of)
        assert result.pairs + result.dropped == planned.now.pairs
    assert [one[:2] for one in counts] == [(1, 8), (1, 8), (2, 12), (2, 12), (2, 12), (5, 41)]
    # measured once: at the same look and at an earlier one there is nothing new
    assert counts[0][2] == counts[1][2] < counts[2][2] == counts[3][2] == counts[4][2] < counts[5][2]
    assert [one["number"] for one in planned.document()["taken"]] == [1, 2, 5]
    assert planned.document()["spent"] == pytest.approx(LEVEL * (1 / 2 + 1 / 4 + 1 / 32))


def test_a_look_of_too_few_pairs_is_none_and_goes_on(tmp_path: Path) -> None:
    """Only what was judged is settled: else a larger spare would be one more chance."""
    bench = Disturbing(1, 0.0, others=0.5)
    wanted = ComparisonRequest(Spec(workload="wrk"), "baseline", [], pairs=8, spare=0)
    pairs = []
    for spare in (0, 60, 200):
        with Record(tmp_path / "a.jsonl", {}) as record:
            planned = Looks(record, 8, 8, LEVEL)
            found, _, _ = measure_stages(
                Kept(bench, record),
                {},
                {"x": 1},
                planned,
                replace(wanted, spare=spare),
                StudyListener(),
            )
            result = judge(found, METRICS, [COUNTER], level=planned.now.level)
            if not result.too_few:
                planned.judged(result.pairs)
            pairs.append((result.pairs, bench.trials))
    assert pairs[0][0] < 6 < pairs[1][0] == 8
    assert pairs[2] == pairs[1]


def test_a_comparison_with_many_looks_is_rarely_wrong(tmp_path: Path) -> None:
    """The quick version of the next: 100 runs."""
    at_most(wrong_at_any_look(tmp_path, 100, (8, 12, 16)), 100)


@pytest.mark.long
@pytest.mark.parametrize("pairs", [(8, 16), range(8, 25)], ids=["8 and 16", "17 looks"])
def test_a_comparison_that_goes_on_is_wrong_no_more_often_than_stated(
    tmp_path: Path, pairs: Sequence[int]
) -> None:
    at_most(wrong_at_any_look(tmp_path, 500, pairs), 500)


@pytest.mark.long
def test_the_intervals_of_all_looks_hold_the_truth(tmp_path: Path) -> None:
    """Of 500 comparisons with a true 10 %, looked at three times, all three intervals hold it in 95 %."""
    missed = 0
    for seed in range(500):
        with Record(tmp_path / f"{seed}.jsonl", {}) as record:
            bench = Disturbing(seed, 0.0, noise=0.1, better=0.1)
            for count in (8, 12, 18):
                (one,) = compared(record, bench, count, seed)[0].findings
                assert one.effect.interval is not None
                if not one.effect.interval[0] <= 0.1 <= one.effect.interval[1]:
                    missed += 1
                    break
    at_most(missed, 500)


# ---- trials that are discarded


def discarding(runs: int, share: float, others: float = 0.0, whole: float = -0.12) -> tuple[int, int]:
    """How often a setting that disturbs the machine is called better, and how often it is said to be invalid."""
    better = invalid = 0
    for seed in range(runs):
        bench = Disturbing(seed, share, others, better=0.08, whole=whole)
        discarded: list[Discard] = []
        pairs = measure_pairs(bench, {}, {"x": 1}, 8, seed, discarded=discarded)
        found = judge(pairs, METRICS, [COUNTER], level=LEVEL / 2, discarded=discarded)
        better += any(one.verdict is Verdict.BETTER for one in found.findings)
        invalid += bool(found.unequal)
    return better, invalid


def test_fishers_test_is_fishers() -> None:
    from scipy import stats

    for a, of_a, b, of_b in ((0, 8, 8, 16), (1, 9, 3, 11), (5, 5, 0, 5), (0, 8, 0, 8), (3, 20, 4, 21)):
        expected = stats.fisher_exact([[a, of_a - a], [b, of_b - b]]).pvalue
        assert fisher(a, of_a, b, of_b) == pytest.approx(float(expected))
    assert fisher(0, 0, 0, 0) == 1.0


@pytest.mark.parametrize("share", [0.15, 0.25, 0.5])
def test_a_setting_that_disturbs_its_trials_is_not_called_better(share: float) -> None:
    """The quick version of the next: 60 runs."""
    better, invalid = discarding(60, share)
    at_most(better - _undisturbed(60, share), 60)
    assert invalid >= 60 * 0.9 - _undisturbed(60, share) - 3


def _undisturbed(runs: int, share: float) -> int:
    """Comparisons in which by chance no trial was disturbed: nothing can be seen of it there."""
    count = 0
    for seed in range(runs):
        bench = Disturbing(seed, share, better=0.08)
        pairs = measure_pairs(bench, {}, {"x": 1}, 8, seed, spare=None, discarded=(gone := []))
        count += all(one.valid for pair in pairs for one in pair) and not gone
    return count


@pytest.mark.long
@pytest.mark.parametrize("whole", [-0.12, -0.03])
@pytest.mark.parametrize("others", [0.0, 0.1])
@pytest.mark.parametrize("share", [0.25, 0.5])
def test_a_setting_that_disturbs_its_trials_is_called_better_no_more_often_than_stated(
    share: float, others: float, whole: float
) -> None:
    better, _ = discarding(500, share, others, whole)
    at_most(better - _undisturbed(500, share), 500)


@pytest.mark.parametrize(
    "others", [0.1, 0.25, pytest.param(0.4, marks=pytest.mark.long)], ids=["10 %", "25 %", "40 %"]
)
def test_what_disturbs_both_alike_makes_no_comparison_invalid(others: float) -> None:
    """A gain of 30 % on a machine of which others take much is shown all the same."""
    runs, wrong, better = 60, 0, 0
    for seed in range(runs):
        bench = Disturbing(seed, 0.0, others, better=0.3)
        discarded: list[Discard] = []
        pairs = measure_pairs(bench, {}, {"x": 1}, 8, seed, discarded=discarded)
        found = judge(pairs, METRICS, [COUNTER], level=LEVEL / 2, discarded=discarded)
        wrong += bool(found.unequal)
        better += any(one.verdict is Verdict.BETTER for one in found.findings)
    at_most(wrong, runs)
    assert better >= runs * 0.85


def test_trials_that_see_nothing_are_discards_too() -> None:
    """A setting with which the service dies now and then is not better where it lives."""

    class Dying(Drifting):
        def measure(self, setting, seed):  # type: ignore[no-untyped-def]
            seen = super().measure(setting, seed)
            metrics = {"throughput": seen.metrics["throughput"] * (1.5 if setting else 1.0)}
            dies = setting and self.trials % 5 == 0
            return replace(
                seen, metrics={} if dies else metrics, valid=not dies, why="it died" if dies else ""
            )

    discarded: list[Discard] = []
    pairs = measure_pairs(Dying(1, 0.0), {}, {"x": 1}, 10, 1, discarded=discarded)
    found = judge(pairs, METRICS, [COUNTER], discarded=discarded)
    assert found.findings[0].verdict is Verdict.INVALID
    assert found.invalid and not found.too_few
    assert "of its trials saw nothing, 0 of the other's" in found.unequal == found.summary
    # and the losses of the baseline are not held against the setting
    turned = [(b, a) for a, b in pairs]
    other = judge(turned, METRICS, [COUNTER], discarded=[Discard(not d.b, d.seen) for d in discarded])
    assert other.findings[0].verdict is Verdict.INVALID
