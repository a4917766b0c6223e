"""Paths of a comparison of switches, measured: delay, jitter and loss are those that were set."""

from __future__ import annotations

import os
import socket
import statistics
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from inconclusive import Verdict
from lab import Lab, root
from scipy import stats

from netdyno.lab.dut import DutSite
from netdyno.switch.bench import Spec, SwitchBench
from netdyno.switch.driver import DRIVERS
from netdyno.system import namespace

pytestmark = [
    root,
    pytest.mark.skipif(not Path("/dev/net/tun").exists(), reason="there is no /dev/net/tun"),
]
HOSTS = {"client": "198.18.0.1", "server": "198.18.0.2"}
PORT = 7000
SO_TIMESTAMPNS = 35
"""The kernel says when it got a datagram (`asm-generic/socket.h`)."""
PRESETS = {"metro": 0.5e-3, "daejeon-seoul": 1.2e-3, "cross-country": 40e-3, "geo": 260e-3, "lte": 35e-3}
"""Delay one way of each, seconds; that of lte varies about it."""
LATE = 5e-3
"""Seconds that programs of this machine may add to a median."""
LOSS = 0.05
CHANCE = 1e-6
"""How seldom a path that is right is called wrong."""


@contextmanager
def bench(lab: Lab, monkeypatch: pytest.MonkeyPatch, path: Any) -> Iterator[SwitchBench]:
    """The client's path and a bridge behind it."""
    for name in ("NETDYNO_STATE", "NETDYNO_RUNS", "NETDYNO_DAEMON"):
        monkeypatch.setenv(name, lab.environment[name])
    with SwitchBench(Spec(path=path)) as made, ExitStack() as stack:
        assert made.network
        one = DRIVERS["linux-bridge"](DutSite("switch", "", made.network.namespace("switch")))
        made._offloads(one)
        stack.callback(one.teardown)
        one.setup()
        yield made


def met(near: socket.socket, far: socket.socket, to: str) -> None:
    """Have one datagram arrive, and wait for those that may be on their way."""
    far.settimeout(1)
    for _ in range(20):
        near.sendto(b"first", (HOSTS[to], PORT))
        try:
            while True:
                far.recv(64)
                far.settimeout(0.3)
        except TimeoutError:
            if far.gettimeout() == 0.3:
                far.settimeout(5)
                return
    raise AssertionError("no datagram arrives")


def datagrams(made: SwitchBench, away: str, to: str, count: int, every: float) -> list[float]:
    """Delays one way of those that arrived, seconds: both ends read the same clock."""
    assert made.network

    def opened() -> socket.socket:
        one = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        one.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
        return one

    near = namespace.inside(made.network.namespace(away), opened)
    far = namespace.inside(made.network.namespace(to), opened)
    with near, far:
        far.bind((HOSTS[to], PORT))
        # both ends know each other's link address before what is measured
        met(near, far, to)
        sent: dict[int, float] = {}

        def send() -> None:
            for number in range(count):
                sent[number] = time.time()
                near.sendto(number.to_bytes(4), (HOSTS[to], PORT))
                time.sleep(every)

        sender = threading.Thread(target=send)
        sender.start()
        delays = []
        try:
            while True:
                data, about, *_ = far.recvmsg(64, 64)
                # when the kernel got it, and not this program
                seconds, nanoseconds = (int.from_bytes(about[0][2][i : i + 8], "little") for i in (0, 8))
                delays.append(seconds + nanoseconds / 1e9 - sent[int.from_bytes(data)])
        except TimeoutError:
            sender.join()
    return delays


@pytest.mark.limit(120)
@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_is_as_late_as_it_says(
    name: str, lab: Lab, verdict: Verdict, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = PRESETS[name]
    with bench(lab, monkeypatch, name) as made:
        for away, to in (("client", "server"), ("server", "client")):
            found = datagrams(made, away, to, 100, 0.02)
            assert len(found) == 100
            if name != "lte":
                # no packet comes earlier, whatever the machine does
                assert min(found) >= wanted - 1e-6
            median = statistics.median(found)
            print(f"{name}, from {away}: {wanted * 1e3:g} ms set, median {median * 1e3:.3f} ms")
            if not wanted - LATE < median < wanted + LATE:
                assert median > wanted, f"{median} s is less than {wanted} s"
                verdict.processors_were_free()
                raise AssertionError(f"{median} s is more than {wanted} s")


@pytest.mark.limit(200)
def test_jitter_and_loss_are_those_that_were_set(
    lab: Lab, verdict: Verdict, monkeypatch: pytest.MonkeyPatch
) -> None:
    # each packet by itself: a later one may overtake
    way = {
        "delay": {"uniform": {"from": "20ms", "to": "60ms"}},
        "loss": {"independent": f"{LOSS:.0%}"},
        "overtaking": True,
    }
    count = 2000
    with bench(lab, monkeypatch, {"a_to_b": way, "b_to_a": way}) as made:
        for away, to in (("client", "server"), ("server", "client")):
            found = datagrams(made, away, to, count, 0.005)
            # ARP may be lost, and come again: nothing else takes packets but the path
            low, high = stats.binom.interval(1 - CHANCE, count, LOSS)
            lost = count - len(found)
            assert low <= lost <= high, f"{lost} of {count} lost"
            assert min(found) >= 20e-3 - 1e-6
            deviation = statistics.stdev(found)
            distance, _ = stats.kstest(found, "uniform", args=(20e-3, 40e-3))
            print(
                f"from {away}: {lost / count:.2%} lost, deviation {deviation * 1e3:.2f} ms, distance {distance:.3f}"
            )
            if distance > 0.1:
                verdict.processors_were_free()
                raise AssertionError(f"the delays are not spread as set: {distance}")
            assert deviation == pytest.approx(40e-3 / 12**0.5, rel=0.1)
    assert os.environ["NETDYNO_STATE"] == str(lab.state)
