"""What the switch of a chain drops where it comes in: rules, an ordinary socket as witness, and mutants."""

from __future__ import annotations

import socket
import struct
from typing import Any

import pytest

from netdyno.switch.chain import layout, steering
from netdyno.switch.chain.capture import TP_STATUS_VLAN_TPID_VALID, TP_STATUS_VLAN_VALID, vlan_tag
from netdyno.switch.chain.lab import ChainLab
from netdyno.switch.chain.mutate import mutants
from netdyno.switch.chain.sight import key
from netdyno.switch.chain.spec import checked
from netdyno.switch.chain.steering import TWO_TAGS
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
    return [one for one in steering.rules(checked(plain, "x")) if one.refuses and one.traffic != TWO_TAGS]


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
    assert not refused(BLOCKED | {"classes": {"dns": passing}})


def test_a_second_tag_is_dropped_where_there_are_classes() -> None:
    rules = [one for one in steering.rules(checked(BLOCKED, "x")) if one.traffic == TWO_TAGS]
    assert [(one.direction, one.flow.in_port, dict(one.flow.match)) for one in rules] == [
        (direction, end, {"dl_type": kind})
        for direction, end in (("forward", "client"), ("reverse", "server"))
        for kind in ("0x8100", "0x88a8")
    ]
    of_classes = [one.flow.priority for one in steering.rules(checked(BLOCKED, "x")) if one.traffic == "dns"]
    assert {one.flow.priority for one in rules} == {1500} and max(of_classes) < 1500 < steering.TAGGED
    plain = {"vnfs": {"br": {"kind": "bridge"}}, "chain": ["br"]}
    assert not any(one.refuses for one in steering.rules(checked(plain, "x")))


def test_tags_are_read() -> None:
    inner = b"\x08\x00" + bytes([0x45, 0, 0, 29, *bytes(5), 17]) + bytes(18) + b"x"
    for tags in ("88a8000581000007", "8100000588a80007", "88a80005", "810000058100000788a80009"):
        assert key(bytes(12) + bytes.fromhex(tags) + inner) == ("udp", b"x"), tags
    status = TP_STATUS_VLAN_VALID | TP_STATUS_VLAN_TPID_VALID
    told = struct.pack("IIIHHHH", status, 0, 0, 0, 0, 5, 0x88A8)
    assert vlan_tag(told) == bytes.fromhex("88a80005")
    assert vlan_tag(struct.pack("I", TP_STATUS_VLAN_VALID) + told[4:]) == bytes.fromhex("81000005")
    assert vlan_tag(struct.pack("I", 0) + told[4:]) == vlan_tag(b"") == b""


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
@pytest.mark.parametrize("steering", ["in_port", "vlan", "nsh"])
def test_what_is_to_be_dropped_reaches_nobody(needs_ovs: None, steering: str) -> None:
    with ChainLab(checked(BLOCKED | {"steering": steering}, "x")) as lab:
        found = verify(lab)
        assert found.good, found.first_fault
        (row,) = [one for one in found.directions if (one.traffic, one.direction) == ("dns", "reverse")]
        assert row.refused and not row.cut and row.packets == 1
        assert not received(lab, 53) and received(lab, 54)
        assert passed(lab, "81000005", "88a80005", "8100000581000007", "8100000588a80007", "88a8000581000007",
                      "810000058100000781000009") == ["81000005", "88a80005"]  # fmt: skip
        assert_named(lab)


def passed(lab: ChainLab, *tags: str) -> list[str]:
    """With which VLAN tags datagrams of no class reach the server."""
    head = struct.pack("!BBHHHBBH4s4s", 0x45, 0, 64, 0, 0, 64, 17, 0, bytes(4), bytes(4))
    header = struct.pack("!HHHH", 30_000, 9_999, 44, 0)
    to = bytes.fromhex(lab.mac("server", "eth0").replace(":", ""))
    with (
        namespace.inside(lab.network.namespace("server"), frames) as server,
        namespace.inside(lab.network.namespace("client"), frames) as client,
    ):
        for one in tags:
            text = b"tags " + one.encode().ljust(31)
            client.send(to + client.getsockname()[4] + bytes.fromhex(one) + b"\x08\0" + head + header + text)
        server.settimeout(1.0)
        found = set()
        try:
            while len(found) < len(tags):
                frame = server.recv(2048)
                found |= {one for one in tags if b"tags " + one.encode() + b" " in frame}
        except TimeoutError:
            return [one for one in tags if one in found]
    return list(tags)


def frames() -> socket.socket:
    made = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
    made.bind(("eth0", 3))
    return made


def assert_named(lab: ChainLab) -> None:
    """Each rule that drops, deleted or leading somewhere, is named."""
    numbers = {one.flow.cookie for one in lab.rules if one.refuses}
    broken = [one for one in mutants(lab.rules) if one.changed <= numbers]
    assert {number for one in broken for number in one.changed} == numbers
    for one in broken:
        lab.program(one.rules)
        assert verify(lab, 1).named == one.changed, one.name
    lab.program(lab.rules)
