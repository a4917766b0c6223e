"""Shards add up to the profile, and what cannot be shared is refused."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from netdyno.errors import Error
from netdyno.fleet.shard import Part, scaled, shards, split
from netdyno.units import RATE

PARTS = (Part("a", 1, (0,)), Part("b", 1, (1,)), Part("c", 2, (0, 1)))


def profile(**group: Any) -> dict[str, Any]:
    made = {"name": "web", "model": {"http": {}}, "target": "web", "devices": 10} | group
    return {"name": "p", "seed": 7, "targets": {"web": "http://10.0.0.1"}, "groups": [made]}


@given(st.integers(0, 10_000_000), st.lists(st.integers(1, 64), min_size=1, max_size=250))
def test_whole_numbers_add_up_and_none_is_a_whole_one_off(total: int, weights: list[int]) -> None:
    found = split(total, weights)
    assert sum(found) == total
    assert all(abs(n - total * w / sum(weights)) < 1 for n, w in zip(found, weights, strict=True))


def test_devices_follow_weights_and_rates_follow_devices() -> None:
    load = {"open": {"rate": "1k/s", "stages": [{"over": "1s", "rate": "500/s"}]}}
    made = shards(profile(load=load, total=1001), PARTS)
    assert [one.devices["web"] for one in made] == [3, 2, 5]
    assert [one.profile["groups"][0].get("first_device", 0) for one in made] == [0, 3, 5]
    groups = [one.profile["groups"][0] for one in made]
    assert [RATE.value(group["load"]["open"]["rate"], "") for group in groups] == [300, 200, 500]
    stages = [group["load"]["open"]["stages"][0]["rate"] for group in groups]
    assert [RATE.value(rate, "") for rate in stages] == [150, 100, 250]
    assert sum(group["total"] for group in groups) == 1001
    assert [one.profile["seed"] for one in made] == [7, 8, 9]
    assert made[2].profile["transport"]["sockets"]["cores"] == [0, 1]


@pytest.mark.parametrize("limit", [1, 2, 3, 7])
def test_a_host_whose_share_of_a_limit_is_none_has_no_device(limit: int) -> None:
    """0 would be no limit at all."""
    load = {"open": {"rate": "60/s", "max_flows": limit}}
    for group in ({"load": load}, {"total": limit}, {"load": load, "total": 1000}):
        made = [one for one in shards(profile(devices=300, **group), PARTS) if one.profile["groups"]]
        own = [one.profile["groups"][0] for one in made]
        assert sum(one["devices"] for one in own) == 300
        caps = [one["load"]["open"]["max_flows"] if "load" in one else one["total"] for one in own]
        assert sum(caps) == limit and min(caps) > 0, caps
        rates = [RATE.value(one["load"]["open"]["rate"], "") for one in own if "load" in one]
        assert not rates or sum(rates) == pytest.approx(60)
    # what one limit makes of the hosts is too little for the other then
    uneven = [Part(name, weight) for name, weight in zip("abcd", (10.4, 10.4, 0.6, 0.6), strict=True)]
    load = {"open": {"rate": "60/s", "max_flows": 21}}
    own = [
        one.profile["groups"][0]
        for one in shards(profile(devices=2200, load=load, total=22), uneven)
        if one.devices
    ]
    assert all(one["total"] > 0 and one["load"]["open"]["max_flows"] > 0 for one in own), own
    # as many as there are devices
    free = shards(profile(load={"open": {"rate": "60/s", "max_flows": 0}}), PARTS)
    assert [one.profile["groups"][0]["load"]["open"]["max_flows"] for one in free] == [0, 0, 0]


def test_each_host_knows_the_devices_that_it_takes_turns_with() -> None:
    made = shards(profile(devices=12), (*PARTS, Part("d", 2)))
    assert [one.profile["groups"][0]["turns"] for one in made] == [
        {"own": 2, "after": [[2, 1], [4, 2]]},
        {"own": 2, "before": [[2, 1]], "after": [[4, 2]]},
        {"own": 4, "before": [[2, 2]], "after": [[4, 1]]},
        {"own": 4, "before": [[2, 2], [4, 1]]},
    ]
    # whoever has all of them waits for nobody
    assert "turns" not in shards(profile(devices=1), PARTS)[2].profile["groups"][0]


def test_stages_of_a_closed_loop_never_ask_for_more_devices_than_a_host_has() -> None:
    load = {"closed": {"stages": [{"over": "1s", "devices": n} for n in range(11)]}}
    groups = [one.profile["groups"][0] for one in shards(profile(load=load), PARTS)]
    for number in range(11):
        each = [group["load"]["closed"]["stages"][number]["devices"] for group in groups]
        assert sum(each) == number
        assert all(n <= group["devices"] for n, group in zip(each, groups, strict=True))


def test_devices_have_the_numbers_that_they_would_have_on_one_host() -> None:
    made = shards(profile(first_device=100), PARTS)
    groups = [one.profile["groups"][0] for one in made]
    ranges = [range(group["first_device"], group["first_device"] + group["devices"]) for group in groups]
    assert [number for one in ranges for number in one] == list(range(100, 110))


def test_a_host_without_a_device_has_no_part() -> None:
    made = shards(profile(devices=2), PARTS)
    assert [dict(one.devices) for one in made] == [{"web": 1}, {}, {"web": 1}]
    assert [len(one.profile["groups"]) for one in made] == [1, 0, 1]


def test_each_host_sends_from_the_addresses_that_it_has() -> None:
    parts = (
        Part("a", 1, addresses=("10.0.0.1/24", "fe80::1/64")),
        Part("b", 1, addresses=("10.0.0.9/24",), sources=("10.9.0.0/28",)),
    )
    made = shards(profile(source=["10.0.0.0/29"]), parts)
    assert [one.profile["groups"][0]["source"] for one in made] == [["10.0.0.1"], ["10.9.0.0/28"]]
    with pytest.raises(Error, match="the host a has none of the addresses"):
        shards(profile(source=["10.0.0.16-10.0.0.20"]), parts)


def test_each_host_sends_from_its_own_ports() -> None:
    own = ({"name": "a", "device": "0000:01:00.0", "ip": "10.0.0.1/24"}, {"name": "b", "device": "null"})
    parts = (
        Part("x", 1, cores=(1,), ports=own),
        Part("y", 1, ports=({"name": "a", "device": "af_packet:e0"},)),
    )
    port = {"name": "a", "device": "null", "ip": "10.0.0.9/24", "mac": "02:00:00:00:00:01", "mtu": 9000}
    made = shards(profile() | {"transport": {"dpdk": {"ports": [port], "memory": "64MiB"}}}, parts)
    assert [one.profile["transport"]["dpdk"] for one in made] == [
        {
            "ports": [{"name": "a", "device": "0000:01:00.0", "ip": "10.0.0.1/24", "mtu": 9000}],
            "memory": "64MiB",
        },
        # an address of the profile is of no host
        {"ports": [{"name": "a", "device": "af_packet:e0", "mtu": 9000}], "memory": "64MiB"},
    ]


@pytest.mark.parametrize(
    ("change", "at"),
    [
        ({"transport": {"dpdk": {"ports": [{"name": "a", "device": "null"}]}}}, "transport.dpdk.ports[0]"),
    ],
)
def test_what_hosts_cannot_share_is_refused(change: dict[str, Any], at: str) -> None:
    with pytest.raises(Error) as e:
        shards(profile() | change, PARTS)
    assert (e.value.code, e.value.at) == ("ND-104-92", at)


def test_a_host_whose_files_cannot_be_had_takes_no_captures() -> None:
    wanted = profile() | {"capture": {"filter": "tcp"}}
    assert all(one.profile["capture"] == {"filter": "tcp"} for one in shards(wanted, PARTS))
    with pytest.raises(Error, match="no file comes from the host d") as e:
        shards(wanted, (*PARTS, Part("d", 1, captures=False)))
    assert (e.value.code, e.value.at) == ("ND-104-92", "capture")


def test_files_of_this_machine_are_not_on_others() -> None:
    for named in (profile(tls={"ca": "/etc/ca.pem"}), profile() | {"data": {"users": "users.csv"}}):
        shards(named, PARTS)
        with pytest.raises(Error, match=r"not on the host d"):
            shards(named, (*PARTS, Part("d", 1, remote=True)))


@pytest.mark.parametrize(
    ("factor", "devices"), [(0.54, 54), (0.55, 55), (0.01, 1), (0.001, 1), (1.0, 100), (1.5, 150)]
)
def test_hosts_together_have_the_devices_of_a_load_factor(factor: float, devices: int) -> None:
    """Each by itself would round its ten: 50 for 54, 60 for 55."""
    hosts = [Part(f"h{number}", 1) for number in range(10)]
    load = {"closed": {"stages": [{"over": "1s", "devices": 60}]}}
    made = shards(scaled(profile(devices=100, load=load), factor), hosts)
    groups = [one.profile["groups"][0] for one in made if one.devices]
    assert sum(group["devices"] for group in groups) == devices
    assert not any(group["load"]["closed"]["scales"] for group in groups), "hosts leave them as they are"
    stages = sum(group["load"]["closed"]["stages"][0]["devices"] for group in groups)
    assert stages == round(60 * factor + 1e-9)


def test_a_load_factor_leaves_what_does_not_follow_it() -> None:
    for left in (
        {"load": {"open": {"rate": "10/s"}}},
        {"load": {"closed": {"scales": False}}},
        {"frame": {"rate": {"pps": 1000}}},
    ):
        (group,) = scaled(profile(**left), 0.5)["groups"]
        assert (group["devices"], group.get("load")) == (10, left.get("load"))
