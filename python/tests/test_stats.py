"""Statistics hold for all numbers, not only for those somebody thought of."""

import math
import random
import statistics

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from netdyno.core.result import GroupSummary, Leg, Repetition
from netdyno.core.wire import (
    Counts,
    Distribution,
    GroupResult,
    LossPattern,
    PhaseLengths,
    Reason,
    ReorderDensity,
    Reordering,
    StallResult,
    TrialResult,
    Validity,
)
from netdyno.errors import Error
from netdyno.stats import hdr
from netdyno.stats.counts import share_interval
from netdyno.stats.estimate import estimate, mean, positive_interval, sd, t_interval
from netdyno.stats.lateness import warnings
from netdyno.stats.metric import GroupMetric
from netdyno.stats.summary import summarise, validity
from netdyno.stats.threshold import judge
from netdyno.stats.unpaired import compare, compare_all, holm
from netdyno.units import bound

finite = st.floats(-1e9, 1e9, allow_nan=False)
samples = st.lists(finite, min_size=2, max_size=30)


@given(samples)
def test_the_mean_lies_in_its_interval(values: list[float]) -> None:
    interval = t_interval(values)
    assert interval is not None
    assert interval[0] <= mean(values) <= interval[1]
    wider = t_interval(values, 0.99)
    assert wider is not None
    assert wider[0] <= interval[0]
    assert wider[1] >= interval[1]


@given(samples, st.floats(-1e6, 1e6), st.floats(0.1, 100))
def test_moments_move_with_shift_and_scale(values: list[float], shift: float, scale: float) -> None:
    moved = [v * scale + shift for v in values]
    size = max(1.0, *(abs(v) for v in values)) * scale + abs(shift)
    assert mean(moved) == pytest.approx(mean(values) * scale + shift, abs=1e-9 * size)
    assert sd(moved) == pytest.approx(sd(values) * scale, abs=1e-6 * size)


def test_known_interval() -> None:
    interval = t_interval([1.0, 2.0, 3.0, 4.0, 5.0])
    assert interval == pytest.approx((1.0367, 4.9633), abs=1e-3)


def test_one_value_has_no_interval() -> None:
    assert t_interval([3.0]) is None
    assert estimate([3.0]).interval is None


def test_t_intervals_cover_the_truth_as_often_as_they_say() -> None:
    draw = random.Random(7)
    hits = 0
    for _ in range(1000):
        interval = t_interval([draw.gauss(10, 3) for _ in range(5)], 0.9)
        assert interval
        hits += interval[0] <= 10 <= interval[1]
    assert 870 <= hits <= 930


def distribution(values: list[int]) -> Distribution:
    h = hdr.empty()
    for v in values:
        h.record_value(v)
    return Distribution(
        count=len(values),
        min=min(values),
        max=max(values),
        mean=mean(values),
        sd=statistics.pstdev(values),
        p50=float(h.get_value_at_percentile(50)),
        p99=float(h.get_value_at_percentile(99)),
        hdr=h.encode().decode(),
    )


@settings(max_examples=30, deadline=None)
@given(st.lists(st.lists(st.integers(1, 10**11), min_size=1, max_size=40), min_size=1, max_size=4))
def test_merging_is_as_if_recorded_together(parts: list[list[int]]) -> None:
    merged = hdr.merge(distribution(part) for part in parts)
    together = sorted(v for part in parts for v in part)
    assert merged.count == len(together)
    assert merged.min == together[0]
    assert merged.max == together[-1]
    assert merged.mean == pytest.approx(mean(together))
    assert merged.sd == pytest.approx(statistics.pstdev(together))
    exact = together[max(0, math.ceil(len(together) * 0.5) - 1)]
    assert merged.p50 == pytest.approx(exact, rel=2e-3)


def test_merging_nothing() -> None:
    assert hdr.merge([]).count == 0
    assert hdr.merge([Distribution()]).count == 0


@pytest.mark.parametrize(
    "text",
    [
        "a.delay.publish.p99",
        "a.delay.publish.pdv",
        "a.lateness.max",
        "a.reordering.ratio",
        "a.reordering.by_three",
        "a.reordering.extent.p99",
        "a.reordering.late.max",
        "a.reordering.displaced",
        "a.reordering.displacement.p99",
        "a.reordering.waiting.mean",
        "a.ipdv.round_trip.p999",
        "a.delay.x.p95",
        "a.delay.x.p99.99",
        "a.lateness.p0.1",
        "a.losses.noticeable",
        "a.losses.length.max",
        "a.losses.distance.min",
        "a.losses.between.p50",
        "a.loss",
        "a.errors",
        "a.errors.timeout",
        "a.stalls.share",
        "a.stalls.time",
        "a.stalls.longest",
        "a.stalls.waiting",
        "a.messages_sent.rate",
        "a.port.tcp_retransmitted",
    ],
)
def test_metrics_read_and_show_alike(text: str) -> None:
    assert str(GroupMetric.parse(text)) == text


@pytest.mark.parametrize(
    "text",
    [
        "a",
        "a.delay.publish",
        "a.delay.x.p95th",
        "a.delay.x.p100",
        "a.delay.x.p0",
        "a.delay.x.p9999",
        "a.nothing",
        "a.loss.rate",
        "a.lateness.pdv",
        "a.reordering",
        "a.reordering.extent",
        "a.reordering.ratio.p99",
        "a.ipdv.round_trip",
        "a.ipdv.round_trip.jitter",
        "a.losses.length",
        "a.losses.noticeable.max",
        "a.stalls",
        "a.stalls.limit",
        "a.port",
        "a.port.tcp_retransmitted.rate",
    ],
)
def test_wrong_metrics(text: str) -> None:
    with pytest.raises(Error):
        GroupMetric.parse(text)


def test_stalls_are_read_in_the_units_of_limits() -> None:
    stalls = {"limit": 2_000_000_000, "time": 3.5, "share": 0.25, "longest": 2_750_000_000, "waiting": 0.5}
    one = TrialResult(
        run="r", groups=[GroupResult(name="a", stalls=StallResult(**stalls)), GroupResult(name="b")]
    )

    def of(text: str) -> float | None:
        return GroupMetric.parse(text).of(one)

    # a limit of "3s" is 3e9
    assert (of("a.stalls.time"), of("a.stalls.longest")) == (3.5e9, 2.75e9)
    assert (of("a.stalls.share"), of("a.stalls.waiting"), of("b.stalls.share")) == (0.25, 0.5, None)
    assert GroupMetric.parse("a.stalls.time").unit == "ns"


def test_counters_of_ports_are_judged_of_ports_alone() -> None:
    stack = {"tx_packets": 9, "tcp_segments_sent": 8, "tcp_retransmitted": 2}
    # of the fleet's hosts each has a port of that name
    ports = {"h1:a": stack, "h2:a": stack | {"dropped_bad_checksum": 3}, "h1:b": {"rx_dropped": 1}}
    one = TrialResult(run="r", groups=[GroupResult(name="a")], interfaces=ports)

    def of(text: str) -> float | None:
        return GroupMetric.parse(text).of(one)

    assert (of("a.port.tcp_retransmitted"), of("a.port.dropped_bad_checksum")) == (4.0, 3.0)
    # what a stack did not count is not told; without a stack nothing is known of it
    assert (of("a.port.dropped_bad_ack"), of("b.port.tcp_retransmitted"), of("b.port.rx_dropped")) == (
        0.0,
        None,
        1.0,
    )
    assert of("c.port.rx_dropped") is None
    assert GroupMetric.parse("a.port.tcp_timeouts").smaller_is_better is True
    assert GroupMetric.parse("a.port.tcp_segments_sent").smaller_is_better is None
    alone = TrialResult(run="r", groups=[GroupResult(name="a")], interfaces={"a": stack})
    judged = judge("leg", {"metric": "a.port.tcp_retransmitted", "max": 1}, [alone])
    assert (judged.passed, judged.value) == (False, 2.0)


@pytest.mark.parametrize(
    ("text", "value"),
    [("50ms", 5e7), ("1000/s", 1000), ("10k/s", 1e4), (0.01, 0.01), ("1_000", 1000), ("1%", 0.01)],
)
def test_bounds(text: str | float, value: float) -> None:
    assert bound(text) == value


def trial(delay: int = 1_000_000, sent: int = 100, delivered: int = 100, valid: bool = True) -> Repetition:
    reasons = [] if valid else [Reason(code="ND-90-02", what="late", value=2, limit=1)]
    return Repetition(
        run="r",
        phases=PhaseLengths(measure=10.0),
        validity=Validity(valid=valid, reasons=reasons),
        groups=[
            GroupResult(
                name="a",
                measured=Counts(
                    messages_sent=sent, messages_delivered=delivered, failures={"timeout": sent - delivered}
                ),
                loss=1 - delivered / sent,
                reordering=Reordering(
                    ratio=2 / delivered,
                    extent=distribution([1, 7]),
                    late=distribution([10, delay]),
                    displaced=0.05,
                    displacement=distribution([0] * 95 + [1] * 4 + [4]),
                    waiting=distribution([0] * 96 + [1, 2, 3, 4]),
                    density=ReorderDensity(
                        threshold=64, displaced={-1: 4, 0: 95, 4: 1}, waiting={0: 96, 1: 1, 2: 1, 3: 1, 4: 1}
                    ),
                ),
                losses=LossPattern(
                    delta=99,
                    noticeable=0.5,
                    length=distribution([1, 3]),
                    distance=distribution([1, 1, 200]),
                    between=distribution([200]),
                ),
                ipdv={"publish": distribution([delay // 2])},
                delays={"publish": distribution([delay])},
                rates={"messages_sent": sent / 10},
            )
        ],
    )


def test_a_limit_for_an_extreme_is_for_that_of_each_repetition() -> None:
    trials = [trial(), trial(), trial()]
    for one, distance in zip(trials, (9, 9, 4), strict=True):
        one.groups[0].losses.distance.min = distance
        one.groups[0].losses.distance.max = distance
    for stat, kind, limit, passed, value in (
        ("min", "max", 5, False, 9), ("min", "max", 9, True, 9), ("min", "min", 5, False, 4),
        ("max", "min", 5, False, 4), ("max", "min", 4, True, 4), ("max", "max", 8, False, 9),
    ):  # fmt: skip
        judged = judge("leg", {"metric": f"a.losses.distance.{stat}", kind: limit}, trials)
        assert (judged.passed, judged.value, judged.interval) == (passed, value, None)


@pytest.mark.parametrize(
    ("threshold", "passed", "value"),
    [
        ({"metric": "a.delay.publish.p99", "max": "50ms"}, True, 1e6),
        ({"metric": "a.delay.publish.p99", "max": "1us"}, False, 1e6),
        ({"metric": "a.loss", "max": 0}, True, 0.0),
        ({"metric": "a.reordering.ratio", "max": "2%"}, True, 0.02),
        ({"metric": "a.reordering.by_three", "max": 0}, True, 0.0),
        ({"metric": "a.reordering.extent.max", "max": 6}, False, 7.0),
        ({"metric": "a.reordering.late.max", "max": "1ms"}, True, 1e6),
        ({"metric": "a.reordering.displaced", "max": "4%"}, False, 0.05),
        ({"metric": "a.reordering.displacement.max", "max": 4}, True, 4.0),
        ({"metric": "a.reordering.waiting.mean", "max": 0.1}, True, 0.1),
        ({"metric": "a.losses.noticeable", "max": "50%"}, True, 0.5),
        ({"metric": "a.losses.length.max", "max": 2}, False, 3.0),
        ({"metric": "a.losses.distance.min", "min": 1}, True, 1.0),
        ({"metric": "a.losses.between.p50", "min": 300}, False, 200.0),
        ({"metric": "a.ipdv.publish.p99", "max": "1ms"}, True, 5e5),
        ({"metric": "a.messages_sent", "min": 101}, False, 100.0),
        ({"metric": "a.messages_sent.rate", "min": "10/s"}, True, 10.0),
        ({"metric": "a.messages_delivered.rate", "min": "10/s"}, True, 10.0),
        ({"metric": "a.errors", "max": 0}, True, 0.0),
        ({"metric": "a.errors.timeout", "max": 0}, True, 0.0),
        ({"metric": "nobody.loss", "max": 1}, False, None),
        ({"metric": "a.delay.connect.p99", "max": "1h"}, False, None),
    ],
)
def test_thresholds_of_one_trial(threshold: dict[str, object], passed: bool, value: float | None) -> None:
    judged = judge("leg", threshold, [trial()])
    assert judged.passed is passed
    assert judged.value == (pytest.approx(value, rel=1e-3) if value is not None else None)
    assert judged.interval is None


def test_a_threshold_needs_the_whole_interval() -> None:
    near = [trial(delay=d) for d in (800_000, 1_000_000, 1_150_000)]
    judged = judge("leg", {"metric": "a.delay.publish.mean", "max": "1200us"}, near)
    # the geometric mean
    assert judged.value == pytest.approx(972_589, rel=1e-3)
    assert judged.interval
    assert judged.interval[1] > 1_200_000
    assert not judged.passed
    assert judge("leg", {"metric": "a.delay.publish.mean", "max": "2ms"}, near).passed


def test_equal_repetitions_pass_at_the_bound() -> None:
    judged = judge("leg", {"metric": "a.loss", "max": 0}, [trial(), trial(), trial()])
    assert judged.passed
    assert judged.interval == (0.0, 0.0)


def test_summary_adds_counts_and_merges_delays() -> None:
    summary = summarise([trial(1_000_000), trial(3_000_000, delivered=90)])
    group = summary.groups[0]
    assert summary.n == 2
    assert group.measured.messages_sent == 200
    assert group.measured.failures["timeout"] == 10
    assert group.delays["publish"].count == 2
    assert group.loss
    assert group.loss.mean == pytest.approx(0.05)
    assert group.reordering
    assert group.reordering.ratio == pytest.approx(4 / 190)
    assert (group.reordering.extent.count, group.reordering.extent.max) == (4, 7)
    assert group.reordering.late.max == 3_000_000
    assert group.reordering.displaced == pytest.approx(0.05)
    assert group.reordering.density.displaced == {-1: 8, 0: 190, 4: 2}
    assert group.reordering.waiting.count == sum(group.reordering.density.waiting.values()) == 200
    assert group.ipdv["publish"].count == 2
    assert group.losses
    assert (group.losses.lost, group.losses.length.count, group.losses.noticeable) == (8, 4, 0.5)


def test_validity_is_over_all_trials() -> None:
    legs = [Leg(name="x", repetitions=[trial(), trial(valid=False)])]
    valid, reasons = validity(legs)
    assert not valid
    assert reasons[0].code == "ND-90-02"
    assert validity([]) == (False, [])


@given(st.lists(st.floats(0, 1), min_size=1, max_size=20))
def test_holm_never_makes_p_smaller(p: list[float]) -> None:
    corrected = holm(p)
    assert all(c >= v - 1e-15 for c, v in zip(corrected, p, strict=True))
    assert all(c <= 1 for c in corrected)
    order = sorted(range(len(p)), key=lambda i: p[i])
    assert [corrected[i] for i in order] == sorted(corrected)


def test_comparison_finds_what_is_there_and_not_what_is_not() -> None:
    draw = random.Random(3)
    a = [draw.gauss(100, 1) for _ in range(8)]
    faster = [draw.gauss(90, 1) for _ in range(8)]
    same = [v + 0.05 * (-1) ** i for i, v in enumerate(a)]
    found = {
        c.metric: c for c in compare_all({"x": a, "y": a}, {"x": faster, "y": same}, {"x": True, "y": True})
    }
    assert found["x"].significant
    assert found["x"].better is True
    assert found["x"].effect is not None
    assert found["x"].effect < -3
    assert not found["y"].significant


def test_comparison_of_single_values_claims_nothing() -> None:
    c = compare("x", [1.0], [2.0])
    assert c.p is None
    assert c.change == 1.0


@settings(max_examples=50)
@given(st.integers(0, 10_000))
def test_constants_do_not_break_it(value: int) -> None:
    v = float(value)
    assert compare("x", [v, v], [v, v]).p == 1.0
    assert compare("x", [v, v], [v + 1, v + 1]).p == pytest.approx(1 / 3)


def test_false_positives_stay_at_the_level() -> None:
    draw = random.Random(11)
    names = [f"m{i}" for i in range(10)]
    claims = 0
    for _ in range(200):
        a, b = ({n: [draw.gauss(5, 1) for _ in range(5)] for n in names} for _ in range(2))
        claims += any(c.significant for c in compare_all(a, b, {}))
    assert claims <= 20


def test_lateness_is_a_warning_on_the_percentile_that_it_makes_up_a_good_part_of() -> None:
    late = Distribution(count=5000, p50=10e3, p90=100e3, p99=3.3e6, p999=4e6)
    delay = Distribution(count=5000, p50=1e6, p90=2e6, p99=16e6, p999=20e6)
    group = GroupSummary(name="web", delays={"response": delay}, lateness=late)
    (found,) = warnings("leg", [group])
    assert (found.metric, found.value, found.limit) == ("web.delay.response.p99", 16e6, 3.3e6)
    assert found.what == "generator lateness is 21% of the response p99"
    # a fifth is not above a fifth; of few samples there is no 99.9th percentile
    late.p99, late.p999 = 3.2e6, 19e6
    assert [one.metric for one in warnings("leg", [group])] == ["web.delay.response.p999"]
    late.count = 999
    assert warnings("leg", [group]) == []
    late.count = 0
    late.p99 = 16e6
    assert warnings("leg", [group]) == []


delays = st.lists(st.floats(1, 1e12), min_size=2, max_size=12)


@given(delays, st.booleans())
def test_a_delays_interval_holds_its_value_and_is_never_negative(values: list[float], zero: bool) -> None:
    value, interval = positive_interval([0.0, *values] if zero else values)
    assert interval is not None
    assert 0 <= interval[0] <= value <= interval[1]


def test_a_wild_repetition_gives_a_wide_interval_and_no_negative_delay() -> None:
    trials = [
        TrialResult(
            run=str(i), groups=[GroupResult(name="g", delays={"response": Distribution(count=9, p99=p99)})]
        )
        for i, p99 in enumerate((3e6, 4e6, 140e6))
    ]
    found = judge("leg", {"metric": "g.delay.response.p99", "max": "1s"}, trials)
    assert found.value is not None
    assert found.interval is not None
    assert 0 < found.interval[0] < found.value < found.interval[1]
    assert 3e6 < found.value < 140e6


def test_an_interval_of_delays_covers_as_often_as_it_says() -> None:
    draw = random.Random(7)
    covered = 0
    for _ in range(1000):
        _, interval = positive_interval([draw.lognormvariate(15, 0.7) for _ in range(5)])
        assert interval is not None
        covered += interval[0] <= math.exp(15) <= interval[1]
    # five standard deviations of a binomial count
    assert abs(covered - 950) < 35


def test_a_limit_for_the_largest_is_for_each_repetition() -> None:
    trials = [
        TrialResult(
            run=str(i), groups=[GroupResult(name="g", delays={"response": Distribution(count=9, max=most)})]
        )
        for i, most in enumerate((1e6, 1e6, 60e6))
    ]
    found = judge("leg", {"metric": "g.delay.response.max", "max": "50ms"}, trials)
    assert (found.value, found.interval, found.passed) == (60e6, None, False)


def test_an_interval_of_a_comparison_never_contradicts_its_claim() -> None:
    draw = random.Random(3)
    for _ in range(60):
        shifts = {f"g.{name}": draw.choice((0.0, 0.5, 1.0, 3.0)) for name in ("loss", "errors", "duplicates")}
        a = {name: [draw.gauss(10, 1) for _ in range(5)] for name in shifts}
        b = {name: [draw.gauss(10 + shift, 1) for _ in range(5)] for name, shift in shifts.items()}
        for found in compare_all(a, b, {}):
            assert found.interval is not None
            assert found.detectable is not None
            assert found.significant == (not found.interval[0] <= 0 <= found.interval[1])
            assert found.interval[0] <= found.b - found.a <= found.interval[1]
            assert found.detectable > 0


def test_the_interval_of_a_share_is_exact() -> None:
    """As tables of Clopper and Pearson have it, and as its definition says."""
    assert share_interval(0, 0, 0.05) is None
    assert share_interval(0, 10, 0.05) == (0.0, pytest.approx(0.3085, abs=1e-4))
    assert share_interval(10, 10, 0.05) == (pytest.approx(0.6915, abs=1e-4), 1.0)
    low, high = share_interval(7, 20, 0.05) or (0.0, 0.0)
    assert sum(math.comb(20, k) * low**k * (1 - low) ** (20 - k) for k in range(7, 21)) == pytest.approx(
        0.025
    )
    assert sum(math.comb(20, k) * high**k * (1 - high) ** (20 - k) for k in range(8)) == pytest.approx(0.025)


def test_values_that_do_not_vary_are_no_proof_by_themselves() -> None:
    """Two of two against two of two come about by chance in one of three ways to share them out."""
    (two,) = compare_all({"g.errors": [0.0, 0.0]}, {"g.errors": [1.0, 1.0]}, {})
    assert two.p == pytest.approx(1 / 3) and not two.significant and two.interval is None
    (six,) = compare_all({"g.errors": [0.0] * 6}, {"g.errors": [1.0] * 6}, {})
    assert six.significant and six.interval == (1.0, 1.0)
    (same,) = compare_all({"g.errors": [1.0, 1.0]}, {"g.errors": [1.0, 1.0]}, {})
    assert same.p == 1.0 and same.interval == (0.0, 0.0)
