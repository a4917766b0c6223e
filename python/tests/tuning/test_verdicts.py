"""A verdict and its interval are one thing: for any data, any number of pairs and of metrics, and on benches
whose trials the machine disturbs."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from scipy import stats

from netdyno.errors import Error
from netdyno.experiment.pairs import RepeatBudget, measure_pairs
from netdyno.stats import paired, power
from netdyno.stats.comparison import Comparison, Verdict, judge
from netdyno.stats.observation import Metric, Observation, Setting
from netdyno.stats.ranks import SignedRanks
from netdyno.stats.unpaired import among, holm
from netdyno.tuning import calibrate

LEVELS = st.sampled_from([0.01, 0.0125, 0.05, 0.1, 0.3, 0.5])
COUNTS = st.integers(-3, 3).map(float)
ANY = st.floats(-1e12, 1e12, allow_nan=False)


def observed(rows: Sequence[Mapping[str, float]]) -> list[Observation]:
    return [Observation({}, dict(row), {}, seconds=1.0) for row in rows]


def verdicts_are_those_of_the_intervals(found: Comparison) -> None:
    for one in found.findings:
        e = one.effect
        assert (e.interval is None) == (one.verdict is Verdict.TOO_FEW)
        excludes = e.interval is not None and not e.interval[0] <= 0 <= e.interval[1]
        assert excludes == (one.verdict in (Verdict.BETTER, Verdict.WORSE))
        assert excludes == (one.p_holm <= found.level)
        if e.interval is not None:
            assert e.interval[0] <= e.change <= e.interval[1]
        if excludes:
            upwards = (one.verdict is Verdict.WORSE) != (one.metric.better == "higher")
            assert (e.change > 0) == upwards
        if one.verdict is Verdict.NO_EFFECT:
            assert e.interval is not None
            assert abs(e.b - e.a) <= found.matters * abs(e.a)


@given(st.lists(st.lists(COUNTS | ANY, min_size=3, max_size=3), min_size=1, max_size=14), LEVELS)
@example([[5.0, 0.0, 0.0]] * 5, 0.05)
@example([[1.0, -1.0, 0.0]] * 8, 0.05)
def test_a_verdict_never_contradicts_its_interval(rows: list[list[float]], level: float) -> None:
    """Three metrics, corrected for each other; differences of any size, ties and zeros among them."""
    metrics = {
        name: Metric(name, "", "higher" if name == "x" else "lower", zero_is_best=True) for name in "xyz"
    }
    a = observed([dict.fromkeys("xyz", 0.0)] * len(rows))
    b = observed([dict(zip("xyz", row, strict=True)) for row in rows])
    found = judge(list(zip(a, b, strict=True)), metrics, [], level=level)
    verdicts_are_those_of_the_intervals(found)
    # and so with a counter that moved
    moved = [replace(one, counters={"TcpExtTW": 1.0}) for one in b]
    verdicts_are_those_of_the_intervals(
        judge(list(zip(a, moved, strict=True)), metrics, ["TcpExtTW"], level=level)
    )


@given(st.lists(st.tuples(st.floats(1e-6, 1e9), st.floats(1e-6, 1e9)), min_size=1, max_size=12), LEVELS)
def test_nor_does_one_of_ratios(sides: list[tuple[float, float]], level: float) -> None:
    metrics = {"x": Metric("x", "", "higher")}
    pairs = [(observed([{"x": a}])[0], observed([{"x": b}])[0]) for a, b in sides]
    verdicts_are_those_of_the_intervals(judge(pairs, metrics, [], level=level))


@given(st.lists(st.integers(-1000, 1000), min_size=1, max_size=10, unique_by=abs))
def test_the_test_is_wilcoxons_and_its_interval_is_all_that_it_does_not_reject(whole: list[int]) -> None:
    values = [float(one) for one in whole]
    ranks = SignedRanks(values)
    if 0.0 not in values and len(values) > 1:
        expected = float(stats.wilcoxon(values, method="exact").pvalue)
        assert ranks.p == pytest.approx(expected)
    interval = ranks.interval(0.05)
    if interval is None:
        assert len(values) < paired.least_pairs(0.05)
        return
    low, high = interval
    apart = max(1e-6, 1e-9 * max(map(abs, values)))
    for inside in (low + apart, high - apart):
        if low + apart < high - apart:
            assert SignedRanks([v - inside for v in values]).p > 0.05
    for outside in (low - apart, high + apart):
        assert SignedRanks([v - outside for v in values]).p <= 0.05


def test_no_more_than_the_level_is_wrong_with_ties_and_zeros() -> None:
    """All ways to give signs to differences of which some are alike and some nothing."""
    for sizes in ([0, 0, 1, 1, 1, 2, 2, 3], [1] * 8, [0, 0, 0, 1, 2, 3, 4, 5], [1, 1, 2, 2, 3, 3, 4, 4]):
        wrong = 0
        for signs in range(2 ** len(sizes)):
            values = [float(size if signs >> i & 1 else -size) for i, size in enumerate(sizes)]
            wrong += SignedRanks(values).p <= 0.05
        assert wrong / 2 ** len(sizes) <= 0.05


@given(st.lists(st.sampled_from([1.0, 0.5, 0.04, 0.03, 0.02, 0.01, 1e-3]), min_size=1, max_size=6), LEVELS)
def test_each_metric_has_the_level_at_which_holm_takes_it(p: list[float], level: float) -> None:
    for corrected, alone, tests in zip(holm(p), p, among(p, level), strict=True):
        assert (corrected <= level) == (tests * alone <= level)


class Stolen:
    """A bench of which the hypervisor takes a share of the trials, by a draw of its own."""

    metrics: Mapping[str, Metric] = {"throughput": Metric("throughput", "bit/s", "higher")}

    def __init__(self, share: float, better: float = 4.0, noise: float = 0.05, seed: int = 1) -> None:
        self.draw, self.share, self.better, self.noise = random.Random(seed), share, better, noise
        self.trials = 0

    def measure(self, setting: Setting, seed: int) -> Observation:
        self.trials += 1
        value = math.exp(self.draw.gauss(0, self.noise) + (math.log(self.better) if setting else 0))
        steal = 40.0 if self.draw.random() < self.share else 0.0
        counters = {"cpu.all": 100.0, "cpu.steal": steal, "TcpExtTW": 1.0 if setting else 0.0}
        return Observation(setting, {"throughput": value}, counters, seconds=1.0)


def compared(bench: Stolen, spare: int | None = None, pairs: int = 8) -> tuple[Comparison, RepeatBudget]:
    rest = RepeatBudget(2 * pairs if spare is None else spare)
    found = measure_pairs(bench, {}, {"x": 1}, pairs, 1, spare=rest)
    return judge(found, bench.metrics, ["TcpExtTW"], again=rest.again), rest


@pytest.mark.parametrize("share", [0.1, 0.25, 0.4])
def test_what_steal_takes_is_measured_again_until_it_can_be_told(share: float) -> None:
    """With a third of the trials lost, a fourfold gain was `not shown`: half of the pairs were left."""
    for seed in range(20):
        bench = Stolen(share, seed=seed)
        found, rest = compared(bench, spare=40)
        assert found.verdict("throughput") is Verdict.BETTER
        assert (found.pairs, found.lost) == (8, {})
        assert found.again.get("steal", 0) == rest.again.total() == bench.trials - 16


def test_what_cannot_be_told_for_want_of_pairs_is_said_to_be_that() -> None:
    for seed in range(20):
        found, rest = compared(Stolen(0.5, seed=seed), spare=2)
        verdicts_are_those_of_the_intervals(found)
        if found.pairs >= 6:
            continue
        assert rest.left == 0
        assert found.too_few
        lost = found.dropped
        assert found.shortage == f"too few valid pairs: {found.pairs} of the 6 it takes, {lost} lost to steal"
        assert all(one.verdict is Verdict.TOO_FEW for one in found.findings)
    gone, _ = compared(Stolen(1.0), spare=3)
    assert gone.shortage == "too few valid pairs: 0 of the 6 it takes, 8 lost to steal"


def test_what_fails_by_itself_has_but_half_of_the_spare() -> None:
    class Failing(Stolen):
        def measure(self, setting: Setting, seed: int) -> Observation:
            seen = super().measure(setting, seed)
            return replace(seen, metrics={}, valid=False, why="out of memory") if setting else seen

    bench = Failing(0.0)
    found, rest = compared(bench, spare=10)
    assert (bench.trials, rest.left) == (16 + 5, 5)
    assert found.lost == {"failures (out of memory)": 8}


def test_a_calibration_of_too_few_pairs_is_none() -> None:
    pairs = measure_pairs(Stolen(1.0), {}, {}, 4, 1)
    with pytest.raises(Error, match="0 of the 2 that a noise takes, 4 lost to steal") as caught:
        calibrate.calibration("x", pairs, Stolen.metrics)
    assert (caught.value.code, caught.value.exit_code) == ("ND-90-31", 90)


def test_the_mean_of_a_trial_that_is_far_off_is_not_kept_quiet() -> None:
    """Eleven pairs alike and one trial that took fifty times as long: neither `no effect` nor plainly better."""
    metrics = {"p99": Metric("p99", "ms", "lower")}
    draw = random.Random(3)
    a = [10 * math.exp(draw.gauss(0, 0.005)) for _ in range(12)]
    same = judge(
        list(zip(observed([{"p99": x} for x in a]), observed([{"p99": x} for x in [*a[:11], 500]]), strict=True)),
        metrics, [],
    )  # fmt: skip
    assert same.verdict("p99") is Verdict.NOT_SHOWN
    b = [*(0.9 * x for x in a[:11]), 500]
    pairs = list(zip(observed([{"p99": x} for x in a]), observed([{"p99": x} for x in b]), strict=True))
    moved = [(one, replace(two, counters={"TcpExtTW": 1.0})) for one, two in pairs]
    (better,) = judge(moved, metrics, ["TcpExtTW"]).findings
    assert better.verdict is Verdict.BETTER
    assert better.effect.means_disagree


def test_so_many_pairs_are_planned_as_find_the_change() -> None:
    """Of 200 comparisons of as many pairs as are planned, four of five find it; also with the fewest."""
    for change, spread in ((3.0, 0.05), (0.1, 0.05), (0.25, 0.2), (0.15, 0.05)):
        pairs = power.pairs_for(change, spread, 400, 200)
        assert pairs >= paired.least_pairs(0.05)
        assert power.detectable(spread, 400, pairs) <= change
        draw, found = random.Random(9), 0
        for _ in range(200):
            found += SignedRanks([draw.gauss(math.log1p(change), spread) for _ in range(pairs)]).p <= 0.05
        # of 200 with a chance of 0.8 fewer than 140 are one in a thousand
        assert found >= 140
    assert power.pairs_for(0.01, 1.0, 400, 30) == 30
    assert power.pairs_for(0.01, 1.0, 400, 3) == paired.least_pairs(0.05)
