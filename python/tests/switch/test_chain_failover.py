"""Functions of a chain that fail: detected, bypassed or cut off as chosen, put back; a slow one is not blamed."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from netdyno.cli.app import call
from netdyno.errors import Error
from netdyno.lab import impairment
from netdyno.switch.chain import failover, layout
from netdyno.switch.chain.failover import FailoverReport
from netdyno.switch.chain.lab import ChainLab
from netdyno.switch.chain.liveness import LivenessEvent, Monitor, guards
from netdyno.switch.chain.spec import checked
from netdyno.switch.chain.steering import CLIENT
from netdyno.switch.chain.talk import free_port
from netdyno.switch.chain.verify import DirectionResult, Verification
from netdyno.switch.driver import DRIVERS
from netdyno.system import namespace

from ..conftest import root

PLAIN: dict[str, Any] = {
    "liveness": {"interval": "20ms", "misses": 3},
    "controller": "embedded",
    "vnfs": {
        "slow": {
            "kind": "limiter", "options": {"rate": "10Mbit/s", "queue": 20_000}, "on_failure": "open",
            "replicas": 2,
        },
        "look": {"kind": "dpi", "on_failure": "open"},
        "nat": {"kind": "nat", "on_failure": "closed"},
    },
    "chain": ["slow", "look", "nat"],
}  # fmt: skip


@pytest.fixture(scope="module")
def lab() -> Iterator[ChainLab]:
    if why := DRIVERS["ovs-netdev"].missing():
        pytest.skip(why)
    with ChainLab(checked(PLAIN, "x")) as made:
        yield made


@root
def test_a_slow_function_is_not_blamed(lab: ChainLab) -> None:
    """Its queue is full all the time: probes are lost and late, and it forwards."""
    to = (layout.addresses(lab.chain).server, free_port(lab.chain))
    with (
        namespace.inside(
            lab.network.namespace(CLIENT), lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        ) as flood,
        Monitor(lab) as monitor,
    ):
        until = time.monotonic() + 1
        while time.monotonic() < until:
            for _ in range(20):
                flood.sendto(bytes(1400), to)
            time.sleep(0.005)
        assert monitor.wait(lambda one: True, 0.1) is None
    assert not lab.failed


@root
def test_a_replica_and_a_program_that_end(lab: ChainLab) -> None:
    """Each by its own sign; the switch has no flows to them then, and those of the probes go with the monitor."""
    guard = {one.cookie for one in guards()}
    with Monitor(lab) as monitor:
        assert guard < set(lab.switch.flow_cookies())
        lab.vnfs["slow_1"].fail()
        first = monitor.wait(lambda one: one.host == "slow_1", 30)
        assert first and (first.cause, first.result) == ("probes lost", "its flows moved to other replicas")
        lab.vnfs["slow_2"].run("ip", "link", "set", "in", "down")
        second = monitor.wait(lambda one: one.host == "slow_2", 30)
        assert second and (second.cause, second.result) == ("port down", "bypassed")
        assert not {one.host for rule in lab.rules for one in rule.targets} & {"slow_1", "slow_2"}
        lab.vnfs["slow_1"].repair()
        lab.vnfs["slow_2"].run("ip", "link", "set", "in", "up")
        for host in ("slow_1", "slow_2"):
            assert monitor.wait(lambda one, host=host: one.host == host and not one.failed, 30)  # type: ignore[misc]
        assert not lab.failed
    lab.program(lab.rules)
    assert not guard & set(lab.switch.flow_cookies())


@root
def test_a_nat_that_fails_cuts_the_chain(lab: ChainLab) -> None:
    """Proved, repaired, proved again; then the DPI's program is killed, which stays so."""
    found = failover.run(lab, "x", "nat", "stop")
    assert not found.first_fault and found.failure.result == "chain cut" and found.lost
    assert found.detected <= found.confirmed and found.restored and found.after
    assert [one.cut for one in found.during.directions] == [True] * 3, "ARP, UDP, TCP"
    victim = lab.vnfs["look"].process
    assert victim
    with Monitor(lab) as monitor:
        os.killpg(victim.pid, signal.SIGKILL)
        event = monitor.wait(lambda one: one.host == "look", 30)
    assert event and (event.cause, event.result) == ("program ended", "bypassed")
    assert not any(one.mirrors for one in lab.rules) and not lab.dead()
    lab.without(frozenset())
    assert "look" in lab.dead()


def test_what_cannot_fail_is_told(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "x.yaml"
    file.write_text(json.dumps(PLAIN | {"vnfs": PLAIN["vnfs"] | {"slow": {"kind": "bridge"}}}))
    assert call(["chain", "failover", str(file), "--function", "slow"]) == 104
    assert "changes no rules" in capfd.readouterr().err
    assert call(["chain", "failover", str(file), "--function", "fast"]) == 104
    assert "There are: slow, look, nat" in capfd.readouterr().err
    assert failover.chosen(checked(PLAIN, "x"), "slow") == "slow_1"
    with pytest.raises(Error):
        failover.chosen(checked(PLAIN, "x"), "slow_3")


def test_what_goes_wrong_is_told() -> None:
    good = Verification([], 0.1, {})
    bad = Verification([DirectionResult("x", "forward", "tcp", [], 0, untested="lost")], 0.1, {})

    def report(result: str, outage: float | None, during: Verification, after: Verification) -> str:
        event = LivenessEvent("b", True, "probes lost", 1.0, 2.0, result)
        return FailoverReport(
            "b", "stop", "open", event, 0.1, 0.2, 9, 1, outage, during, 1.0, after
        ).first_fault

    assert not report("bypassed", 0.3, good, good) and not report("chain cut", None, good, good)
    assert "no datagram" in report("bypassed", None, good, good)
    assert "with b failed" in report("bypassed", 0.3, bad, good)
    assert "after the repair" in report("bypassed", 0.3, good, bad)


@root
def test_a_flow_of_others_that_comes_during_a_failover_is_told() -> None:
    """Both proofs know of it, and so must what is concluded from them."""
    if why := DRIVERS["ovs-netdev"].missing():
        pytest.skip(why)
    vnfs = {"a": {"kind": "bridge", "on_failure": "open"}, "b": {"kind": "bridge"}}
    with ChainLab(checked({"vnfs": vnfs, "chain": ["a", "b"], "controller": "embedded"}, "x")) as lab:

        def told(said: str) -> None:
            if not said.startswith("verified"):
                numbers = lab.switch.numbers
                match = f"cookie=0x77,priority=60000,in_port={numbers['p0']},tcp,tp_dst=80"
                command = lab.switch.commands()["flows"].replace("dump-flows", "add-flow").split()
                subprocess.run([*command, f"{match},actions=output:{numbers['p1']}"], check=True)

        found = failover.run(lab, "x", "a", "stop", told)
    assert found.first_fault.startswith("with a failed, a flow that is not the chain's takes packets")
    proof = found.document()["during"]
    assert not proof["good"] and "0x77" in proof["foreign_flows"][0]


@root
def test_datagrams_of_a_long_path_are_awaited() -> None:
    """The round trip is longer than what a local one is given."""
    if why := DRIVERS["ovs-netdev"].missing():
        pytest.skip(why)
    vnfs = {"a": {"kind": "bridge", "on_failure": "open"}}
    way = {"delay": {"constant": "230ms"}}
    with ChainLab(
        checked({"vnfs": vnfs, "chain": ["a"]}, "x"), {CLIENT: dict.fromkeys(impairment.WAYS, way)}
    ) as lab:
        datagrams = failover.NumberedDatagrams(lab)
        datagrams.await_echo(30)
        time.sleep(1)
        sent, lost, outage = datagrams.finish()
    assert sent > 50 and outage is not None and lost <= sent // 20, "those of the last 0.46 s are awaited"
