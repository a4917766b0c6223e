"""The decisions of `tune watch` against simulated services, and the whole of it against real ones that starve."""

import contextlib
import json
import math
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from netdyno import journal, namespace
from netdyno.errors import Error
from netdyno.tuning import access, reach
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
    classify,
    rules,
)  # fmt: skip
from netdyno.workload import connects as connects_module

from . import spaces
from .command import start
from .conftest import root

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

    def run(self, seconds: int, at: Callable[[float, "World"], None] = lambda *_: None) -> "World":
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
        }
    own = tmp_path / "rules.yaml"
    own.write_text("a: {tunable: net.core.somaxconn, counter: TcpExtListenOverflows, fctor: 3}\n")
    with pytest.raises(Error, match="ND-104-41"):
        rules(own)


def test_sockets_as_ss_shows_them() -> None:
    assert reach.parse_listeners(
        'LISTEN 129 128 0.0.0.0:80 0.0.0.0:* users:(("nginx",pid=7,fd=6),("nginx",pid=8,fd=6))\n'
        'LISTEN 0 511 [::]:80 [::]:* users:(("a b",pid=9,fd=3))\nnonsense\nLISTEN 0 5 *:1 *:*\n'
    ) == [reach.Held("backlog", 7, 6, 128, True), reach.Held("backlog", 9, 3, 511, False)]
    assert reach.parse_datagrams(
        'UNCONN 212992 0 1.2.3.4:9 0.0.0.0:* users:(("x",pid=7,fd=3)) '
        "skmem:(r213248,rb212992,t0,tb212992,f1792,w0,o0,bl0,d12)\nUNCONN 0 0 *:7 *:*\n"
    ) == [reach.Held("udp", 7, 3, 212992, True)]


def test_receivers_as_ss_shows_them() -> None:
    """When something came just now, `ss` says nothing of it."""
    line = (
        'ESTAB 0 0 1.2.3.4:9 1.2.3.5:7 users:(("x",pid=7,fd=3)) skmem:(r0,rb{},t0,tb87040) cubic '
        "bytes_received:9 {}rcv_rtt:4"
    )
    shown = ((4096, "lastrcv:4 "), (8192, "lastrcv:5000 "), (8192, ""))
    text = "\n".join(line.format(*one) for one in shown)
    assert [one.size for one in reach.parse_receivers(text)] == [4096, 8192]


# ---- real ones

STALLED = """
import os, socket, sys, time
listening = socket.socket()
listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
listening.bind(("127.0.0.1", 7000))
listening.listen(int(sys.argv[1]))
print("ready", flush=True)
time.sleep(60)
"""
SLEEPING = """
import socket, sys, time
reader = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
reader.bind(("127.0.0.1", 7001))
print("ready", flush=True)
while True:
    time.sleep(0.5)
    reader.setblocking(False)
    try:
        while True:
            reader.recv(2048)
    except BlockingIOError:
        pass
"""


@pytest.fixture
def space() -> Iterator[str]:
    with spaces.made(f"ndt-watch-{os.getpid()}") as name:
        subprocess.run(f"ip -n {name} link set lo up".split(), check=True)
        yield name


@pytest.fixture
def served(space: str) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    children: list[subprocess.Popen[str]] = []

    def begin(script: str, *words: str) -> subprocess.Popen[str]:
        command = ["ip", "netns", "exec", space, sys.executable, "-c", script, *words]
        children.append(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))
        assert children[-1].stdout and children[-1].stdout.readline() == "ready\n"
        return children[-1]

    yield begin
    for child in children:
        child.kill()
        child.communicate()


@pytest.fixture
def watched(space: str) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    children: list[subprocess.Popen[str]] = []

    def begin(*options: str) -> subprocess.Popen[str]:
        children.append(start("tune", "watch", "--where", space, "--json", *options))
        assert children[-1].stderr and "watching" in children[-1].stderr.readline()
        return children[-1]

    yield begin
    for child in children:
        child.kill()
        child.communicate()


def connects(space: str, number: int, address: tuple[str, int] = ("127.0.0.1", 7000)) -> list[socket.socket]:
    def work() -> list[socket.socket]:
        made = []
        for _ in range(number):
            one = socket.socket()
            one.setblocking(False)
            one.connect_ex(address)
            made.append(one)
        return made

    return namespace.inside(space, work)


def connected(sockets: list[socket.socket]) -> int:
    return sum(one.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1) == b"\x01" for one in sockets)


def actions(child: subprocess.Popen[str]) -> list[dict[str, object]]:
    child.send_signal(signal.SIGINT)
    out, err = child.communicate(timeout=30)
    assert child.returncode == 0, err
    return [json.loads(line) for line in out.splitlines()]


def backlogs(space: str) -> list[int]:
    return [one.size for one in reach.sockets("backlog", space)]


@root
def test_a_stalled_accept_is_mended_in_the_running_server(
    space: str, served: Callable[..., subprocess.Popen[str]], watched: Callable[..., subprocess.Popen[str]]
) -> None:
    namespace.write_sysctl(space, NAME, "128")
    served(STALLED, "1000")
    assert backlogs(space) == [128]
    child = watched()
    began, sockets = time.monotonic(), connects(space, 300)
    # a client that was turned away comes again by itself; new ones keep coming as they do
    until = began + 30
    while connected(sockets) < 300 and time.monotonic() < until:
        sockets += connects(space, 10) if len(sockets) < 400 else []
        time.sleep(0.25)
    assert connected(sockets) >= 300
    assert backlogs(space)[0] >= 256
    done = actions(child)
    assert next(one["name"] for one in done if one["action"] == "set") == NAME
    assert {one["action"] for one in done} <= {"set", "say"}
    # and all is as it was
    assert namespace.read_sysctl(space, NAME) == "128"
    assert backlogs(space) == [128]
    for one in sockets:
        one.close()


@root
def test_a_server_that_asks_for_a_short_queue_is_left_alone(
    space: str, served: Callable[..., subprocess.Popen[str]], watched: Callable[..., subprocess.Popen[str]]
) -> None:
    """It overflows, and somaxconn is not what binds."""
    served(STALLED, "16")
    child = watched()
    sockets = connects(space, 60)
    time.sleep(6)
    assert namespace.read_sysctl(space, NAME) == "4096"
    assert [one for one in actions(child) if one["action"] == "set"] == []
    for one in sockets:
        one.close()


@root
def test_a_human_is_left_in_charge(space: str, watched: Callable[..., subprocess.Popen[str]]) -> None:
    child = watched()
    assert child.stdout
    time.sleep(2)
    namespace.write_sysctl(space, NAME, "999")
    assert json.loads(child.stdout.readline())["action"] == "freeze"
    assert actions(child) == []
    assert namespace.read_sysctl(space, NAME) == "999"


@root
def test_a_killed_watch_is_put_back(space: str, served: Callable[..., subprocess.Popen[str]]) -> None:
    """By the next start, or by the watchdog before it: the socket of the running server too."""
    namespace.write_sysctl(space, NAME, "128")
    served(STALLED, "1000")
    script = f"""
import os, signal
from netdyno.journal import journal
from netdyno.tuning import access, reach
from netdyno.tuning.apply import tuned
tuned({{"net.core.somaxconn": 256}}, {space!r})
(one,) = reach.bound(reach.sockets("backlog", {space!r}), 128)
print([one.size, reach.resize(one, 256, journal()) is not None])
os.kill(os.getpid(), signal.SIGKILL)
"""
    sockets = connects(space, 200)
    done = subprocess.run([sys.executable, "-uc", script], capture_output=True, text=True, check=False)
    assert done.stdout == "[128, True]\n", done.stderr
    assert backlogs(space) == [256]
    assert len(journal.restore().undone) == 2
    assert backlogs(space) == [128]
    assert namespace.read_sysctl(space, NAME) == "128"
    for one in sockets:
        one.close()


def burst(space: str, number: int) -> int:
    """Datagrams to the reader; how many were dropped there until now."""

    def work() -> int:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
            for _ in range(number):
                sender.sendto(bytes(1000), ("127.0.0.1", 7001))
        lines = Path("/proc/thread-self/net/snmp").read_text().splitlines()
        names, values = (line.split() for line in lines if line.startswith("Udp:"))
        return int(values[names.index("RcvbufErrors")])

    return namespace.inside(space, work)


@root
def test_the_buffer_of_a_running_reader_can_be_set(
    space: str, served: Callable[..., subprocess.Popen[str]]
) -> None:
    """And without the parameter of the whole machine: loss of bursts falls to nothing."""
    served(SLEEPING)
    assert burst(space, 1500) > 500
    (one,) = [one for one in reach.sockets("udp", space) if one.full]
    notes = journal.Journal()
    entry = reach.resize(one, 64 * one.size, notes)
    assert entry is not None
    time.sleep(1.2)  # it reads twice a second
    before = burst(space, 0)
    assert burst(space, 1500) == before
    notes.undo(entry)
    assert [held.size for held in reach.sockets("udp", space)] == [one.size]


@root
def test_a_sleeping_reader_is_mended(
    space: str, served: Callable[..., subprocess.Popen[str]], watched: Callable[..., subprocess.Popen[str]]
) -> None:
    served(SLEEPING)
    before = namespace.read_sysctl(None, "net.core.rmem_default")
    child = watched("--global")
    lost = [burst(space, 0)]
    # until a second's bursts come through whole
    until = time.monotonic() + 40
    while time.monotonic() < until and not (len(lost) > 8 and lost[-1] == lost[-5] > 0):
        lost.append(burst(space, 1000))
        time.sleep(0.25)
    assert lost[-1] == lost[-5] > 0, (lost[-5:], actions(child))
    assert namespace.read_sysctl(None, "net.core.rmem_default") != before
    done = [one for one in actions(child) if one["action"] != "say"]
    assert "net.core.rmem_default" in [one["name"] for one in done]
    assert namespace.read_sysctl(None, "net.core.rmem_default") == before


@pytest.fixture
def pair(space: str) -> Iterator[str]:
    """Another namespace, whose v1 is joined to v0 of the watched one."""
    other = f"{space}-b"
    steps = [
        f"ip netns add {other}", f"ip -n {space} link set v1 netns {other}", f"ip -n {other} link set v1 up",
        f"ip -n {space} addr add 198.18.7.1/24 dev v0", f"ip -n {other} addr add 198.18.7.2/24 dev v1",
        # those who leave connections half open seem to be there
        f"ip -n {space} route add 198.19.0.0/16 via 198.18.7.2",
        f"ip netns exec {other} ethtool -K v1 tx-udp-segmentation off", f"ip netns exec {space} ethtool -K v0 gro off",
    ]  # fmt: skip
    for step in steps:
        subprocess.run(step.split(), check=True, capture_output=True)
    yield other
    subprocess.run(["ip", "netns", "del", other], check=True)


@root
@pytest.mark.parametrize("cookies", [0, 1])
def test_half_open_connections_are_made_room_for_unless_cookies_do(
    space: str, pair: str, watched: Callable[..., subprocess.Popen[str]], cookies: int
) -> None:
    namespace.write_sysctl(space, "net.ipv4.tcp_syncookies", str(cookies))
    namespace.write_sysctl(space, "net.ipv4.tcp_max_syn_backlog", "256")
    there = ("198.18.7.1", connects_module.PORT)
    listening = namespace.inside(space, lambda: socket.create_server(there, backlog=4000))
    child = watched()
    namespace.inside(pair, lambda: connects_module.flood(there[0], 600, 1))
    sockets = connects(pair, 50, there)
    until = time.monotonic() + 30
    while connected(sockets) < 50 and time.monotonic() < until:
        time.sleep(0.1)
    assert connected(sockets) == 50
    set_to = [one["value"] for one in actions(child) if one["action"] == "set"]
    assert set_to == ([] if cookies else [1024])
    for one in (listening, *sockets):
        one.close()


SLOW = """
import socket, sys
# each gets a copy of each packet, before the stack does
taps = [socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3)) for _ in range(60)]
reader = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
reader.setsockopt(socket.SOL_SOCKET, 33, 1 << 28)
reader.bind(("198.18.7.1", 7001))
print("ready", flush=True)
while True:
    reader.recv(65535)
"""


@root
@pytest.mark.skipif((os.cpu_count() or 1) < 2, reason="packets are handed from one CPU to another")
def test_a_backlog_that_overflows_is_mended(
    space: str,
    pair: str,
    served: Callable[..., subprocess.Popen[str]],
    watched: Callable[..., subprocess.Popen[str]],
) -> None:
    def hand_over() -> None:
        for path in Path("/sys/class/net/v0/queues").glob("rx-*/rps_cpus"):
            path.write_text("2")

    def send() -> None:
        os.sched_setaffinity(0, {0})
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
            sender.setsockopt(socket.SOL_SOCKET, 32, 1 << 26)  # SO_SNDBUFFORCE: it is not to wait
            sender.setsockopt(socket.IPPROTO_UDP, 103, 1000)  # UDP_SEGMENT: many packets at once
            for _ in range(50):
                with contextlib.suppress(OSError):
                    sender.sendto(bytes(60000), ("198.18.7.1", 7001))

    def dropped() -> int:
        return sum(
            int(line.split()[1], 16) for line in Path("/proc/net/softnet_stat").read_text().splitlines()
        )

    access.within(space, hand_over)
    served(SLOW)
    before = namespace.read_sysctl(None, "net.core.netdev_max_backlog")
    child = watched("--global")
    lost = [dropped()]
    until = time.monotonic() + 30
    while time.monotonic() < until and not (len(lost) > 8 and lost[-1] == lost[-5] > lost[0]):
        namespace.inside(pair, send)
        time.sleep(0.3)
        lost.append(dropped())
    assert lost[-1] == lost[-5] > lost[0], (lost[-5:], actions(child))
    done = [one["name"] for one in actions(child) if one["action"] != "say"]
    assert "net.core.netdev_max_backlog" in done
    assert namespace.read_sysctl(None, "net.core.netdev_max_backlog") == before


@root
def test_a_namespace_that_goes_ends_the_watch(
    watched: Callable[..., subprocess.Popen[str]], space: str
) -> None:
    child = watched()
    namespace.remove(space)
    _, err = child.communicate(timeout=30)
    assert child.returncode == 91
    assert "ND-91-26" in err
    namespace.create(space)
