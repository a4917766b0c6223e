"""Which relays a fleet has, and that merging on the way changes nothing."""

from __future__ import annotations

import random

import pytest

from netdyno.core.wire import BucketedQuantiles, Counts, GroupPoint, SeriesPoint, WorkerUsage
from netdyno.fleet import merge, relays
from netdyno.fleet.agents import Agent
from netdyno.fleet.hosts import HostSpec
from tests.fleet.test_merge import PROFILE, trial


@pytest.mark.parametrize(
    ("agents", "most", "sizes"),
    [
        (1, 250, []),
        (250, 250, []),
        (251, 250, [125, 126]),
        (12, 4, [4, 4, 4]),
        (10, 4, [3, 3, 4]),
        (10_000, 250, [250] * 40),
    ],
)
def test_relays_have_about_as_many_agents_and_none_too_many(agents: int, most: int, sizes: list[int]) -> None:
    those = [Agent(HostSpec(name=f"h{number}"), "") for number in range(agents)]
    found = relays.groups(those, most)
    assert [len(one) for one in found] == sizes
    assert [agent for one in found for agent in one] == (those if sizes else [])


def test_merging_what_was_merged_is_merging_once() -> None:
    chance = random.Random(49)
    parts = {
        f"h{number}": trial(
            [chance.randrange(10_000, 50_000_000) for _ in range(50 + number)], sent=60 + number
        )
        for number in range(7)
    }
    for name, one in parts.items():
        one.interfaces = {"eth0": {"rx_bytes": len(name)}}
    names = list(parts)
    once = merge.trial(parts, PROFILE, "")
    halves = {
        "relay-1": merge.trial({name: parts[name] for name in names[:3]}, PROFILE, ""),
        "relay-2": merge.trial({name: parts[name] for name in names[3:]}, PROFILE, ""),
    }
    twice = merge.trial(halves, PROFILE, "")
    (group,), (same,) = once.groups, twice.groups
    assert twice.workers == once.workers
    assert twice.interfaces == once.interfaces
    assert same.measured == group.measured
    assert same.delays["response"].hdr == group.delays["response"].hdr
    assert same.delays["response"].p999 == group.delays["response"].p999
    assert same.loss == pytest.approx(group.loss, rel=1e-12)
    assert same.rates == pytest.approx(group.rates, rel=1e-12)
    assert same.stalls == group.stalls


def point(delays: dict[int, int], cpu: float) -> SeriesPoint:
    """A point with delays by the upper bound of their bucket."""
    count = sum(delays.values())
    quantiles = BucketedQuantiles(
        count=count, min=1, max=max(delays), mean=5.0, buckets=sorted(delays.items())
    )
    group = GroupPoint(counts=Counts(messages_sent=count), devices_active=1, delays={"response": quantiles})
    return SeriesPoint(
        t=1, phase="measure", groups={"web": group}, workers=[WorkerUsage(cpu=cpu, starved=1 - cpu)],
        interfaces={"eth0": {"rx_bytes": count}},
    )  # fmt: skip


def test_points_through_relays_add_up_and_name_the_busiest_worker() -> None:
    points = {f"h{number}": point({8: 10 + number, 16 << number: 1}, number / 10) for number in range(6)}
    once = merge.point(points)
    names = list(points)
    thinned = {
        f"relay-{i}": merge.thinned(merge.point({name: points[name] for name in part}), f"relay-{i}")
        for i, part in enumerate((names[:2], names[2:]), 1)
    }
    twice = merge.point(thinned)
    assert twice.groups == once.groups
    told = [((one.model_extra or {})["host"], one.cpu) for one in twice.workers]
    # of each relay the busiest, and the one that waited most
    assert told == [("h1", 0.1), ("h0", 0.0), ("h5", 0.5), ("h2", 0.2)]
    assert twice.interfaces == {"relay-1:all": {"rx_bytes": 23}, "relay-2:all": {"rx_bytes": 58}}
