"""A chain re-programmed under traffic: which rules stay for a while, and that nothing is lost."""

from __future__ import annotations

import json
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from netdyno.cli.app import call
from netdyno.switch.chain import connections, reprogram, steering
from netdyno.switch.chain.bench import shortened
from netdyno.switch.chain.connections import Datagrams
from netdyno.switch.chain.lab import ChainLab
from netdyno.switch.chain.reprogram import OLD, before, between
from netdyno.switch.chain.spec import checked
from netdyno.switch.chain.talk import free_port
from netdyno.switch.driver import DRIVERS

from ..conftest import root
from .test_chain import BRIDGES

CHAIN = checked(BRIDGES, "x")


def test_old_rules_of_functions_stay_and_those_of_ends_do_not() -> None:
    old, new = steering.rules(CHAIN), steering.rules(shortened(CHAIN, CHAIN.chain[:1]))
    stay = [one for one in between(old, new) if one.flow.cookie >= OLD]
    assert {str(one.source) for one in stay} == {"b.in", "b.out"}
    assert between(old, new)[: len(new)] == new and between(new, old) == old
    assert {str(one.source) for one in between(old, []) if one.flow.cookie >= OLD} == {
        "a.in",
        "a.out",
        "b.in",
        "b.out",
    }


def test_two_switches_are_ready_for_each_other_before_packets_take_the_new_path() -> None:
    """Packets in the tunnel have a header with the whole chain, and none with one function."""
    plain = BRIDGES | {"steering": "nsh", "tunnel": {"kind": "vxlan", "server_side": ["b"]}}
    chain = checked(plain, "x")
    old, new = steering.rules(shortened(chain, chain.chain[:1])), steering.rules(chain)
    ready = before(old, new)
    assert [one.source for one in ready[: len(old)]] == [one.source for one in old]
    assert all(one.flow.cookie >= OLD for one in ready[: len(old)])
    arriving = [one.flow.match.get("nsh_si") for one in ready if str(one.source) == "switch_remote.tunnel"]
    assert arriving == [None, "254"], "frames as they are, and those that the new rules will send"
    assert {str(one.source) for one in ready[len(old) :]}.isdisjoint({"client", "server"})
    keys = [(one.flow.priority, one.flow.in_port, tuple(one.flow.match.items())) for one in ready]
    assert len(set(keys)) == len(keys), "no rule takes the place of another"


@root
def test_no_datagram_is_lost(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    if why := DRIVERS["ovs-netdev"].missing():
        pytest.skip(why)
    file = tmp_path / "two.yaml"
    file.write_text(json.dumps(BRIDGES))
    assert call(["chain", "reprogram", str(file), "--times", "1", "--controller", "embedded", "--json"]) == 0
    found = json.loads(capfd.readouterr().out)
    assert [one["functions"] for one in found["changes"]] == [1]
    assert found["datagrams"]["sent"] > 4 and found["datagrams"]["lost"] == 0 and not found["lost"]
    nat = tmp_path / "nat.yaml"
    nat.write_text(json.dumps({"vnfs": {"n": {"kind": "nat"}}, "chain": ["n"]}))
    assert call(["chain", "reprogram", str(nat)]) == 104


@root
def test_a_loss_is_counted() -> None:
    """Without rules nothing passes: each sender loses what it has under way."""
    if why := DRIVERS["ovs-netdev"].missing():
        pytest.skip(why)
    with ChainLab(CHAIN) as lab:
        talking = Datagrams(lab, free_port(CHAIN), count=2)
        lab.program([])
        found = talking.finish()
    assert found.lost == 2 < found.sent


@root
def test_echoes_over_a_long_path_are_awaited(monkeypatch: pytest.MonkeyPatch) -> None:
    """The round trip is longer than what a local one is given."""
    if why := DRIVERS["ovs-netdev"].missing():
        pytest.skip(why)
    monkeypatch.setattr(connections, "GONE", 0.1)
    way = {"delay": {"constant": "230ms"}}
    with ChainLab(CHAIN, {"client": {"a_to_b": way, "b_to_a": way}}) as lab:
        talking = Datagrams(lab, free_port(CHAIN), count=2)
        time.sleep(1)
        found = talking.finish()
    assert found.sent and not found.lost and found.longest > 0.46


def test_old_rules_stay_while_packets_may_be_in_transit(monkeypatch: pytest.MonkeyPatch) -> None:
    """A packet between two old rules matches none for as long as its path takes."""
    begin, now, programmed = 100.0, 100.0, list[tuple[float, int]]()

    def sleep(seconds: float) -> None:
        nonlocal now
        now += seconds

    def matched() -> dict[int, int]:
        # a packet meets an old rule as it leaves, and another 0.4 s later
        return {OLD + 1: 1 + (now > begin + 0.4)}

    def program(rules: list[Any]) -> None:
        programmed.append((now - begin, len(rules)))

    lab: Any = SimpleNamespace(
        switches=["a"], flow_packets=matched, transit=0.5, program=program, vnfs={},
        network=SimpleNamespace(described=list),
    )  # fmt: skip
    monkeypatch.setattr(reprogram, "time", SimpleNamespace(monotonic=lambda: now, sleep=sleep))
    _, drained = reprogram.change(lab, steering.rules(CHAIN), [])
    assert drained and [count for _, count in programmed] == [4, 0]
    assert programmed[-1][0] > 0.9, "it was met at 0.4 s, and may be on its way for another 0.5 s"
