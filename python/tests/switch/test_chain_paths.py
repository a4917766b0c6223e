"""Two paths between the switches of a chain: the policy, its rules, and real paths that become worse."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest
from sampled import points

from netdyno.cli.app import call
from netdyno.errors import Error
from netdyno.switch.chain import layout, reroute, running, steering
from netdyno.switch.chain.lab import ChainLab
from netdyno.switch.chain.mutate import Mutant, mutants
from netdyno.switch.chain.policy import Health, State, choose
from netdyno.switch.chain.reroute import PathFault, RerouteReport, fault
from netdyno.switch.chain.spec import Chain, checked
from netdyno.switch.chain.steering import choices
from netdyno.switch.chain.talk import port_of
from netdyno.switch.chain.verify import Verification, verify
from netdyno.switch.chain.wan import Wan
from netdyno.switch.driver import DRIVERS

from ..conftest import root

DROPS = {"delay": {"constant": "2ms"}, "loss": {"independent": "60%"}}
PLAIN: dict[str, Any] = {
    "controller": "embedded",
    "wan": {
        "paths": {"a": {"tunnel": {"kind": "vxlan", "key": 9}, "path": {}}, "b": {}},
        "server_side": ["two"],
        # far from what a busy machine does to a path
        "limits": {"loss": "30%", "delay": "1s", "jitter": "500ms"},
        "interval": "20ms", "window": 20, "hold": "1s",
    },
    "vnfs": {"one": {"kind": "bridge"}, "two": {"kind": "bridge"}},
    "chain": ["one", "two"],
    "classes": {
        "voice": {"match": {"dscp": 46}, "chain": ["two"], "paths": ["b", "a"]},
        "pinned": {"match": {"protocol": "udp", "port": 53}, "chain": ["one", "two"], "paths": ["a"]},
    },
}  # fmt: skip


def chain(**wan: Any) -> Chain:
    return checked(PLAIN | {"wan": PLAIN["wan"] | wan}, "x")


# ------------------------------------------------------------------------------------ description


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"wan": {"paths": {"a": {}}}}, "2 to 4 paths"),
        ({"wan": {"paths": {"a": {}, "B": {}}}}, "cannot be the name"),
        ({"wan": {"paths": {"a": {}, "b": {"tunnel": {"kind": "gre", "path": "lte"}}}}}, "beside `tunnel`"),
        ({"wan": PLAIN["wan"] | {"server_side": ["three"]}}, "not in vnfs"),
        ({"wan": PLAIN["wan"] | {"limits": {"loss": "100%"}}}, "below 100%"),
        ({"wan": PLAIN["wan"] | {"interval": "1ms"}}, "5ms to 10s"),
        ({"wan": None}, "not in wan"),
        ({"tunnel": {"kind": "vxlan"}}, "`tunnel` or `wan`"),
        ({"controller": "faucet"}, "needs the controller"),
        ({"classes": {"x": {"match": {"dscp": 46}, "chain": ["two"], "paths": ["b", "b"]}}}, "a path twice"),
        ({"classes": {"x": {"match": {"port": 5}, "chain": ["two"]}}}, "needs its protocol"),
        ({"classes": {"x": {"match": {"protocol": "tcp"}, "chain": ["two"]}}}, "or `dscp`"),
        ({"classes": {"x": {"match": {"dscp": 64}, "chain": ["two"]}}}, "less than or equal to 63"),
    ],
)
def test_wrong_paths_are_told(more: dict[str, Any], words: str) -> None:
    with pytest.raises(Error) as wrong:
        checked(PLAIN | more, "x")
    assert wrong.value.code == "ND-104-82" and words in str(wrong.value) + str(wrong.value.all)


def test_a_class_has_one_way_out_and_all_ways_in() -> None:
    """Out by its path, at either end; what arrives by the other is let in while it moves."""
    made = chain()
    assert choices(made) == [
        {"voice": "b", "pinned": "a", "default": "a"},
        {"voice": "a", "pinned": "a", "default": "b"},
    ]

    def out(by: dict[str, str]) -> list[tuple[str, str, str]]:
        return [(one.traffic, one.direction, str(one.targets[0]))
                for one in steering.rules(made, by=by) if one.line]  # fmt: skip

    assert out({}) == [
        ("voice", "forward", "switch.b"), ("voice", "reverse", "switch_remote.b"),
        ("pinned", "forward", "switch.a"), ("pinned", "reverse", "switch_remote.a"),
        ("default", "forward", "switch.a"), ("default", "reverse", "switch_remote.a"),
    ]  # fmt: skip
    assert out({"default": "b"})[4:] == [
        ("default", "forward", "switch.b"),
        ("default", "reverse", "switch_remote.b"),
    ]
    before, after = steering.rules(made), steering.rules(made, by={"default": "b"})
    changed = [one for one, other in zip(before, after, strict=True) if one.flow != other.flow]
    assert len(changed) == 2, "one flow at either switch"
    standby = [str(one.source) for one in before if one.standby]
    assert standby == ["switch_remote.a", "switch.a", *["switch_remote.b", "switch.b"] * 2]
    steps = steering.expected(before, "voice", "forward")
    assert [str(one) for one in steps if one.line] == ["switch.wan-b sends", "switch_remote.wan-b receives"]
    assert not any(one.outer for one in steps), "this path has no tunnel"
    assert layout.host_mtu(made) == 1450, "of the path with the least room"
    assert port_of(made, "voice") != port_of(made, "default")


def test_probes_come_back_by_the_port_that_they_came_in_by() -> None:
    made = chain()
    there = steering.probe_flows(made, "switch_remote")
    assert [(one.in_port, [type(to).__name__ for to in one.actions]) for one in there] == [
        ("switch_remote-a", ["Back"]), ("switch_remote-b", ["Back"]),
    ]  # fmt: skip
    here = steering.probe_flows(made, "switch")
    assert [(one.in_port, one.actions) for one in here] == [
        ("switch-a", ["prober"]), ("prober", ["switch-a"]), ("switch-b", ["prober"]), ("prober", ["switch-b"]),
    ]  # fmt: skip
    assert len({one.cookie for one in here}) == 4
    assert not steering.probe_flows(checked(PLAIN | {"wan": None, "classes": {}}, "x"), "switch")


def test_policy_rules_are_among_the_mutants() -> None:
    made = chain()
    names = [one.name for one in mutants(steering.rules(made), made.lines())]
    assert sum(one.startswith("by the path b rule") for one in names) == 4
    assert sum(one.startswith("by the path a, too, rule") for one in names) == 2
    standby = [str(one) for one in steering.rules(made) if one.standby]
    assert not any(one in name for one in standby for name in names), "no packet meets them"


# ----------------------------------------------------------------------------------------- policy

WAN = Wan.model_validate({
    "paths": {"a": {}, "b": {}}, "interval": "10ms", "window": 10, "hold": "1s",
    "limits": {"loss": "20%", "delay": "100ms", "jitter": "30ms"},
})  # fmt: skip


class SimulatedPath:
    """A path in simulated time: a probe each 10 ms, whose round trip is given, or lost."""

    def __init__(self) -> None:
        self.health, self.now, self.number = Health(WAN), 0.0, 0
        self.due: list[tuple[float, int, float]] = []

    def run(self, seconds: float, *trips: float | None) -> list[State]:
        """States that it had; round trips are taken in turn."""
        states: list[State] = []
        until = self.now + seconds
        while self.now < until:
            self.health.sent(self.number, self.now)
            if (trip := trips[self.number % len(trips)]) is not None:
                self.due.append((self.now + trip, self.number, trip))
            self.number += 1
            self.now += 0.01
            for one in [one for one in self.due if one[0] <= self.now]:
                self.due.remove(one)
                self.health.answered(*one[1:])
            if self.health.judge(self.now):
                states.append(self.health.state)
        return states


def test_a_path_is_judged_by_a_window_and_comes_back_after_hold() -> None:
    path = SimulatedPath()
    assert path.run(0.1, 0.02) == [] and not path.health.known
    assert path.run(1.0, 0.02) == ["good"] and path.now < 1.2
    assert path.run(1.0, 0.02, 0.02, 0.02, 0.02, None) == [], "20 % are allowed"
    assert path.run(0.15, None) == ["degraded"], "three lost, once they are late"
    assert path.run(1.0, None) == ["down"] and "none of 10" in path.health.why
    assert path.run(0.9, 0.02) == ["degraded"], "it answers, and hold is not over"
    assert path.run(0.5, 0.02) == ["good"]


@pytest.mark.parametrize(
    ("trips", "words"),
    [((0.12,), "delay"), ((0.01, 0.09), "jitter"), ((0.02, None), "loss")],
)
def test_each_limit_degrades_a_path(trips: tuple[float | None, ...], words: str) -> None:
    path = SimulatedPath()
    path.run(1.0, 0.02)
    assert path.run(1.0, *trips)[-1] == "degraded" and words in path.health.why
    fits = SimulatedPath()
    fits.run(1.0, 0.02)
    assert fits.run(1.0, *[0.09 if one == 0.12 else 0.065 if one == 0.09 else 0.04 for one in trips]) in (
        [], ["degraded"],
    ) and fits.health.quality(fits.now).lost == 0  # fmt: skip


def test_a_path_that_flaps_is_never_good() -> None:
    path = SimulatedPath()
    path.run(1.0, 0.02)
    assert path.run(0.5, None)[0] == "degraded"
    seen = [one for _ in range(5) for one in [*path.run(0.5, 0.02), *path.run(0.5, None)]]
    assert seen and "good" not in seen


def test_two_bad_paths_do_not_pass_a_class_to_and_fro() -> None:
    """At 84 % of probes lost some windows have no answer by chance: within one `hold` there are two moves at most."""
    policy = chain(window=10, interval="20ms", hold="1s", limits={"delay": "100ms"}).wan
    assert policy is not None
    for seed in range(50):
        random, now, moves = Random(seed), "a", list[float]()
        paths = {"a": Health(policy), "b": Health(policy)}
        for probe in range(400):
            at = probe * policy.seconds
            for one in paths.values():
                one.sent(probe, at)
                if probe < 20 or random.random() > 0.84:
                    one.answered(probe, 0.004)
                one.judge(at)
            taken = choose(["a", "b"], now, {name: one.state for name, one in paths.items()})
            moves += [at] if taken != now else []
            now = taken
        assert all(c - a >= policy.held for a, c in zip(moves, moves[2:], strict=False)), (seed, moves)


def test_the_first_good_path_is_chosen_and_without_any_the_class_stays() -> None:
    order = ["a", "b", "c"]
    assert choose(order, "b", {"a": "good", "b": "good", "c": "good"}) == "a"
    assert choose(order, "a", {"a": "degraded", "b": "good", "c": "good"}) == "b"
    assert choose(order, "b", {"a": "degraded", "b": "degraded", "c": "degraded"}) == "b"
    assert choose(order, "b", {"a": "degraded", "b": "down", "c": "degraded"}) == "a"
    assert choose(order, "c", {"a": "down", "b": "down", "c": "down"}) == "c"


# ----------------------------------------------------------------------------------------- faults


def test_words_of_faults(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    made = chain()
    assert str(fault("a:cut", made)) == "a:cut" and fault("b:flap", made).flaps
    assert str(fault("a:loss=10%,delay=80ms", made)) == "a:loss=10%,delay=80ms"
    for text, code in (("a", "ND-104-04"), ("c:cut", "ND-104-82"), ("a:slow=1", "ND-104-04")):
        with pytest.raises(Error) as wrong:
            fault(text, made)
        assert wrong.value.code == code
    file = tmp_path / "x.yaml"
    file.write_text(json.dumps(PLAIN))
    assert call(["chain", "reroute", str(file), "--fault", "a:cut", "--fault", "a:loss=1%"]) == 104
    assert "a is there twice" in capfd.readouterr().err
    file.write_text(json.dumps(PLAIN | {"wan": None, "classes": {}}))
    assert call(["chain", "reroute", str(file)]) == 104
    assert "one switch" in capfd.readouterr().err


def test_what_goes_against_the_policy_is_told() -> None:
    stays = reroute.Rerouting("x", "a", "a", "a", 0, 0, None, None, None, "stays", reroute.Stream(9, 0, 0.1))
    moved = replace(
        stays, during="b", moves=1, crowded=1, decided=0.2, confirmed=0.3, back=1.0, says="moved to b"
    )
    cut = [PathFault("a", reroute.NOTHING)]
    assert not reroute._wrong(stays, cut) and not reroute._wrong(moved, cut)
    assert "moved 2 times" in reroute._wrong(replace(moved, moves=2, crowded=2), cut)
    assert "nothing was done" in reroute._wrong(replace(moved, before="b"), cut)
    assert "no datagram" in reroute._wrong(replace(moved, stream=reroute.Stream(9, 9, None)), cut)
    good, bad = Verification([], 0.1, {}), Verification([_untested()], 0.1, {})
    assert not RerouteReport([], [moved], [], good, good).first_fault
    assert "while paths were worse" in RerouteReport([], [moved], [], bad, good).first_fault
    assert "after that" in RerouteReport([], [moved], [], None, bad).first_fault


def _untested() -> Any:
    from netdyno.switch.chain.verify import DirectionResult

    return DirectionResult("x", "forward", "tcp", [], 0, untested="lost")


# ------------------------------------------------------------------------------------ real packets


@pytest.fixture(scope="module")
def lab() -> Iterator[ChainLab]:
    if why := DRIVERS["ovs-netdev"].missing():
        pytest.skip(why)
    timeline = {"steps": [{"at": "500ms", "a_to_b": DROPS, "b_to_a": DROPS}]}
    paths = PLAIN["wan"]["paths"] | {"b": {"path": {"timeline": timeline}}}
    with ChainLab(chain(paths=paths)) as made:
        # the timeline is not to begin before it is asked for
        reroute._Paths(made)
        yield made


def of(found: RerouteReport, traffic: str) -> reroute.Rerouting:
    (one,) = (one for one in found.classes if one.traffic == traffic)
    return one


@root
@pytest.mark.sampled(1, of="paths")
def test_a_path_that_is_cut_is_left_and_taken_again(lab: ChainLab) -> None:
    """Only classes that took it move, and one that may take no other stays where nothing arrives."""
    shown: list[str] = []

    def look(_: str) -> None:
        """What others see of it."""
        shown.extend(
            one.by["default"] for one in running.running() if one.id.startswith(f"nd-{os.getpid()}-")
        )

    found = reroute.run(lab, "x", [fault("a:cut", lab.chain)], 0.2, look)
    assert not found.first_fault
    assert shown[0] == "a" and "b" in shown
    rest, pinned, voice = of(found, "default"), of(found, "pinned"), of(found, "voice")
    assert (rest.before, rest.during, rest.after, rest.says, rest.moves) == ("a", "b", "a", "moved to b", 1)
    assert rest.decided and rest.confirmed and rest.decided < rest.confirmed and rest.back and rest.back >= 1
    assert rest.stream and 0 < rest.stream.lost < rest.stream.sent and rest.stream.outage
    assert pinned.says == "may take a only" and pinned.stream and pinned.stream.outage is None
    assert (voice.says, voice.moves) == ("stays", 0) and voice.stream and voice.stream.outage is not None
    assert found.during is None and found.after.good
    assert json.loads(json.dumps(found.document()))["faults"] == ["a:cut"]


@root
@pytest.mark.sampled(1, of="paths")
def test_a_path_that_flaps_moves_a_class_once(lab: ChainLab) -> None:
    found = reroute.run(lab, "x", [fault("b:flap", lab.chain)], 0.2)
    assert not found.first_fault and found.during and found.during.good
    voice = of(found, "voice")
    assert (voice.during, voice.moves, voice.after) == ("a", 1, "b")
    assert [one.state for one in found.changes if one.path == "b"][-1] == "good"


@root
@pytest.mark.sampled(1, of="paths")
def test_without_a_good_path_a_class_stays_and_that_is_said(lab: ChainLab) -> None:
    both = [fault("a:loss=60%", lab.chain), fault("b:loss=60%", lab.chain)]
    found = reroute.run(lab, "x", both, 0.5)
    assert not found.first_fault and found.during is None
    rest = of(found, "default")
    assert rest.says == f"no path within the limits: stays on {rest.during}" and rest.after == "a"
    assert rest.stream and rest.stream.lost


@root
@pytest.mark.sampled(1, of="paths")
def test_a_timeline_moves_a_class_too(lab: ChainLab) -> None:
    """It begins with the datagrams."""
    found = reroute.run(lab, "x", [], 4.0)
    assert not found.first_fault
    voice = of(found, "voice")
    assert (
        (voice.before, voice.during, voice.after) == ("b", "a", "b") and voice.decided and voice.decided > 0.5
    )


@root
@pytest.mark.sampled(1, of="paths")
def test_a_fault_within_the_limits_is_told(lab: ChainLab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reroute, "PATIENCE", 2.0)
    with pytest.raises(Error) as wrong:
        reroute.run(lab, "x", [fault("a:delay=1ms", lab.chain)], 0.1)
    assert wrong.value.code == "ND-99-44" and "stayed within the limits" in str(wrong.value)


@root
@pytest.mark.sampled(1, of="paths")
def test_both_paths_are_proved_and_wrong_rules_of_the_policy_named(lab: ChainLab) -> None:
    """Each class by each of its paths; then a policy's rule that is wrong."""
    first = dict(lab.by)
    try:
        for by in choices(lab.chain):
            lab.take(by)
            found = verify(lab)
            assert found.good, found.first_fault
            for one in found.directions:
                if one.refused:
                    continue
                on = {step.line for step in one.steps if step.line}
                assert on == {"a, VXLAN 9" if by[one.traffic] == "a" else "b"}
        every = [one for one in mutants(lab.rules, lab.chain.lines()) if one.name.startswith("by the path")]
        first_one, step = points(6)
        for one in every[first_one - 1 :: step]:
            named(lab, one)
    finally:
        lab.take(first)


@root
@pytest.mark.long
def test_every_fault_of_paths_is_named(lab: ChainLab) -> None:
    first = dict(lab.by)
    try:
        for by in choices(lab.chain):
            lab.take(by)
            for one in mutants(lab.rules, lab.chain.lines()):
                named(lab, one)
    finally:
        lab.take(first)


def named(lab: ChainLab, one: Mutant) -> None:
    rules = lab.rules
    lab.program(one.rules)
    tries = []
    # a packet that a busy machine loses looks like another fault: then once more
    for _ in range(3):
        tries.append(sorted(verify(lab, 1).named))
        if tries[-1] and one.changed >= set(tries[-1]):
            break
    else:
        raise AssertionError((one.name, tries))
    lab.program(rules)
