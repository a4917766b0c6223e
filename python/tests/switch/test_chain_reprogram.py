"""A chain re-programmed under traffic: which rules stay for a while, and that nothing is lost."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from netdyno.cli.app import call
from netdyno.switch.chain import steering
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
