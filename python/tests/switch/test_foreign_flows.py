"""Flows that others have put into the switch of a chain: named, whether or not a conversation meets them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from netdyno.switch.chain import layout
from netdyno.switch.chain.lab import ChainLab
from netdyno.switch.chain.sight import unread
from netdyno.switch.chain.spec import checked
from netdyno.switch.chain.verify import Verification, verify
from netdyno.switch.controller.foreign import Listed, listed
from netdyno.switch.driver import DRIVERS

from ..conftest import root

CHAIN: dict[str, Any] = {
    "vnfs": {"own": {"kind": "firewall"}, "br": {"kind": "bridge"}},
    "chain": ["own", "br"],
    "classes": {"dns": {"match": {"protocol": "udp", "port": 53}, "chain": ["br"]}},
}


def test_what_the_switch_lists_is_read() -> None:
    lines = [
        "NXST_FLOW reply (xid=0x4):",
        " cookie=0x7, duration=1.5s, table=0, n_packets=3, n_bytes=180, idle_age=2, priority=1001,udp,"
        "in_port=1,tp_dst=53 actions=output:3",
        ' cookie=0xdead0001, duration=2s, table=0, n_packets=0, n_bytes=0, send_flow_rem in_port="x" '
        "actions=drop",
        " cookie=0x9, duration=2s, table=1, n_packets=0, n_bytes=0, priority=0 actions=drop",
        " cookie=0x0, duration=2s, table=0, n_packets=0, n_bytes=0, actions=NORMAL",
    ]
    assert list(listed(lines)) == [
        Listed(7, 1001, "1", ("udp", "tp_dst=53"), "output:3", 3),
        Listed(0xDEAD0001, 32_768, "x", (), "drop", 0),
        Listed(0, 32_768, "", (), "NORMAL", 0),
    ]
    assert str(Listed(7, 1, "2", ("udp",), "drop", 0)) == "cookie=0x7, priority=1, in_port=2,udp → drop"
    assert "any → NORMAL" in str(Listed(0, 1, "", (), "NORMAL", 0))


def test_errors_that_quote_a_datagram_are_none_of_it() -> None:
    mark = b"netdyno-chain 0123456789abcdef there"
    ip = b"\x45\0" + bytes(6) + b"\x40%c" + bytes(10)
    ether, mpls = bytes(12) + b"\x08\0", bytes(12) + b"\x88\x47"
    assert not unread(ether + ip % 1 + mark), "port unreachable, of an end that has closed its socket"
    assert not unread(bytes(12) + b"\x86\xdd" + b"\x60" + bytes(5) + b"\x3a\x40" + bytes(32) + mark)
    assert unread(ether + ip % 47 + mark) and unread(mpls + bytes(4) + ip % 17 + mark)
    assert not unread(mpls + bytes(60))


@pytest.fixture
def lab() -> Iterator[ChainLab]:
    if why := DRIVERS["ovs-netdev"].missing():
        pytest.skip(why)
    with ChainLab(checked(CHAIN, "x")) as made:
        yield made


def add(lab: ChainLab, flow: str) -> None:
    """Write a flow as another would; `@host` is a port."""
    ports, numbers = layout.switch_ports(lab.chain), lab.switch.numbers
    for name in sorted(ports, key=len, reverse=True):
        flow = flow.replace(f"@{name}", str(numbers[ports[name]]))
    lab.switch._running().ofctl("add-flow", "br0", flow)  # type: ignore[attr-defined]


def with_flow(lab: ChainLab, flow: str) -> Verification:
    add(lab, flow)
    return verify(lab, 1)


@root
@pytest.mark.drawn
def test_those_that_packets_meet_first_are_named(lab: ChainLab) -> None:
    # none of these is in the way: a chain's packets meet its rules before
    for flow in (
        "cookie=0x70,priority=1,actions=drop",
        "cookie=0x71,priority=60000,in_port=999,actions=drop",
        "cookie=0x72,priority=60000,dl_type=0x88cc,actions=drop",
    ):
        add(lab, flow)
    whole = verify(lab)
    assert whole.good and not whole.foreign, whole.first_fault
    # no conversation meets it
    found = with_flow(lab, "cookie=0x77,priority=60000,in_port=@client,tcp,tp_dst=80,actions=output:@server")
    assert not found.good and all(one.good for one in found.directions), found.first_fault
    assert [one.cookie for one in found.foreign] == [0x77] and "cookie=0x77" in found.first_fault
    # it does the same as a rule of the chain, has its cookie, and takes its packets
    lab.switch._running().ofctl("del-flows", "br0", "cookie=0x77/-1")  # type: ignore[attr-defined]
    found = with_flow(lab, "cookie=1,priority=50000,in_port=@client,udp,actions=output:@own-in,LOCAL")
    assert [(one.cookie, one.priority) for one in found.foreign] == [(1, 50_000)], found.foreign
    assert not found.good


@root
@pytest.mark.drawn
def test_a_copy_in_headers_that_are_not_read_is_told(lab: ChainLab) -> None:
    actions = "output:@own-in,push_mpls:0x8847,output:@server"
    found = with_flow(lab, f"cookie=0x77,priority=60000,in_port=@client,udp,actions={actions}")
    wrong = [str(one.fault) for one in found.directions if one.fault]
    assert any(
        "server receives a packet of udp in headers that are none of its path's" in one for one in wrong
    )
