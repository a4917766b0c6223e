"""Merged results are those of one recording: counts, percentiles, series, validity."""

from __future__ import annotations

import random
from typing import Any

from netdyno.core.wire import (
    BucketedQuantiles,
    Counts,
    Distribution,
    FailureCount,
    GroupPoint,
    GroupResult,
    LoadUnit,
    LossPattern,
    PausedInterval,
    PhaseLengths,
    Quantiles,
    RateChange,
    Reason,
    Reordering,
    SeriesPoint,
    SlowdownResult,
    StallResult,
    TargetAddress,
    TrialResult,
    Validity,
    WorkerUsage,
)
from netdyno.fleet import merge
from netdyno.fleet.sum import LiveSum
from netdyno.stats import hdr

PROFILE = {"name": "p", "groups": [{"name": "web"}]}


def recording(values: list[int]) -> Distribution:
    """What a core says of values."""
    histogram = hdr.empty()
    for value in values:
        histogram.record_value(value)
    p50, p90, p95, p99, p999 = hdr.quantiles(histogram, (50, 90, 95, 99, 99.9))
    mean = sum(values) / len(values)
    return Distribution(
        count=len(values), min=min(values), max=max(values), mean=mean,
        sd=(sum((value - mean) ** 2 for value in values) / len(values)) ** 0.5,
        p50=p50, p90=p90, p95=p95, p99=p99, p999=p999, hdr=histogram.encode().decode(),
    )  # fmt: skip


def trial(values: list[int], sent: int, **more: Any) -> TrialResult:
    counts = Counts(
        messages_sent=sent, messages_delivered=len(values), failures={"timeout": sent - len(values)}
    )
    group = GroupResult(
        name="web", protocol="http", target="http://h", devices=2, measured=counts, total=counts,
        rates={"messages_sent": sent / 10}, loss=1 - len(values) / sent, confirmed=True,
        delays={"response": recording(values)}, lateness=recording([1000, 2000]),
        stalls=StallResult(limit=1, time=2.0, share=0.1, longest=5),
    )  # fmt: skip
    return TrialResult(run="r", groups=[group], workers=[WorkerUsage(worker=0, core=1, cpu=0.5)], **more)


def test_the_result_is_that_of_one_recording() -> None:
    chance = random.Random(49)
    parts = [[chance.randrange(10_000, 50_000_000) for _ in range(n)] for n in (700, 200, 90)]
    found = merge.trial(
        {f"h{i}": trial(one, sent=len(one) + 10 * (i + 1)) for i, one in enumerate(parts)},
        PROFILE,
        "2026-01-01T00:00:00.000Z",
    )
    (group,) = found.groups
    whole = recording([value for part in parts for value in part])
    delays = group.delays["response"]
    for name in ("count", "min", "max", "p50", "p90", "p95", "p99", "p999"):
        assert getattr(delays, name) == getattr(whole, name), name
    assert hdr.decode(delays.hdr).get_total_count() == 990
    assert (group.measured.messages_sent, group.total.messages_delivered) == (1050, 990)
    assert group.measured.failures == {"timeout": 60}
    assert group.devices == 6
    assert group.rates["messages_sent"] == 105
    assert group.loss is not None
    assert abs(group.loss - 60 / 1050) < 1e-12
    assert group.stalls is not None
    assert group.stalls.time == 6.0
    assert abs(group.stalls.share - 0.1) < 1e-12
    assert [(w.worker, (w.model_extra or {})["host"]) for w in found.workers] == [
        (0, "h0"),
        (1, "h1"),
        (2, "h2"),
    ]


def test_nothing_of_a_group_is_lost_by_merging() -> None:
    """A result has each field of a group that its parts have, so that a new one is not forgotten."""
    calls = LoadUnit(name="calls", intended="a", offered="b", delivered="c")
    one = trial([1000], 1).groups[0].model_copy(
        update={
            "addresses": [TargetAddress(address="h:80", used=True)], "unit": calls, "verified": "payload",
            "values": {"mos": recording([4000])}, "ipdv": {"response": recording([10])},
            "reordering": Reordering(ratio=0.5), "losses": LossPattern(lost=1),
            "slowdown": SlowdownResult(few=1, busy=2), "errors": [FailureCount(kind="timeout", count=1)],
            "rates": {"a": 1.0}, "tokens": ["7f3a"],
        }
    )  # fmt: skip
    # indices follow from the merged counts, by what the agents say of the model
    forgotten = {
        name
        for name, of in GroupResult.model_fields.items()
        if getattr(one, name) == of.get_default(call_default_factory=True)
    }
    assert forgotten == {"indices"}
    part = TrialResult(run="r", groups=[one])
    (group,) = merge.trial({"a": part, "b": part}, PROFILE, "").groups
    for name, of in GroupResult.model_fields.items():
        assert name == "indices" or getattr(group, name) != of.get_default(call_default_factory=True), name
    assert group.unit == calls


def forgotten(merged: Any, part: Any) -> set[str]:
    """Fields that a part has and the result of merging does not."""
    defaults = {
        name: of.get_default(call_default_factory=True) for name, of in type(part).model_fields.items()
    }
    assert {name for name, default in defaults.items() if getattr(part, name) == default} == set()
    return {name for name, default in defaults.items() if getattr(merged, name) == default}


def test_nothing_of_a_trial_and_of_a_point_is_lost_by_merging() -> None:
    lateness = Quantiles(count=1, min=1, max=1, mean=1, p50=1, p90=1, p95=1, p99=1, p999=1)
    delay = BucketedQuantiles(**lateness.model_dump(), buckets=[(1, 1)])
    of_group = GroupPoint(
        counts=Counts(messages_sent=1), devices_active=1, waiting=2, delays={"response": delay},
        lateness=lateness, causes={"timeout": {"late": 1}},
    )  # fmt: skip
    seen = SeriesPoint(
        t=1, dt=0.5, phase="measure", elapsed=1, left=2, groups={"web": of_group},
        workers=[WorkerUsage(cpu=1)], interfaces={"eth0": {"rx": 1}},
    )  # fmt: skip
    part = trial(
        [1000], 1, profile=PROFILE, transport="dpdk", version="1", started="then", stopped="lease",
        phases=PhaseLengths(warmup=1, measure=2, drain=3), error={"code": "ND-91-01"},
        changes=[{"t": 1.0, "port": "a"}], paused=[PausedInterval(t=1, seconds=2)],
        rates=[RateChange(t=1, group="web", of="flow", rate=2, before=1)],
        validity=Validity(valid=False, reasons=[Reason(code="ND-90-01", what="x")]),
        interfaces={"eth0": {"rx": 1}}, ports=[{"name": "p"}], elements=[{"name": "e"}], series=[seen],
    )  # fmt: skip
    merged = merge.trial({"a": part, "b": part}, PROFILE, "then")
    assert forgotten(merged, part) == set()
    assert [one["host"] for one in merged.changes] == ["a", "b"]
    (point,) = merged.series
    assert forgotten(point, seen) == set()
    assert forgotten(point.groups["web"], of_group) == set()
    assert point.groups["web"].waiting == 4 and point.groups["web"].causes == {"timeout": {"late": 2}}


def test_of_what_hosts_say_differently_the_worst_is_told() -> None:
    def of(late: int, busy: float, longest: int, confirmed: bool, seconds: float, stopped: str | None) -> Any:
        one = trial([1000], 1, phases=PhaseLengths(warmup=seconds, measure=seconds, drain=seconds))
        one.stopped = stopped
        group = one.groups[0]
        group.confirmed, group.lateness = confirmed, recording([late])
        group.stalls = StallResult(limit=1, time=1.0, share=0.1, longest=longest, busy=busy, waiting=busy / 2)
        return one

    for order in ((0, 1), (1, 0)):
        two = of(10_000, 0.1, 5, True, 1.0, "lease"), of(90_000, 0.3, 9, False, 2.0, "failed")
        found = merge.trial({f"h{i}": two[i] for i in order}, PROFILE, "")
        (group,) = found.groups
        assert found.stopped == "failed" and not group.confirmed
        assert (found.phases.warmup, found.phases.measure, found.phases.drain) == (2.0, 2.0, 2.0)
        assert group.lateness.max >= 90_000 and group.lateness.count == 2
        assert group.stalls is not None and group.stalls.longest == 9
        assert abs(group.stalls.busy - 0.2) < 1e-12 and abs(group.stalls.waiting - 0.1) < 1e-12


def test_lateness_of_a_point_is_that_of_the_latest_host() -> None:
    early, late = (
        Quantiles(count=2, min=x, max=x, mean=x, p50=x, p90=x, p95=x, p99=x, p999=x) for x in (10, 70)
    )
    for parts in ([early, late], [late, early]):
        found = merge.worst(parts)
        assert (found.count, found.min, found.max, found.mean) == (4, 10, 70, 40.0)
        assert (found.p50, found.p99) == (70, 70)


def test_ports_and_elements_are_named_by_host_and_once() -> None:
    parts = {name: trial([1000], 1) for name in "ab"}
    for one in parts.values():
        one.ports, one.elements = [{"name": "p", "driver": "net_null"}], [{"name": "p.rx", "packets_out": 3}]
    merged = merge.trial(parts, {"groups": []}, "")
    assert [one["name"] for one in merged.ports] == ["a:p", "b:p"]
    # what a relay has merged keeps its names
    again = merge.trial({"relay-1": merged}, {"groups": []}, "")
    assert [one["name"] for one in again.ports + again.elements] == ["a:p", "b:p", "a:p.rx", "b:p.rx"]


def test_a_pause_is_one_of_all_hosts() -> None:
    waited = [(1.0, 2.0), (5.0, 1.0)], [(1.1, 1.9)], []
    parts = {
        f"h{i}": trial([1000], 1, paused=[PausedInterval(t=t, seconds=s) for t, s in part])
        for i, part in enumerate(waited)
    }
    paused = merge.trial(parts, PROFILE, "").paused
    assert [(one.t, one.seconds) for one in paused] == [(1.1, 2.0), (5.0, 1.0)]


def test_a_host_that_is_not_valid_makes_the_result_so_and_is_named() -> None:
    late = Validity(valid=False, reasons=[Reason(code="ND-90-02", what="late", value=2, limit=1)])
    parts = {"a": trial([1000], 1), "b": trial([1000], 1, validity=late, stopped="lease")}
    found = merge.trial(parts, PROFILE, "")
    assert not found.validity.valid
    assert [reason.what for reason in found.validity.reasons] == ["host b: late"]
    assert found.stopped == "lease"


def point(t: float, sent: int, dt: float = 1.0, p99: int = 100) -> SeriesPoint:
    delay = BucketedQuantiles(
        count=sent, min=10, mean=50.0, p50=50, p90=90, p95=95, p99=p99, p999=p99, max=p99,
        buckets=[(64, sent // 2), (128, sent - sent // 2)],
    )  # fmt: skip
    group = GroupPoint(
        counts=Counts(messages_sent=sent),
        devices_active=1,
        delays={"response": delay},
        lateness=Quantiles(count=1, p99=p99),
    )
    return SeriesPoint(t=t, dt=dt, phase="measure", elapsed=t, groups={"web": group})


def test_points_add_up_by_when_they_began() -> None:
    series = merge.series({"a": [point(1, 10), point(2, 10)], "b": [point(1, 30), point(1.4, 2, dt=0.4)]})
    assert [(one.t, one.groups["web"].counts.messages_sent) for one in series] == [(1, 40), (2, 12)]
    first = series[0].groups["web"]
    assert first.devices_active == 2
    assert first.delays["response"].buckets == [(64, 20), (128, 20)]
    assert (first.delays["response"].p50, first.delays["response"].p99) == (64, 100)


def test_the_live_sum_waits_for_hosts_that_run_and_not_for_those_that_are_lost() -> None:
    live = LiveSum(["a", "b"])
    assert live.add("a", point(1, 10)) == []
    assert live.add("a", point(2, 10)) == []
    assert [one.t for one in live.add("b", point(1, 5))] == [1]
    told = live.ended("b")
    assert [(one.t, one.groups["web"].counts.messages_sent) for one in told] == [(2, 10)]
    assert [one.t for one in live.add("a", point(3, 1))] == [3]
