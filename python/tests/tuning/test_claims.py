"""The claims of a comparison, simulated: sizes that are told, counters that explain, counts and their intervals.

Each share is held against its bound plus 3.3 standard errors of a share over so many runs.
"""

from __future__ import annotations

import math
import random
from statistics import mean, median

import pytest

from netdyno.stats.comparison import Comparison, Mechanism, Verdict, judge
from netdyno.stats.conditional import conditional
from netdyno.stats.counts import difference_interval, difference_p, is_counts
from netdyno.stats.observation import Metric, Observation
from netdyno.tuning.recommend import Context, Experience, recommend

RUNS = [pytest.param(120, id="120"), pytest.param(1000, id="1000", marks=pytest.mark.long)]
RATE = {"rate": Metric("rate", "/s", "higher")}
FAILED = {"failed": Metric("failed", "", "lower", zero_is_best=True)}
LIMITS = [f"TcpExtLimit{number}" for number in range(8)]


def error(share: float, runs: int) -> float:
    return 3.3 * math.sqrt(max(share * (1 - share), 0.01) / runs)


def compared(
    draw: random.Random, change: float, pairs: int, noise: float = 0.2, **counters: float
) -> Comparison:
    """Trials with normal noise of logs; counters: how many times as large in B, each with noise of its own."""

    def one(factor: float, second: bool) -> Observation:
        value = 1000 * factor * math.exp(draw.gauss(0, noise / math.sqrt(2)))
        seen = {
            n: 100 * (times if second else 1) * math.exp(draw.gauss(0, 0.3)) for n, times in counters.items()
        }
        return Observation({}, {"rate": value}, seen)

    found = [(one(1.0, False), one(1 + change, True)) for _ in range(pairs)]
    return judge(found, RATE, list(counters))


@pytest.mark.parametrize("runs", RUNS)
@pytest.mark.parametrize("true", [0.05, 0.1])
def test_the_size_that_is_told_is_the_true_one_in_the_middle(runs: int, true: float) -> None:
    draw = random.Random(1)
    told = []
    for _ in range(runs * 4):
        (found,) = compared(draw, true, 24).findings
        if found.verdict is Verdict.BETTER:
            assert found.likely is not None
            assert 0 <= found.likely <= found.effect.change
            told.append((found.effect.change, found.likely))
    plain, likely = median(one for one, _ in told), median(one for _, one in told)
    assert plain > true
    assert abs(likely - true) < abs(plain - true)
    # the middle of the corrected ones: its standard error is about 1.25 noise / sqrt(pairs x runs told)
    assert abs(likely - true) < 0.015 + 3.3 * 1.25 * 0.06 / math.sqrt(len(told))


def test_an_effect_far_from_the_limit_stays_as_it_is() -> None:
    assert conditional(1.0, (0.9, 1.1), 0.05) == pytest.approx(1.0, abs=1e-6)
    assert conditional(-1.0, (-1.1, -0.9), 0.05) == pytest.approx(-1.0, abs=1e-6)
    assert conditional(0.1, (-0.1, 0.3), 0.05) == 0.1
    assert 0 <= conditional(0.1, (0.001, 0.199), 0.05) < 0.05


@pytest.mark.parametrize("runs", RUNS)
def test_of_eight_counters_none_explains_by_chance(runs: int) -> None:
    draw = random.Random(2)
    found = [compared(draw, 1.0, 10, **dict.fromkeys(LIMITS, 1.0)).mechanism for _ in range(runs)]
    share = mean(one is Mechanism.OBSERVED for one in found)
    assert share <= 0.05 + error(0.05, runs)


@pytest.mark.parametrize("runs", RUNS)
def test_a_limit_that_binds_more_does_not_explain_an_improvement(runs: int) -> None:
    draw = random.Random(3)
    rising = [compared(draw, 1.0, 10, TcpExtLimit0=100.0).mechanism for _ in range(runs // 4)]
    assert set(rising) == {Mechanism.CONTRADICTED}
    falling = [compared(draw, 1.0, 10, TcpExtLimit0=0.01).mechanism for _ in range(runs // 4)]
    assert set(falling) == {Mechanism.OBSERVED}
    # a counter of use explains either way
    assert compared(draw, 0.5, 10, TcpExtTWRecycled=100.0).mechanism is Mechanism.OBSERVED
    # and a loss is explained by a limit that binds more
    assert compared(draw, -0.5, 10, TcpExtLimit0=100.0).mechanism is Mechanism.OBSERVED
    assert compared(draw, -0.5, 10, TcpExtLimit0=0.01).mechanism is Mechanism.CONTRADICTED


def poisson(draw: random.Random, rate: float) -> float:
    limit, product, count = math.exp(-rate), draw.random(), 0
    while product > limit:
        product *= draw.random()
        count += 1
    return float(count)


@pytest.mark.parametrize("runs", RUNS)
@pytest.mark.parametrize("rate", [0.1, 0.5, 3.0])
def test_the_interval_of_a_difference_of_counts_holds_it(runs: int, rate: float) -> None:
    draw = random.Random(4)
    held = 0
    for _ in range(runs):
        a, b = [poisson(draw, 2 * rate) for _ in range(8)], [poisson(draw, rate) for _ in range(8)]
        low, high = difference_interval(a, b, 0.05)
        held += low <= -rate <= high
    assert held / runs >= 0.95 - error(0.95, runs)


@pytest.mark.parametrize("runs", RUNS)
def test_rare_failures_are_not_said_to_be_no_effect(runs: int) -> None:
    draw = random.Random(5)
    said = 0
    for _ in range(runs):
        pairs = [
            (Observation({}, {"failed": poisson(draw, 0.1)}, {}), Observation({}, {"failed": 0.0}, {}))
            for _ in range(8)
        ]
        (found,) = judge(pairs, FAILED, []).findings
        said += found.verdict is Verdict.NO_EFFECT
        assert found.least_count is not None
        assert found.least_count > 0.2
    assert said == 0


def test_many_failures_against_none_are_shown() -> None:
    draw = random.Random(6)
    pairs = [
        (Observation({}, {"failed": poisson(draw, 5)}, {}), Observation({}, {"failed": 0.0}, {}))
        for _ in range(8)
    ]
    (found,) = judge(pairs, FAILED, []).findings
    assert (found.verdict, found.effect.differs) == (Verdict.BETTER, True)
    assert found.p_holm <= 0.05
    assert difference_p([0.0] * 8, [0.0] * 8) == 1.0
    assert not is_counts(0.5)


def test_a_share_that_is_always_0_is_no_count_of_events() -> None:
    """No bound in events a trial follows for it; of neither is it said that nothing can come."""
    for unit, bounded in (("ratio", False), ("", True)):
        metric = Metric("lost", unit, "lower", zero_is_best=True)
        pairs = [(Observation({}, {"lost": 0.0}, {}), Observation({}, {"lost": 0.0}, {})) for _ in range(8)]
        (found,) = judge(pairs, {"lost": metric}, []).findings
        assert found.effect.interval is not None
        assert found.verdict is Verdict.NOT_SHOWN
        assert (found.effect.interval != (0.0, 0.0), found.least_count is not None) == (bounded, bounded)


@pytest.mark.parametrize("runs", RUNS)
@pytest.mark.parametrize("noise", [0.05, 0.2])
@pytest.mark.slow
def test_where_nothing_helps_something_is_seldom_recommended(runs: int, noise: float) -> None:
    """24 contexts, four settings that change nothing, a service like them: how often something is proposed."""
    draw = random.Random(7)

    def features() -> dict[str, float]:
        return {
            "rtt": 10 ** draw.uniform(-3, -1), "rate": 10 ** draw.uniform(7, 9), "udp": 0.0, "connects": 1.0,
            "drops": 0.0,
        }  # fmt: skip

    proposed = 0
    for _ in range(runs):
        contexts = tuple(
            Context(f"{i}", features(), "rate", {s: [draw.gauss(0, noise) for _ in range(3)] for s in "abcd"})
            for i in range(24)
        )
        found = recommend(Experience({}, {s: {} for s in "abcd"}, contexts), features())
        proposed += bool(found.setting)
    assert proposed / runs <= 0.05 + error(0.05, runs)


@pytest.mark.parametrize("runs", RUNS)
@pytest.mark.parametrize(("slope", "noise"), [(1.0, 0.05), (1.0, 0.2), (2.0, 0.2), (6.0, 0.05)])
def test_a_gain_of_a_hundred_is_promised_within_its_interval(runs: int, slope: float, noise: float) -> None:
    """40 contexts, as many as come with netdyno; the gain grows with the round trip, up to x 100 at 100 ms."""
    draw = random.Random(9)

    def features(least: float) -> dict[str, float]:
        return {
            "rtt": 10 ** draw.uniform(least, -1), "rate": 10 ** draw.uniform(7, 9), "udp": 0.0, "connects": 1.0,
            "drops": 0.0,
        }  # fmt: skip

    def truth(seen: dict[str, float]) -> float:
        return math.log(100) / (1 + (seen["rtt"] / 0.01) ** -slope)

    def context(name: str) -> Context:
        seen = features(-3)
        big = [truth(seen) + draw.gauss(0, noise) for _ in range(2)]
        return Context(name, seen, "rate", {"big": big, "none": [draw.gauss(0, noise) for _ in range(2)]})

    held, told, promised = 0, list[float](), 0
    for _ in range(runs):
        contexts = tuple(context(f"{i}") for i in range(40))
        service = features(-1.2)
        found = recommend(Experience({}, {"big": {}, "none": {}}, contexts), service)
        if not found.known:
            # at the edge of what was measured
            continue
        promised += found.setting == "big"
        (one,) = [e for e in found.expected if e.setting == "big"]
        assert one.interval is not None
        held += one.interval[0] <= truth(service) <= one.interval[1]
        told.append(one.gain - truth(service))
    assert len(told) >= 0.95 * runs
    assert promised >= 0.98 * len(told)
    # the interval is said to hold it in 90 %
    print(f"{held} of {len(told)} held, {math.exp(median(told)):.2f} of the truth in the middle")
    assert held / len(told) >= 0.9 - error(0.1, runs)
    # and in the middle no less than two thirds of it are promised, nor more than half as much again
    assert -math.log(1.5) < median(told) < math.log(1.5)


def test_too_few_pairs_to_tell_of_any_counter_contradict_nothing() -> None:
    """Two counters of use that move in each of 7 pairs: none can be shown as one of two at this level."""
    draw = random.Random(8)

    def one(value: float, used: float) -> Observation:
        counters = {"TcpExtTWRecycled": used, "TcpExtTW": 200 - used}
        return Observation({}, {"rate": value * math.exp(draw.gauss(0, 0.01))}, counters)

    for pairs, mechanism in ((7, Mechanism.NOT_OBSERVABLE), (8, Mechanism.OBSERVED)):
        found = [(one(10, 0), one(30, 90 + n)) for n in range(pairs)]
        made = judge(found, RATE, ["TcpExtTWRecycled", "TcpExtTW"], level=0.025)
        assert (made.findings[0].verdict, made.mechanism) == (Verdict.BETTER, mechanism)
    still = [(one(10, 5), one(30, 5)) for _ in range(7)]
    assert (
        judge(still, RATE, ["TcpExtTWRecycled", "TcpExtTW"], level=0.025).mechanism is Mechanism.CONTRADICTED
    )
