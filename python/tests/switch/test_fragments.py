"""Fragments of a class with a port: the switch drops them, and `verify` tells where it does not."""

from __future__ import annotations

from typing import Any

import pytest

from netdyno.switch.chain.lab import ChainLab
from netdyno.switch.chain.spec import checked
from netdyno.switch.chain.verify import verify
from netdyno.switch.driver import DRIVERS

from ..conftest import root

CHAIN: dict[str, Any] = {
    "vnfs": {"fw": {"kind": "firewall", "options": {"deny": ["udp/53"]}}, "br": {"kind": "bridge"}},
    "chain": ["br"],
    "ipv6": True,
    "classes": {
        "secret": {"match": {"protocol": "udp", "port": 53}, "chain": ["fw"], "blocked_by": "fw"},
        "voice": {"match": {"dscp": 46}, "chain": ["fw", "br"]},
    },
}


@root
@pytest.mark.drawn
def test_no_part_of_a_class_takes_another_path() -> None:
    if why := DRIVERS["ovs-netdev"].missing():
        pytest.skip(why)
    with ChainLab(checked(CHAIN, "x")) as lab:
        found = verify(lab)
        assert found.good, found.first_fault
        lab.switch.drop_fragments(False)
        found = verify(lab, 1)
        wrong = {(one.traffic, one.protocol): str(one.fault) for one in found.directions if one.fault}
        assert set(wrong) == {("secret", "udp"), ("secret", "udp6")}, wrong
        assert "br.in receives a fragment of a datagram to port 53" in wrong["secret", "udp"]


@root
@pytest.mark.drawn
def test_no_part_of_a_blocked_class_reaches_the_server() -> None:
    """The firewall denies its first fragment alone, and lets the others through."""
    if why := DRIVERS["ovs-netdev"].missing():
        pytest.skip(why)
    alone = {
        "vnfs": {"fw": CHAIN["vnfs"]["fw"]}, "chain": [], "classes": {"secret": CHAIN["classes"]["secret"]},
    }  # fmt: skip
    with ChainLab(checked(alone, "x")) as lab:
        assert verify(lab).good
        lab.switch.drop_fragments(False)
        wrong = {
            (one.traffic, one.protocol): str(one.fault) for one in verify(lab, 1).directions if one.fault
        }
        assert set(wrong) == {("secret", "udp")}, wrong
        assert "server receives a fragment of a datagram to port 53" in wrong["secret", "udp"]
