"""One comparison over several hosts: the interval is over hosts, and who contradicts is named."""

from __future__ import annotations

import math
import random

import pytest

from netdyno.stats import hosts
from netdyno.stats.comparison import Verdict
from netdyno.stats.observation import Metric

DELAY = Metric("delay", "ms", "lower")
FAILED = Metric("failed", "", "lower", zero_is_best=True)


def sides(
    change: float, pairs: int = 8, base: float = 10.0, noise: float = 0.01, seed: int = 1
) -> hosts.Sides:
    """Pairs of a host on which B changes the metric by a factor."""
    draw = random.Random(seed)
    return [
        (base * math.exp(draw.gauss(0, noise)), base * change * math.exp(draw.gauss(0, noise)))
        for _ in range(pairs)
    ]


def test_the_effect_over_all_is_the_mean_of_the_hosts_whatever_they_have_otherwise() -> None:
    those = {f"h{n}": {"delay": sides(0.8, base=10.0**n, seed=n)} for n in range(4)}
    (found,) = hosts.over_hosts({"delay": DELAY}, those, 0.05, 0.05)
    assert (found.verdict, found.effect.n) == (Verdict.BETTER, 4)
    assert found.effect.change == pytest.approx(-0.2, abs=0.02)
    assert found.effect.interval is not None
    low, high = found.effect.interval
    assert low < -0.2 < high < 0


def test_more_pairs_do_not_hide_that_hosts_differ() -> None:
    changes = (0.5, 0.9, 1.3)
    few, many = (hosts.pooled(DELAY, [sides(c, pairs) for c in changes], 0.05, 1) for pairs in (4, 400))
    assert few.interval is not None and many.interval is not None
    assert many.interval[0] < 0 < many.interval[1]
    assert many.interval == pytest.approx(few.interval, abs=0.2)


def test_a_level_holds_when_hosts_differ_and_nothing_helps_in_general() -> None:
    """Effects of hosts are drawn around none: one comparison in twenty may say otherwise."""
    draw, wrong, times = random.Random(7), 0, 400
    for _ in range(times):
        those = [sides(math.exp(draw.gauss(0, 0.2)), 6, seed=draw.randrange(1 << 30)) for _ in range(5)]
        wrong += hosts.pooled(DELAY, those, 0.05, 1).differs
    # 20 expected; 36 and more have a chance under 1 in 1,000
    assert wrong < 36


@pytest.mark.parametrize("count", [1, 2])
def test_one_host_tells_nothing_of_others(count: int) -> None:
    found = hosts.pooled(DELAY, [sides(0.5, seed=n) for n in range(count)], 0.05, 1)
    assert (found.interval is None) == (count == 1)


def test_differences_count_where_ratios_mean_nothing() -> None:
    none = {f"h{n}": {"failed": [(0.0, 0.0)] * 8} for n in range(3)}
    (found,) = hosts.over_hosts({"failed": FAILED}, none, 0.05, 0.05)
    assert (found.verdict, found.effect.change, found.effect.absolute) == (Verdict.NOT_SHOWN, 0.0, True)
    # alike on all hosts to the last digit: as many signs as hosts
    for count, differs in ((5, False), (6, True)):
        assert hosts.pooled(FAILED, [[(0.0, 3.0)] * 8] * count, 0.05, 1).differs is differs


@pytest.mark.parametrize(
    ("over", "of", "named"),
    [
        (Verdict.BETTER, "BBW", ["h2"]),
        (Verdict.WORSE, "WWB", ["h2"]),
        (Verdict.BETTER, "BBN", []),
        (Verdict.NOT_SHOWN, "BWB", ["h1"]),
        (Verdict.NOT_SHOWN, "NWN", []),
    ],
)
def test_hosts_that_contradict_are_named(over: Verdict, of: str, named: list[str]) -> None:
    words = {"B": Verdict.BETTER, "W": Verdict.WORSE, "N": Verdict.NOT_SHOWN}
    those = {f"h{n}": words[letter] for n, letter in enumerate(of)}
    assert hosts.contradicting(over, those) == named
