"""The decisions of `tune watch` against simulated services: one parameter, what binds with it, and our clock."""

from __future__ import annotations

import csv
import math
import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from netdyno.cli.app import call
from netdyno.errors import Error
from netdyno.stats.observation import Value
from netdyno.tuning.registry import registry
from netdyno.tuning.watch import (
    Action,
    Freeze,
    Revert,
    Rule,
    Sample,
    Say,
    Set,
    Traffic,
    Watcher,
    bounds,
    classify,
    grown,
    rank_sum,
    rules,
    without,
)

NAME, COUNTER = "net.core.somaxconn", "TcpExtListenOverflows"
RULE = Rule(tunable=NAME, counter=COUNTER, factor=2)
GROWS = Rule(tunable=NAME, counter=COUNTER, factor=4, gain="gain")


@dataclass
class World:
    """One parameter and what binds with it; the clock is ours."""

    dropped: Callable[[float, int], float]
    """Drops a second, from the time and the value."""
    load: Callable[[float], float] = lambda _: 1000.0
    value: int = 128
    rule: Rule = RULE
    high: int = 65535
    more: Mapping[str, float] = field(default_factory=dict)
    dry: bool = False
    actions: list[tuple[float, Action]] = field(default_factory=list)

    def run(self, seconds: int, at: Callable[[float, World], None] = lambda *_: None) -> World:
        watcher = Watcher({"rule": self.rule}, {self.rule.tunable: self.high}, self.dry)
        for t in range(seconds):
            at(t, self)
            for action in watcher.step(Sample(float(t), self.rates(t), {self.rule.tunable: self.value})):
                self.actions.append((t, action))
                if isinstance(action, (Set, Revert)) and not self.dry:
                    self.value = action.value
        return self

    def rates(self, t: float) -> dict[str, float]:
        return {
            self.rule.counter: self.dropped(t, self.value), "IpInReceives": self.load(t), **self.more
        }  # fmt: skip

    def of(self, kind: type) -> list[tuple[float, Action]]:
        return [(t, action) for t, action in self.actions if isinstance(action, kind)]


def test_what_binds_is_raised_until_it_does_not_within_ten_seconds() -> None:
    world = World(lambda t, value: max(0.0, 1000.0 - value)).run(60)
    assert [action.value for _, action in world.of(Set)] == [256, 512, 1024]
    assert world.of(Set)[-1][0] < 10
    assert not world.of(Revert)
    assert "helped" in world.of(Say)[-1][1].why


def test_one_window_is_no_reason() -> None:
    world = World(lambda t, value: 500.0 if t % 10 == 0 else 0.0).run(300)
    assert not world.of(Set)


def test_two_of_four_windows_are() -> None:
    # what is turned away comes again after 1 s and 3 s
    world = World(lambda t, value: 500.0 if t in (0, 3) and value < 200 else 0.0).run(10)
    assert [t for t, _ in world.of(Set)] == [3]


def test_what_does_not_help_is_put_back_once_and_left_alone() -> None:
    world = World(lambda t, value: 300.0).run(300)
    assert [type(action) for _, action in world.actions if not isinstance(action, Say)] == [Set] * 4 + [
        Revert
    ]
    assert world.value == 128
    assert world.of(Revert)[0][0] < 20


def test_what_makes_it_worse_is_put_back_at_once() -> None:
    world = World(lambda t, value: 100.0 * value / 128).run(300)
    assert [type(action) for _, action in world.actions if not isinstance(action, Say)] == [Set, Revert]
    assert world.value == 128


def test_it_waits_twice_as_long_each_time() -> None:
    world = World(lambda t, value: 300.0).run(4000)
    reverts = [t for t, _ in world.of(Revert)]
    assert len(reverts) == 3
    assert reverts[2] - reverts[1] > 1.8 * (reverts[1] - reverts[0]) > 1000


def test_no_swinging_over_five_minutes_of_changing_load() -> None:
    """Loads that swing, jump and fall away: each value is set to few others, and never down from what helped."""
    loads: list[Callable[[float], float]] = [
        lambda t: 1000 + 900 * math.sin(t / 7),
        lambda t: 2000.0 if t % 40 < 20 else 100.0,
        lambda t: 20.0 * t,
        lambda t: (t * 7919) % 2003,
        lambda t: 3000.0 if 100 < t < 110 else 10.0,
    ]
    for load in loads:
        world = World(lambda t, value, load=load: max(0.0, load(t) - value), load).run(300)
        values = [a.value for _, a in world.actions if isinstance(a, (Set, Revert))]
        turns = sum((b - a) * (c - b) < 0 for a, b, c in zip(values, values[1:], values[2:], strict=False))
        assert turns == 0, values
        assert len(values) <= 6
        assert values == sorted(values)
        # the last hundred seconds are quiet, for nothing binds any more
        assert (
            sum(max(0.0, load(t) - world.value) for t in range(250, 300))
            <= 0.05 * sum(max(0.0, load(t) - 128) for t in range(250, 300)) + 1
        )


RECORDED = Path(__file__).with_name("data") / "changing_load.csv"
"""What a watch decided by on a real server whose loads came and went: made by tests/changing_load.py."""


def recorded() -> Iterator[tuple[float, dict[str, float], dict[str, Value]]]:
    """Time, rates and values of each window."""
    names = {rule.tunable for rule in rules().values()}
    values: dict[str, Value] = {}
    with RECORDED.open() as file:
        for row in csv.DictReader(file):
            shown = {name: cell for name, cell in row.items() if cell}
            values |= {n: int(v) if v.isdigit() else v for n, v in shown.items() if n in names}
            rates = {name: float(cell) for name, cell in shown.items() if name not in names}
            yield rates.pop("time"), rates, dict(values)


def test_no_swinging_over_five_minutes_of_a_real_load() -> None:
    """It decides anew, on what was seen then: upwards only, and as it did."""
    windows = list(recorded())
    (first, _, values), (last, _, then) = windows[0], windows[-1]
    assert last - first > 295
    begun, steps = dict(values), list[tuple[str, Value]]()
    chosen = {name: rule for name, rule in rules().items() if rule.tunable in values}
    watcher = Watcher(chosen, dict.fromkeys(values, 1 << 30))
    for t, rates, _ in windows:
        for action in watcher.step(Sample(t, rates, dict(values))):
            assert not isinstance(action, (Revert, Freeze)), action
            if isinstance(action, Set):
                steps.append((action.name, action.value))
                values[action.name] = action.value
    assert {name for name, _ in steps} == {
        "net.core.somaxconn", "net.ipv4.tcp_rmem.max", "net.ipv4.tcp_fastopen", "net.ipv4.tcp_slow_start_after_idle"
    }  # fmt: skip
    for name in ("net.core.somaxconn", "net.ipv4.tcp_rmem.max"):
        way = [begun[name], *(value for one, value in steps if one == name)]
        assert way == sorted(set(way)), f"{name} turned"
    assert len(steps) < 12
    # a rate must be shown to grow, and what was recorded does not follow a step of ours: one step fewer than at that time
    assert values == {**then, "net.ipv4.tcp_rmem.max": 3_407_872}


def test_what_stands_still_changes_nothing() -> None:
    world = World(lambda t, value: 0.0, more={"TcpExtTCPTimeouts": 50.0, "TcpInSegs": 1000.0}).run(300)
    assert not world.of(Set)
    assert [a.why for _, a in world.of(Say)] == ["the traffic is requests now, it was idle"]


def test_it_is_this_parameter_that_must_bind() -> None:
    rule = Rule(tunable=NAME, counter=COUNTER, factor=2, only_where="listeners.cut")
    assert not World(lambda t, value: 500.0, rule=rule).run(60).of(Set)
    assert World(lambda t, value: 500.0, rule=rule, more={"listeners.cut": 1.0}).run(60).of(Set)
    rule = Rule(tunable=NAME, counter=COUNTER, factor=2, classes=(Traffic.BULK,))
    assert not World(lambda t, value: 500.0, rule=rule).run(60).of(Set)


def test_a_bound_is_kept_and_said_once() -> None:
    world = World(lambda t, value: max(0.0, 1000.0 - value), high=600).run(300)
    assert [action.value for _, action in world.of(Set)] == [256, 512, 600]
    assert world.value == 600
    assert len([1 for _, a in world.of(Say) if "may not be more" in a.why]) <= 2


def test_short_memory_takes_it_back() -> None:
    world = World(lambda t, value: max(0.0, 1000.0 - value), more={"psi.memory.full": 90_000.0}).run(60)
    assert "memory is short" in world.of(Revert)[0][1].why
    assert world.value == 128


@dataclass
class Rates(World):
    """The same, of what is to grow with the value."""

    grows: Callable[[float, int], float] = lambda t, value: 0.0
    rule: Rule = GROWS

    def rates(self, t: float) -> dict[str, float]:
        return super().rates(t) | {"gain": self.grows(t, self.value)}


def test_what_grows_with_each_step_is_raised_until_it_does_not_bind() -> None:
    def rate(t: float, value: int) -> float:
        return min(value, 3000.0) * (1 + 0.2 * math.sin(5 * t))

    world = Rates(lambda t, value: 1.0 if value < 3000 else 0.0, grows=rate).run(300)
    assert [action.value for _, action in world.of(Set)] == [512, 2048, 8192]
    assert world.of(Set)[-1][0] < 10
    assert not world.of(Revert) and world.value == 8192


def test_a_step_that_brings_nothing_is_put_back_and_what_helped_stays() -> None:
    # it binds whatever it is: something else is what limits from 500 on
    world = Rates(lambda t, value: 1.0, grows=lambda t, value: min(value, 500.0)).run(300)
    assert [(type(a), a.value) for _, a in world.actions if not isinstance(a, Say)] == [
        (Set, 512), (Set, 2048), (Revert, 512)
    ]  # fmt: skip


def test_a_rate_that_falls_for_a_moment_is_no_harm() -> None:
    world = Rates(
        lambda t, value: 1.0 if value < 500 else 0.0, grows=lambda t, value: value / (3 if t % 4 == 0 else 1)
    ).run(100)
    assert world.value == 512 and not world.of(Revert)
    world = Rates(lambda t, value: 1.0, grows=lambda t, value: 1e5 / value).run(300)
    assert [type(a) for _, a in world.actions if not isinstance(a, Say)] == [Set, Revert]
    assert "worse" in world.of(Revert)[0][1].why


def test_what_only_new_ones_take_is_waited_for_and_taken_back_when_none_come() -> None:
    rule = Rule(tunable=NAME, counter="x.{value}", to=0, gain="y.{value}", patience=30)

    def run(comes: float, after: float) -> Rates:
        def more(t: float, world: World) -> None:
            now = after if t >= comes else 0.0
            world.more = {"x.128": 1.0, "y.128": 50.0, "y.0": now if world.value == 0 else 0.0}

        world = Rates(lambda t, value: 0.0, rule=rule, more={})
        world.run(100, more)
        return world

    assert run(20, 500.0).value == 0 and "y.0 went from 50 to 500" in run(20, 500.0).of(Say)[-1][1].why
    assert [type(a) for _, a in run(20, 55.0).actions if not isinstance(a, Say)] == [Set, Revert]
    assert "worse" in run(20, 20.0).of(Revert)[0][1].why
    assert "nothing came" in run(200, 500.0).of(Revert)[0][1].why


def test_others_go_on_while_one_waits_for_new_connections() -> None:
    both = {
        "a": Rule(tunable="a", counter="x", to="bbr", gain="g", patience=60),
        "b": Rule(tunable="b", counter="y", factor=2),
    }
    watcher, values = Watcher(both, {"b": 1000}), {"a": "cubic", "b": 10}
    for t in range(20):
        rates = {"x": 1.0, "y": 100.0 if values["b"] == 10 else 0.0}
        for action in watcher.step(Sample(t, rates, dict(values))):
            if isinstance(action, Set):
                values[action.name] = action.value
    assert values == {"a": "bbr", "b": 20}


RULES = rules()
START: Mapping[str, object] = {
    "net.ipv4.tcp_tw_reuse": 2,
    "net.ipv4.tcp_slow_start_after_idle": 1,
    "net.ipv4.tcp_fastopen": 1,
    "net.ipv4.ip_local_port_range.low": 32768,
    "net.ipv4.tcp_congestion_control": "cubic",
}
"""What is not 4096 at first."""
HIGH = bounds(registry(), {rule.tunable for rule in RULES.values()})


@pytest.mark.parametrize("name", RULES)
def test_each_rule_acts_within_ten_seconds_on_what_binds_and_stays_if_that_helped(name: str) -> None:
    """All of them watch; only what this one is for is touched, and by one step."""
    rule, watcher = RULES[name], Watcher(RULES, HIGH)
    values = {one.tunable: START.get(one.tunable, 4096) for one in RULES.values()}
    if name == "more-ports":
        # the ports that wait are taken again already, as far as they may
        values["net.ipv4.tcp_tw_reuse"] = 1
    first, touched = values[rule.tunable], []
    binding = rule.counter.replace("{value}", str(first))
    gain = rule.gain.replace("{value}", str(rule.next(first, HIGH.get(rule.tunable)))) or "none"
    for t in range(60):
        well = values[rule.tunable] != first
        rates = {"TcpInSegs": 1000.0, "IpExtInOctets": 1e6, rule.only_where or "none": 1.0}
        rates |= {gain: 100.0} if well else {binding: 10 * rule.least}
        for action in watcher.step(Sample(float(t), rates, dict(values))):
            if isinstance(action, (Set, Revert)):
                touched.append((action.rule, t < 10))
                values[action.name] = action.value
    assert touched == [(name, True)]
    assert values[rule.tunable] == rule.next(first, HIGH.get(rule.tunable)) != first


@pytest.mark.parametrize("name", [name for name, rule in RULES.items() if rule.only_where or rule.classes])
def test_what_is_not_for_a_rule_does_not_move_it(name: str) -> None:
    """The counter moves, and what says that it is of this parameter does not; or the traffic is of another kind."""
    rule, watcher = RULES[name], Watcher({name: RULES[name]}, HIGH)
    values = {rule.tunable: START.get(rule.tunable, 4096)}
    for t in range(60):
        for action in watcher.step(Sample(float(t), {rule.counter: 10 * rule.least}, values)):
            assert not isinstance(action, Set)


def test_what_could_not_be_set_is_no_human() -> None:
    watcher = Watcher({"rule": RULE}, {NAME: 65535})
    found: list[Action] = []
    for t in range(60):
        for action in watcher.step(Sample(t, {COUNTER: 500.0}, {NAME: 128})):
            found.append(action)
            if isinstance(action, Set):
                watcher.refused("rule", t)
    assert [type(a) for a in found if not isinstance(a, Say)] == [Set]


@pytest.mark.parametrize(
    ("rule", "values"),
    [
        (Rule(tunable=NAME, counter="x", factor=4), [128, 512, 600]),
        (Rule(tunable=NAME, counter="x", factor=4, limit=300), [128, 300]),
        (Rule(tunable=NAME, counter="x", factor=0.5, limit=40), [128, 64, 40]),
        (Rule(tunable=NAME, counter="x", to=1), [128, 1]),
        (Rule(tunable=NAME, counter="x", bits=2), [1, 3]),
    ],
)
def test_steps_are_bounded(rule: Rule, values: list[int]) -> None:
    now: object = values[0]
    for value in values[1:]:
        assert rule.next(now, 600) == value
        now = value
    assert rule.next(now, 600) is None


def test_a_rule_has_one_step() -> None:
    for more in ({}, {"factor": 2, "to": 1}, {"factor": 0.5}, {"to": 1, "patience": 3}):
        with pytest.raises(ValueError):
            Rule(tunable=NAME, counter=COUNTER, **more)


def test_what_a_human_changes_freezes_it() -> None:
    def human(t: float, world: World) -> None:
        if t == 20:
            world.value = 4000

    world = World(lambda t, value: max(0.0, 1000.0 - value)).run(30, human)
    assert [t for t, _ in world.of(Freeze)] == [20]
    assert world.value == 4000
    world = World(lambda t, value: 0.0 if t < 50 else 900.0).run(300, human)
    assert not world.of(Set)


def test_a_dry_run_says_it_and_goes_on() -> None:
    world = World(lambda t, value: 500.0, dry=True).run(300)
    assert len(world.of(Set)) == 1
    assert not world.of(Revert) and not world.of(Freeze)


def test_one_attempt_at_a_time() -> None:
    both = {"a": Rule(tunable="a", counter="x", factor=2), "b": Rule(tunable="b", counter="y", factor=2)}
    watcher, values = Watcher(both, {"a": 1000, "b": 1000}), {"a": 10, "b": 10}
    first: dict[str, float] = {}
    for t in range(20):
        rates = {"x": 100.0 if values["a"] < 20 else 0.0, "y": 100.0 if values["b"] < 20 else 0.0}
        for action in watcher.step(Sample(t, rates, dict(values))):
            if isinstance(action, Set):
                values[action.name] = action.value
                first.setdefault(action.name, t)
    assert values == {"a": 20, "b": 20}
    assert first["b"] > first["a"] + 2


@pytest.mark.parametrize(
    ("rates", "traffic"),
    [
        ({}, Traffic.IDLE),
        ({"TcpInSegs": 500.0, "TcpOutSegs": 900.0, "IpExtOutOctets": 1.2e6, "TcpPassiveOpens": 1.0}, Traffic.BULK),
        ({"TcpInSegs": 500.0, "TcpOutSegs": 500.0, "IpExtOutOctets": 1e5}, Traffic.REQUESTS),
        ({"TcpInSegs": 500.0, "TcpOutSegs": 500.0, "IpExtOutOctets": 1e6, "TcpPassiveOpens": 90.0}, Traffic.REQUESTS),
        ({"UdpInDatagrams": 500.0, "TcpInSegs": 5.0}, Traffic.DATAGRAMS),
        ({"UdpRcvbufErrors": 500.0}, Traffic.DATAGRAMS),
    ],
)  # fmt: skip
def test_traffic_by_its_shape(rates: dict[str, float], traffic: Traffic) -> None:
    assert classify(Sample(0.0, rates, {})) is traffic


def test_rules_are_about_parameters_that_there_are(tmp_path: Path) -> None:
    for rule in rules().values():
        one = registry().find(rule.tunable)
        assert one.inert is None and (one.values == "number" or rule.to is not None)
        assert rule.counter.startswith(("tcp.", "ports.")) or rule.counter in {
            *one.counters,
            "listen.refused",
            "udp.rcvbuf_errors",
        }
    own = tmp_path / "rules.yaml"
    own.write_text("a: {tunable: net.core.somaxconn, counter: TcpExtListenOverflows, fctor: 3}\n")
    with pytest.raises(Error, match="ND-104-41"):
        rules(own)


@pytest.mark.parametrize(
    ("name", "gone"),
    [
        ("congestion-control", ["congestion-control"]),
        ("net.core.rmem_max", ["udp-buffer-asked"]),
        ("net.ipv4.tcp_rmem", ["receive-buffer", "receive-window"]),
        ("net.core.rmem_*", ["udp-buffer", "udp-buffer-asked"]),
    ],
)
def test_rules_can_be_left_out_by_their_name_or_their_parameter(name: str, gone: list[str]) -> None:
    assert [one for one in RULES if one not in without(RULES, [name])] == gone
    assert without(RULES, []) == RULES


def test_what_cannot_be_left_out_is_said() -> None:
    with pytest.raises(Error, match=r"ND-104-40.*net\.ipv4\.tcp_rme'"):
        without(RULES, ["ports", "net.ipv4.tcp_rme"])
    assert call(["tune", "watch", "--not", "net.ipv4.tcp_sack"]) == 104


def test_bursts_that_come_seldom_count_over_the_horizon_of_the_rule() -> None:
    """150 connections every 5 s on a queue of 64: it overflows in one window of five."""

    def bursts(t: float, value: int) -> float:
        return max(0.0, 150.0 - value) if t % 5 == 0 else 0.0

    assert not World(bursts, value=64).run(120).of(Set)
    assert RULES["accept-queue"].horizon >= 10
    world = World(bursts, value=64, rule=RULE.model_copy(update={"horizon": 60})).run(120)
    assert [action.value for _, action in world.of(Set)] == [128, 256]
    assert world.value == 256
    # two quiet windows are what there is between bursts in any case
    said = [action.why for _, action in world.of(Say) if "stands still" in action.why]
    assert len(said) == 2
    assert all("too few to tell that it helped; it moved in" in one for one in said)


def test_a_step_below_the_least_that_is_allowed_goes_up_to_it() -> None:
    rule = RULES["conntrack"]
    assert rule.next(200, 1 << 20, 1024) == 1024
    assert rule.next(4000, 1 << 20, 1024) == 16000
    assert rule.next(300, 512, 1024) == 512
    assert rule.next(600, 600, 1024) is None


@pytest.mark.parametrize(
    ("now", "to", "also"),
    [
        ((128, 512, 1024), 4096, {2: 2048, 1: 512}),
        # at most as large as the one before
        ((128, 512, 128), 512, {1: 512}),
        ((1000, 1024, 1024), 1500, {2: 1500, 1: 1464}),
        # what is above what bounds it is somebody's choice
        ((128, 2048, 100), 400, {}),
    ],
)
def test_thresholds_are_raised_along_and_stay_in_order(
    now: tuple[int, int, int], to: int, also: dict[int, int]
) -> None:
    for rule in (RULES["neighbours"], RULES["neighbours-ipv6"]):
        stem = rule.tunable.removesuffix("3")
        values: dict[str, int | str] = {f"{stem}{n}": value for n, value in enumerate(now, 1)}
        assert rule.others(values, to) == {f"{stem}{n}": value for n, value in also.items()}
    with pytest.raises(ValueError, match="factor above 1"):
        Rule(tunable=NAME, counter="x", to=1, along=("net.core.rmem_max",))


def test_what_is_raised_along_is_put_back_along() -> None:
    name, rule = NAME, Rule(tunable=NAME, counter="x", factor=4, along=("net.core.rmem_max",))
    watcher = Watcher({"rule": rule}, {name: 65535})
    values: dict[str, int | str] = {name: 100, "net.core.rmem_max": 50}
    done = []
    for t in range(60):
        for action in watcher.step(Sample(float(t), {"x": 5.0, "TcpInSegs": 100.0}, dict(values))):
            assert not isinstance(action, Freeze), action
            if isinstance(action, (Set, Revert)):
                done.append(action)
                values |= {name: action.value, **action.also}
    assert [(type(one), one.value, one.also) for one in done] == [
        *((Set, 100 * n, {"net.core.rmem_max": 50 * n}) for n in (4, 16, 64, 256)),
        (Revert, 100, {"net.core.rmem_max": 50}),
    ]
    # of somebody who sets one of them hands are off
    values["net.core.rmem_max"] = 7
    (frozen,) = watcher.step(Sample(61.0, {}, values))
    assert isinstance(frozen, Freeze) and frozen.name == "net.core.rmem_max"


def test_what_may_not_be_set_is_said_once_with_the_command_that_may() -> None:
    closed = {NAME: "it holds for the whole machine: netdyno tune watch --global"}
    watcher = Watcher({"rule": RULE}, {NAME: 65535}, closed=closed)
    said = [
        action
        for t in range(60)
        # somebody else may set it: it is none of ours
        for action in watcher.step(Sample(float(t), {COUNTER: 500.0}, {NAME: 128 + t // 30}))
        if not isinstance(action, Say) or "traffic" not in action.why
    ]
    assert [type(one) for one in said] == [Say]
    assert "net.core.somaxconn = 128 binds, 256 would be tried; it holds for the whole machine" in said[0].why
    assert isinstance(said[0], Say) and said[0].setting == {NAME: 256}


def test_drops_over_ipv6_are_of_datagrams_too() -> None:
    assert classify(Sample(0.0, {"Udp6RcvbufErrors": 500.0}, {})) is Traffic.DATAGRAMS


@pytest.mark.parametrize("runs", [200, pytest.param(2000, marks=pytest.mark.long)])
@pytest.mark.parametrize(("noise", "most"), [(0.1, 0.01), (0.3, 0.05)])
def test_a_rate_that_did_not_grow_is_seldom_said_to_have_helped(noise: float, most: float, runs: int) -> None:
    """BBR that changes nothing, with rates that vary: held against the bound plus 3 standard errors."""
    rule, helped = Rule(tunable=NAME, counter="x", to=0, gain="y", patience=30), 0
    draw = random.Random(1)
    for _ in range(runs):
        watcher, value = Watcher({"rule": rule}, {NAME: 65535}), 128
        for t in range(45):
            rates = {"x": 1.0 if value else 0.0, "y": 100 * draw.lognormvariate(0, noise)}
            if t < 10:
                # it runs for a while before anything binds
                rates["x"] = 0.0
            for action in watcher.step(Sample(float(t), rates, {NAME: value})):
                helped += isinstance(action, Say) and "helped:" in action.why
                value = int(action.value) if isinstance(action, (Set, Revert)) else value
    print(f"{helped} of {runs}, standard error {math.sqrt(most / runs):.4f}")
    assert helped / runs <= most + 3 * math.sqrt(most / runs)


def test_a_rate_that_doubles_is_said_to_have_grown() -> None:
    draw, found = random.Random(2), 0
    for _ in range(100):
        before = [draw.lognormvariate(0, 0.3) for _ in range(8)]
        found += grown(before, [2 * draw.lognormvariate(0, 0.3) for _ in range(6)])
    assert found >= 90
    assert rank_sum([1, 2, 3, 4], [5, 6, 7]) == pytest.approx(1 / 35)
    assert rank_sum([1, 1], [1, 1]) == 1
    assert not grown([1.0, 1.0], [1.3, 1.3])
    assert grown([1.0, 1.0], [1.3, 1.3, 1.3])


def test_a_step_after_which_the_slo_breaks_is_taken_back() -> None:
    """A load beside runs for 4 s each; the step helps its counter, and doubles the delay."""

    def watched(before: float, after: float) -> World:
        def load(t: float, world: World) -> None:
            began = t - t % 4 - 4
            since = next((s for s, a in world.of(Set)), math.inf)
            world.more = {"slo.since": began, "slo.broken": after if began > since else before}

        return World(lambda t, value: 500.0 if value == 128 else 0.0).run(40, load)

    broken = watched(0.0, 1.0)
    assert [type(a) for _, a in broken.actions if not isinstance(a, Say)] == [Set, Revert]
    assert "the SLO is broken, it was kept before" in broken.of(Revert)[0][1].why
    assert broken.value == 128
    kept = watched(0.0, 0.0)
    assert kept.value == 256 and not kept.of(Revert)
    # it is judged by a run of the load that began after the step, and not sooner
    assert kept.of(Say)[-1][0] >= kept.of(Set)[0][0] + 4
    # what was broken before is no fault of the step
    assert watched(1.0, 1.0).value == 256


def test_a_step_that_brings_nothing_does_not_help_by_a_pause() -> None:
    """It binds in five of six windows as before the step, and what is to grow does not."""
    world = Rates(lambda t, value: 0.0 if t % 6 == 5 else 300.0, grows=lambda t, value: 100.0).run(60)
    assert [type(a) for _, a in world.actions if not isinstance(a, Say)] == [Set, Revert], world.actions
    assert not any("stands still" in action.why for _, action in world.of(Say))
