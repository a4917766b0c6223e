"""Percentiles by name: which there are, what they come to, and what is said of the others."""

from __future__ import annotations

import math
import random
from typing import Any

import pytest

from netdyno.api.results import Delay
from netdyno.core.wire import Distribution, Quantiles
from netdyno.errors import Error
from netdyno.experiment import limits
from netdyno.report.verdict import name_of
from netdyno.stats import hdr, percentile
from netdyno.stats.metric import GroupMetric
from netdyno.stats.threshold import judge

PROFILE: dict[str, Any] = {"groups": [{"name": "web"}]}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("p50", 50),
        ("p95", 95),
        ("p99.9", 99.9),
        ("p999", 99.9),
        ("p99.999", 99.999),
        ("p0.1", 0.1),
        ("p5", 5),
    ],
)
def test_percentiles_have_names(name: str, value: float) -> None:
    assert percentile.percent(name) == value


@pytest.mark.parametrize(
    "name", ["p0", "p100", "p9999", "p", "p-1", "p+5", "p1e1", "p99.", "p٩٩", "max", "p99.1234567"]
)
def test_other_words_are_none(name: str) -> None:
    assert percentile.percent(name) is None


def _distribution(values: list[int]) -> Distribution:
    counts = hdr.empty()
    for value in values:
        counts.record_value(value)
    return Distribution(count=len(values), min=min(values), max=max(values), hdr=counts.encode().decode())


def test_any_percentile_is_that_of_the_sorted_values() -> None:
    """The witness is the sorted list; three digits of the histogram are what may differ."""
    random.seed(7)
    values = [int(random.lognormvariate(13, 1.2)) for _ in range(20_000)]
    found, ordered = _distribution(values), sorted(values)
    for stat, rank in (("p95", 0.95), ("p99.5", 0.995), ("p99.99", 0.9999), ("p12.5", 0.125)):
        exact = ordered[round(rank * len(ordered)) - 1]
        assert percentile.of(found, stat) == pytest.approx(exact, rel=2e-3)
    assert Delay.of(found).percentile(99.5) == pytest.approx(ordered[19_899] / 1e9, rel=2e-3)
    assert Delay.of(found).p95 == pytest.approx(ordered[18_999] / 1e9, rel=2e-3)


def test_one_beyond_all_values_is_the_largest() -> None:
    assert percentile.of(_distribution([1_000_001] * 3), "p99.999") == 1_000_001


def test_without_a_histogram_only_the_fields_are_known() -> None:
    few = Quantiles(count=3, p50=1.0, p99=3.0)
    assert percentile.of(few, "p99") == 3.0
    assert percentile.of(few, "p95") is None
    with pytest.raises(Error, match="no histogram"):
        Delay.of(Distribution(count=3)).percentile(99.5)
    with pytest.raises(Error, match="not a percentile"):
        Delay.of(Distribution(count=3)).percentile(100)


@pytest.mark.parametrize(
    ("metric", "said"),
    [
        ("delay.response.p9999", "did you mean p99.99?"),
        ("delay.response.p100", "use max"),
        ("delay.response.median", "p50, p95, p99 or p99.9"),
        ("delay.response", "as in web.delay.response.p99"),
        ("lateness.p0", "use min"),
        ("latency.p99", "with STAT min, mean, max, or a percentile like p50"),
    ],
)
def test_a_wrong_metric_is_told_the_statistics(metric: str, said: str) -> None:
    with pytest.raises(Error) as caught:
        limits.thresholds([f"{metric} <= 5ms"], PROFILE)
    assert said in caught.value.fix


def test_less_and_more_leave_the_bound_out() -> None:
    texts = ["errors < 1", "errors <= 1", "messages_delivered.rate > 5/s", "web.delay.response.p99.9 < 1s"]
    found = limits.thresholds(texts, PROFILE)
    assert found == [
        {"metric": "web.errors", "max": "1", "strict": True},
        {"metric": "web.errors", "max": "1"},
        {"metric": "web.messages_delivered.rate", "min": "5/s", "strict": True},
        {"metric": "web.delay.response.p99.9", "max": "1s", "strict": True},
    ]


def test_a_strict_bound_fails_at_itself() -> None:
    from netdyno.core.wire import Counts, GroupResult, TrialResult

    trial = TrialResult(run="r", groups=[GroupResult(name="web", measured=Counts(failures={"timeout": 1}))])
    bound = {"metric": "web.errors", "max": 1}
    assert judge("", bound, [trial]).passed
    assert not judge("", bound | {"strict": True}, [trial]).passed
    assert not judge("", {"metric": "web.errors", "min": 1, "strict": True}, [trial]).passed


def test_any_percentile_is_said_in_words() -> None:
    def said(metric: str) -> str:
        name = name_of(metric)
        return name.plain().replace("\u2068", "").replace("\u2069", "")  # type: ignore[union-attr]

    assert said("web.delay.response.p95") == "web: response delay, 95th percentile"
    assert said("web.delay.response.p99.9") == "web: response delay, 99.9th percentile"
    assert said("web.lateness.p12.5") == "web: lateness of the generator, percentile 12.5"


def test_a_percentile_of_a_metric_is_parsed_whole() -> None:
    assert GroupMetric.parse("web.delay.response.p99.99").stat == "p99.99"
    assert str(GroupMetric.parse("web.delay.response.p99.99")) == "web.delay.response.p99.99"


@pytest.mark.parametrize("count", [1, 19, 20, 35, 60, 600, 1001])
@pytest.mark.parametrize("stat", ["p50", "p90", "p95", "p97", "p99", "p99.9"])
def test_a_percentile_has_the_rank_of_the_core(count: int, stat: str) -> None:
    """So many per cent of all do not exceed it: of 60 values, the 99th percentile is the largest."""
    share = percentile.percent(stat) or 0.0
    values = [1_000_000 * (i + 1) for i in range(count)]
    expected = values[max(1, math.ceil(share / 100 * count - 1e-9)) - 1]
    (whole,) = hdr.quantiles(hdr.decode(_distribution(values).hdr or ""), (share,))
    assert whole == pytest.approx(expected, rel=2e-3)
    if count > 1:
        merged = hdr.merge(_distribution(values[i::2]) for i in range(2))
        assert percentile.of(merged, stat) == pytest.approx(expected, rel=2e-3)
