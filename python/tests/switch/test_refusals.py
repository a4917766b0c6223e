"""What the switch of a chain drops where it comes in: rules, an ordinary socket as witness, and mutants."""

from __future__ import annotations

import socket
from typing import Any

import pytest

from netdyno.switch.chain import layout, steering
from netdyno.switch.chain.lab import ChainLab
from netdyno.switch.chain.mutate import mutants
from netdyno.switch.chain.spec import checked
from netdyno.switch.chain.verify import verify
from netdyno.switch.driver import DRIVERS
from netdyno.switch.tunnel import REMOTE
from netdyno.system import namespace

from ..conftest import root

BLOCKED: dict[str, Any] = {
    "vnfs": {"br": {"kind": "bridge"}, "fw": {"kind": "firewall", "options": {"deny": ["udp/53"]}}},
    "chain": ["br"],
    "classes": {"dns": {"match": {"protocol": "udp", "port": 53}, "chain": ["br", "fw"], "blocked_by": "fw"}},
}


def refused(plain: dict[str, Any]) -> list[steering.Rule]:
    return [one for one in steering.rules(checked(plain, "x")) if one.refuses]


def test_the_way_back_of_a_blocked_class_is_dropped_at_the_server() -> None:
    rules = refused(BLOCKED | {"ipv6": True})
    assert [dict(one.flow.match) for one in rules] == [
        {"udp": "", "tp_src": "53"}, {"udp6": "", "tp_src": "53"},
    ]  # fmt: skip
    assert {(one.traffic, one.direction, str(one.source), one.flow.in_port) for one in rules} == {
        ("dns", "reverse", "server", "server")
    }
    assert all(one.flow.actions == [] and one.flow.priority > 100 for one in rules)
    far = refused(BLOCKED | {"tunnel": {"kind": "vxlan", "server_side": []}})
    assert [one.switch for one in far] == [REMOTE]
    passing = BLOCKED["classes"]["dns"] | {"blocked_by": None}
    assert not [one for one in refused(BLOCKED | {"classes": {"dns": passing}}) if one.traffic == "dns"]


@pytest.fixture
def needs_ovs() -> None:
    if why := DRIVERS["ovs-netdev"].missing():
        pytest.skip(why)


def received(lab: ChainLab, port: int) -> bool:
    """Whether the client gets a datagram that the server sends from a port."""
    with (
        namespace.inside(lab.network.namespace("client"), datagrams) as client,
        namespace.inside(lab.network.namespace("server"), datagrams) as server,
    ):
        client.bind(("", 7777))
        client.settimeout(1.0)
        server.bind(("", port))
        server.sendto(b"from the server", (layout.addresses(lab.chain).client, 7777))
        try:
            return client.recv(99) == b"from the server"
        except TimeoutError:
            return False


def datagrams() -> socket.socket:
    return socket.socket(socket.AF_INET, socket.SOCK_DGRAM)


@root
def test_nothing_of_a_blocked_class_comes_from_the_server(needs_ovs: None) -> None:
    with ChainLab(checked(BLOCKED, "x")) as lab:
        found = verify(lab)
        assert found.good, found.first_fault
        (row,) = [one for one in found.directions if (one.traffic, one.direction) == ("dns", "reverse")]
        assert row.refused and not row.cut and row.packets == 1
        assert not received(lab, 53) and received(lab, 54)
        assert_named(lab)


def assert_named(lab: ChainLab) -> None:
    """Each rule that drops, deleted or leading somewhere, is named."""
    numbers = {one.flow.cookie for one in lab.rules if one.refuses}
    broken = [one for one in mutants(lab.rules) if one.changed <= numbers]
    assert {number for one in broken for number in one.changed} == numbers
    for one in broken:
        lab.program(one.rules)
        assert verify(lab, 1).named == one.changed, one.name
    lab.program(lab.rules)
