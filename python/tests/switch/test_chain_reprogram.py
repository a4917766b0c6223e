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
from netdyno.switch.chain.reprogram import OLD, between
from netdyno.switch.chain.spec import checked
from netdyno.switch.chain.talk import free_port
from netdyno.switch.driver import DRIVERS

from ..conftest import root
from .test_chain import BRIDGES

CHAIN = checked(BRIDGES, "x")


def test_old_rules_of_functions_stay_and_those_of_ends_do_not() -> None:
    old, new = steering.rules(CHAIN), steering.rules(shortened(CHAIN, 1))
    stay = [one for one in between(old, new) if one.flow.cookie >= OLD]
    assert {str(one.source) for one in stay} == {"b.in", "b.out"}
    assert between(old, new)[: len(new)] == new and between(new, old) == old
    assert {str(one.source) for one in between(old, []) if one.flow.cookie >= OLD} == {
        "a.in",
        "a.out",
        "b.in",
        "b.out",
    }


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
