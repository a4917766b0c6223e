"""The statistics of pairs: exact, careful with few pairs, and right about how often they are wrong."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from netdyno.experiment.pairs import RepeatBudget, measure_pairs
from netdyno.stats import paired, power
from netdyno.stats.comparison import Comparison, Mechanism, Verdict, judge, repeats
from netdyno.stats.discards import Discard
from netdyno.stats.observation import Metric, Observation, Setting
from netdyno.stats.pairs import DisturbanceLimits, disturbed, valid
from netdyno.tuning import calibrate, successive_halving

METRICS = {
    "throughput": Metric("throughput", "bit/s", "higher"),
    "p99": Metric("p99", "ms", "lower"),
    "failed": Metric("failed", "", "lower", zero_is_best=True),
}


class Noisy:
    """A bench that measures nothing: each trial resembles the one before, drifts, and now and then is off."""

    metrics: Mapping[str, Metric] = METRICS

    def __init__(
        self, seed: int, autocorrelation: float = 0.0, tails: bool = False, drift: float = 0.0
    ) -> None:
        self.draw = random.Random(f"noisy {seed}")
        self.autocorrelation, self.tails, self.drift = autocorrelation, tails, drift
        self.state = [0.0, 0.0]
        self.trials = 0

    def measure(self, setting: Setting, seed: int) -> Observation:
        self.trials += 1
        for i in range(2):
            fresh = self.draw.gauss(0, 0.05) * (8 if self.tails and self.draw.random() < 0.1 else 1)
            self.state[i] = self.autocorrelation * self.state[i] + fresh
        gain = float(setting.get("gain", 0)) / 100
        metrics = {
            "throughput": 1e9 * math.exp(self.state[0] + self.drift * self.trials + gain),
            "p99": 5.0 * math.exp(self.state[1] - self.drift * self.trials - gain),
            "failed": float(self.draw.random() < 0.3),
        }
        moves = float(setting.get("moves", 0))
        more = self.draw.random() + 9
        counters = {"TcpExtListenOverflows": more - moves, "TcpExtTW": more + moves}
        return Observation(setting, metrics, counters, started=self.trials, seconds=1.0)


@given(st.lists(st.integers(-6, 6), min_size=2, max_size=11))
def test_signed_rank_counts_all_signs(differences: list[int]) -> None:
    """Against the definition: every way to give signs to the ranks."""
    ranks = stats.rankdata([abs(d) for d in differences])
    counted = [(rank, d) for rank, d in zip(ranks, differences, strict=True) if d]
    middle = sum(rank for rank, _ in counted) / 2
    seen = abs(sum(rank for rank, d in counted if d > 0) - middle)
    sums = [
        abs(sum(rank for (rank, _), up in zip(counted, signs, strict=True) if up) - middle)
        for signs in itertools.product((False, True), repeat=len(counted))
    ]
    expected = sum(one >= seen - 1e-9 for one in sums) / len(sums)
    assert paired.signed_rank(differences) == pytest.approx(expected)


def test_signed_rank_is_wilcoxons() -> None:
    differences = [1.1, -0.4, 2.5, 3.0, 0.7, -0.2, 1.9, 4.2]
    expected = stats.wilcoxon(differences, method="exact").pvalue
    assert paired.signed_rank(differences) == pytest.approx(float(expected))


def test_how_many_pairs_it_takes() -> None:
    for level, tests in ((0.05, 1), (0.05, 3), (0.01, 1), (0.05, 6)):
        n = paired.least_pairs(level, tests)
        assert paired.signed_rank([float(i) for i in range(1, n + 1)]) <= level / tests
        assert paired.signed_rank([float(i) for i in range(1, n)]) > level / tests
    assert repeats(3, 0.05) == 8


def test_the_order_is_drawn_and_the_same_for_the_same_seed() -> None:
    assert paired.design(40, 1) == paired.design(40, 1) != paired.design(40, 2)
    assert 8 < sum(paired.design(40, 1)) < 32
    abba = paired.design(41, 3, "abba")
    assert len(abba) == 41
    assert all(x != y for x, y in zip(abba[:40:2], abba[1::2], strict=True))
    assert len(set(abba[::2])) == 2
    for block in paired.blocks(4, 10, 1):
        assert sorted(block) == [0, 1, 2, 3]


def test_effects_are_ratios_or_differences() -> None:
    a = [100.0, 200.0, 400.0, 1.0, 2.0, 7.0]
    found = paired.effect(a, [1.1 * one for one in a])
    assert found.change == pytest.approx(0.1)
    assert found.interval is not None
    assert found.interval == pytest.approx((0.1, 0.1))
    counts = paired.effect([0.0, 5.0], [0.0, 1.0])
    assert (counts.absolute, counts.change) == (True, -2.0)
    assert paired.effect([1.0], [2.0]).interval is None
    with pytest.raises(ValueError, match="pairs"):
        paired.effect([1.0], [])


def test_the_interval_covers_what_it_should() -> None:
    """Of 300 intervals over 8 pairs, at least as many hold the truth as is said."""
    draw, held = random.Random(5), 0
    for _ in range(300):
        a = [math.exp(draw.gauss(0, 0.1)) for _ in range(8)]
        b = [1.2 * math.exp(draw.gauss(0, 0.1)) for _ in range(8)]
        interval = paired.effect(a, b).interval
        assert interval is not None
        held += interval[0] <= 0.2 <= interval[1]
    # 8 pairs are wrong in 10 of 256; fewer than 280 of 300 is one in a thousand
    assert 280 <= held < 300


def test_what_is_detectable_is_detected() -> None:
    """A change of the stated size is found in at least four of five comparisons."""
    least = power.detectable(0.05 * math.sqrt(2), 8, 8)
    assert 0.05 < least < 0.2
    draw, found = random.Random(9), 0
    for _ in range(200):
        differences = [draw.gauss(math.log1p(least), 0.05 * math.sqrt(2)) for _ in range(8)]
        found += paired.signed_rank(differences) <= 0.05
    assert found >= 160
    assert power.detectable(0.1, 8, 5) == math.inf
    assert power.detectable(0.1, 1, 8) == math.inf


@pytest.mark.parametrize(
    "noise",
    [
        {},
        {"autocorrelation": 0.9},
        {"autocorrelation": -0.6},
        {"tails": True},
        {"autocorrelation": 0.7, "drift": 0.01},
    ],
    ids=["even", "resembling", "alternating", "tails", "drifting"],
)
@pytest.mark.slow
def test_a_against_a_is_claimed_no_more_often_than_stated(noise: dict[str, Any]) -> None:
    """The whole pipeline, 200 times for each kind of noise; the counter always moved, which is the harder case."""
    level, claims = 0.05, 0
    for run in range(200):
        bench = Noisy(run, **noise)
        pairs = measure_pairs(bench, {}, {"moves": 9}, 8, run)
        found = judge(pairs, METRICS, ["TcpExtTW"], level=level)
        assert found.mechanism is Mechanism.OBSERVED
        claims += any(one.verdict in (Verdict.BETTER, Verdict.WORSE) for one in found.findings)
    assert claims / 200 <= level


def test_a_race_among_equals_claims_no_more_often_than_stated() -> None:
    """The winner of each race, measured afresh."""
    claims, equals = 0, [{"moves": 9, "n": n} for n in range(4)]
    for run in range(200):
        bench = Noisy(run, autocorrelation=0.5)
        winner = successive_halving.successive_halving(bench, {}, equals, "throughput", run)[0].candidate
        pairs = measure_pairs(bench, {}, equals[winner], 8, run + 1)
        found = judge(pairs, METRICS, ["TcpExtListenOverflows"])
        claims += any(one.verdict in (Verdict.BETTER, Verdict.WORSE) for one in found.findings)
    assert claims / 200 <= 0.05


def test_effect_and_mechanism_are_two_statements() -> None:
    def compared(setting: Setting, counters: Any = ("TcpExtListenOverflows",)) -> Comparison:
        return judge(measure_pairs(Noisy(1), {}, setting, 8, 1), METRICS, counters)

    for metric in ("throughput", "p99"):
        assert compared({"gain": 40, "moves": 9}).verdict(metric) is Verdict.BETTER
    assert compared({"gain": 40, "moves": 9}).mechanism is Mechanism.OBSERVED
    assert compared({"gain": -40}).verdict("throughput") is Verdict.WORSE
    assert compared({"gain": -40}).verdict("failed") is Verdict.NOT_SHOWN
    # the effect is there whether or not its cause is seen
    still = compared({"gain": 40})
    assert still.verdict("throughput") is Verdict.BETTER
    assert still.mechanism is Mechanism.CONTRADICTED
    assert "counters moved alike with A and B, or the wrong way (TcpExtListenOverflows" in still.explained
    for counters in ((), ["tcp.sndbuf_limited"], {"a": ["TcpExtListenOverflows"], "b": []}):
        assert compared({"gain": 40}, counters).mechanism is Mechanism.NOT_OBSERVABLE
    # read, and nothing: the other counters of its kind say that it was
    assert compared({"gain": 40}, ["TcpExtListenDrops"]).mechanism is Mechanism.CONTRADICTED


def observed(values: Sequence[float], **more: float) -> list[Observation]:
    return [Observation({}, {"failed": v, "throughput": v + 1}, more, seconds=1.0) for v in values]


def test_no_effect_is_said_when_it_is_known() -> None:
    metrics = {"failed": METRICS["failed"]}
    same = judge(list(zip(observed([5000.0] * 6), observed([5000.0] * 6), strict=True)), metrics, [])
    assert same.verdict("failed") == Verdict.NO_EFFECT
    nothing = judge(list(zip(observed([0.0] * 6), observed([0.0] * 6), strict=True)), metrics, [])
    # of what was seen in no trial, half a failure a trial may come all the same
    assert nothing.verdict("failed") == Verdict.NOT_SHOWN
    assert nothing.findings[0].least_count == pytest.approx(0.61, abs=0.01)
    few = judge(list(zip(observed([5.0] * 6), observed([5.0] * 6), strict=True)), metrics, [])
    assert few.verdict("failed") == Verdict.NOT_SHOWN
    one = judge([(observed([5.0])[0], observed([0.0])[0])], metrics, [])
    assert one.verdict("failed") == Verdict.TOO_FEW
    assert judge([], metrics, []).findings == ()


def test_counters_of_few_pairs_must_agree_in_each() -> None:
    def moved(a: Sequence[float], b: Sequence[float]) -> bool:
        sides = [[Observation({}, {}, {"client/TcpExtTW": v}, seconds=1.0) for v in side] for side in (a, b)]
        return judge(list(zip(*sides, strict=True)), {}, ["TcpExtTW"]).mechanism is Mechanism.OBSERVED

    assert moved([5, 6], [0, 1])
    assert not moved([5, 1], [0, 1])


def test_a_disturbed_trial_is_measured_again() -> None:
    class Disturbed(Noisy):
        def measure(self, setting: Setting, seed: int) -> Observation:
            seen = super().measure(setting, seed)
            steal = 30.0 if self.trials in (2, 5) else 1.0
            counters = {"cpu.all": 100.0, "cpu.steal": steal, "psi.io.full": 1e5, "psi.memory.full": 0.0}
            return Observation(setting, seen.metrics, counters, seconds=1.0)

    told: list[tuple[int, int]] = []
    spare = RepeatBudget(8)
    pairs = measure_pairs(
        Disturbed(1), {}, {}, 4, 1, spare=spare, progress=lambda n, of, _: told.append((n, of))
    )
    assert len(valid(pairs)) == 4
    # each in its own place, and no more than that
    assert told[-1] == (10, 10)
    assert (spare.left, spare.again) == (6, {"steal": 2})
    assert judge(pairs, METRICS, [], again=spare.again).again == {"steal": 2}
    strict = measure_pairs(Disturbed(1), {}, {}, 2, 1, limits=DisturbanceLimits(steal=0.001))
    assert valid(strict) == []
    assert strict[0][0].why == "steal 1%"
    assert judge(strict, METRICS, []).lost == {"steal": 2}
    assert disturbed({"psi.memory.full": 5e5, "psi.io.full": 9e5}, 1.0, DisturbanceLimits()) == (
        "memory pressure 50%, disk pressure 90%"
    )


def test_a_race_finds_who_is_fast_with_few_trials() -> None:
    bench = Noisy(3, autocorrelation=0.5)
    candidates: list[Setting] = [{"gain": gain} for gain in (0, 5, 40, -10, -40, 10, 3, 1)]
    told: list[tuple[int, int]] = []
    found = successive_halving.successive_halving(
        bench, {}, candidates, "throughput", 1, progress=lambda n, of, _: told.append((n, of))
    )
    assert found[0].candidate == 2
    # by luck more than it is worth: that is why the winner is measured again
    assert found[0].gain == pytest.approx(0.4, abs=0.2)
    assert {one.left for one in found[-4:]} == {2}
    assert bench.trials < 8 * 9
    assert all(n <= of for n, of in told)
    delay = successive_halving.successive_halving(Noisy(3), {}, candidates, "p99", 1)
    assert delay[0].candidate == 2


def test_a_race_counts_what_can_be_nothing() -> None:
    class Failing(Noisy):
        def measure(self, setting: Setting, seed: int) -> Observation:
            self.trials += 1
            return Observation(setting, {"failed": float(setting.get("failed", 9))}, {}, seconds=1.0)

    bench = Failing(1)
    found = successive_halving.successive_halving(
        bench, {}, [{"failed": 5}, {"failed": 0}, {"failed": 30}], "failed", 1
    )
    assert [one.candidate for one in found] == [1, 0, 2]
    # nobody else is left after the first stage
    assert (bench.trials, found[0].blocks) == (8, 2)


def test_a_calibration_tells_the_noise_and_is_kept() -> None:
    pairs = measure_pairs(Noisy(1), {}, {}, 12, 1)
    made = calibrate.calibration("noisy over nothing", pairs, METRICS)
    noise = {one.metric.name: one for one in made.noise}
    assert 0.03 < noise["throughput"].spread < 0.12
    assert 0.03 < noise["throughput"].detectable < 0.25
    assert noise["failed"].detectable == math.inf
    assert all(one.p > 0.05 for one in made.noise)
    resembling = calibrate.calibration("x", measure_pairs(Noisy(1, 0.95), {}, {}, 30, 1), METRICS)
    assert resembling.noise[0].autocorrelation > 0.5
    calibrate.save(made)
    assert calibrate.load("noisy over nothing") == made
    assert calibrate.load("another") is None
    calibrate.path("noisy over nothing").write_text("{}")
    assert calibrate.load("noisy over nothing") is None


def test_a_calibration_is_for_as_many_pairs_as_a_comparison_takes() -> None:
    """Six pairs prove nothing of three metrics: the change is that which a comparison of eight would see."""
    made = calibrate.calibration("x", measure_pairs(Noisy(1), {}, {}, 5, 1), METRICS)
    assert (made.pairs, made.for_pairs) == (5, 7)
    assert made.noise[0].detectable < math.inf


class Refuses:
    """A bench whose load never gets through with B."""

    metrics: Mapping[str, Metric] = METRICS

    def measure(self, setting: Setting, seed: int) -> Observation:
        if setting:
            return Observation(setting, {}, {}, valid=False, why="connection refused")
        return Observation(setting, {"throughput": 1e9 + seed % 7}, {})


def test_a_setting_with_which_nothing_works_is_said_to_do_so() -> None:
    tried: list[Discard] = []
    pairs = measure_pairs(Refuses(), {}, {"b": 1}, 8, seed=1, discarded=tried)
    metrics = {"throughput": METRICS["throughput"]}
    found = judge(pairs, metrics, {}, discarded=tried)
    count = 8 + len(tried)
    said = f"does not work with the setting: {count} of {count} trials failed (connection refused)"
    assert found.unequal == f"{said}, 0 of 8 without it"
    assert found.summary == found.unequal
    assert found.invalid
    assert found.discards.works_not
    assert found.verdict("throughput") is Verdict.INVALID
    other = judge([(b, a) for a, b in pairs], metrics, {})
    assert not other.discards.works_not
    assert other.unequal.startswith("unequal discards")
    nothing = judge([(b, b) for _, b in pairs], metrics, {})
    assert not nothing.discards.works_not
    assert not nothing.unequal
