"""Chains steered by VLAN tags and network service headers, and replicas behind groups: rules, and real packets."""

from __future__ import annotations

import copy
import struct
from collections.abc import Iterator
from typing import Any

import pytest

from netdyno.errors import Error
from netdyno.switch.chain import steering
from netdyno.switch.chain.bench import shortened
from netdyno.switch.chain.lab import ChainLab
from netdyno.switch.chain.mutate import Mutant, mutants
from netdyno.switch.chain.replicas import Choices, disagreement
from netdyno.switch.chain.reprogram import between
from netdyno.switch.chain.sight import Sighting, encapsulation, judge, key, server_port
from netdyno.switch.chain.spec import checked
from netdyno.switch.chain.steering import CLIENT, Port, Rule, expected, of_version
from netdyno.switch.chain.talk import NeighbourDiscovery
from netdyno.switch.chain.verify import verify
from netdyno.switch.driver import DRIVERS
from netdyno.switch.openflow.action import DecNshTtl, EncapNsh, PopVlan, PushVlan, Select, SetNsh

from ..conftest import root

PLAIN: dict[str, Any] = {
    "vnfs": {
        "a": {"kind": "bridge"},
        "fw": {"kind": "firewall", "options": {"deny": ["tcp/23"]}, "replicas": 2, "on_failure": "closed"},
        "b": {"kind": "bridge", "on_failure": "open"},
        "look": {"kind": "dpi", "on_failure": "open"},
    },
    "chain": ["fw", "b"],
    "classes": {
        "telnet": {"match": {"protocol": "tcp", "port": 23}, "chain": ["fw"], "blocked_by": "fw"},
        "dns": {"match": {"protocol": "udp", "port": 53}, "chain": ["a", "look", "b"]},
    },
}


def chain(steering: str, **more: Any) -> dict[str, Any]:
    return {**copy.deepcopy(PLAIN), "steering": steering, **more}


def of(rules: list[Rule], traffic: str, direction: str) -> list[Rule]:
    return [one for one in rules if (one.traffic, one.direction) == (traffic, direction)]


# ------------------------------------------------------------------------------------ description


@pytest.mark.parametrize(
    ("name", "function", "words"),
    [
        ("n", {"kind": "nat", "replicas": 2}, "addresses of its own"),
        ("n", {"kind": "nat", "on_failure": "open"}, "cannot fail open"),
        ("look", {"kind": "dpi", "replicas": 2}, "gets copies"),
        ("fw_1", {"kind": "bridge"}, "have the name fw_1"),
        ("b", {"kind": "bridge", "replicas": 17}, "less than or equal to 16"),
        ("b", {"kind": "bridge", "on_failure": "maybe"}, "open"),
    ],
)
def test_what_cannot_be_a_replica_or_fail_so(name: str, function: dict[str, Any], words: str) -> None:
    plain = chain("in_port")
    plain["vnfs"][name] = function
    if name not in plain["chain"]:
        plain["chain"] = [*plain["chain"], name]
    with pytest.raises(Error) as wrong:
        checked(plain, "x")
    assert wrong.value.code == "ND-104-82" and words in str(wrong.value) + str(wrong.value.all)


@pytest.mark.parametrize("interval", ["1ms", "2min", "soon"])
def test_a_wrong_interval_is_told(interval: str) -> None:
    with pytest.raises(Error) as wrong:
        checked(chain("in_port", liveness={"interval": interval}), "x")
    assert wrong.value.code.startswith("ND-104-")


# ------------------------------------------------------------------------------------------ rules


def test_a_vlan_tag_is_put_on_once_and_taken_off_at_the_end() -> None:
    rules = of(steering.rules(checked(chain("vlan"), "x")), "dns", "forward")
    assert [one.flow.actions for one in rules] == [
        [PushVlan(103), "a-in"], [PopVlan(), "look-in", PushVlan(103), "b-in"], [PopVlan(), "server"],
    ]  # fmt: skip
    assert [dict(one.flow.match) for one in rules] == [
        {"udp": "", "tp_dst": "53"}, {"dl_vlan": "103"}, {"dl_vlan": "103"},
    ]  # fmt: skip


def test_rules_for_encapsulated_frames_come_first() -> None:
    """With the whole chain `a` gets plain frames, since replicas follow; with a shorter one it gets headers. While
    both sets of rules are there, the plain one of `a`, which matches all frames, must not take the others."""
    plain = {"steering": "nsh", "vnfs": {"a": {"kind": "bridge"}, "c": {"kind": "bridge", "replicas": 2}},
             "chain": ["a", "c"]}  # fmt: skip
    made = checked(plain, "x")
    old, new = steering.rules(made), steering.rules(shortened(made, made.chain[:1]))
    both = [one for one in between(old, new) if one.source == Port("a", "out")]
    assert sorted((one.flow.priority, bool(one.flow.match)) for one in both) == [(100, False), (2000, True)]


def test_a_service_index_counts_down() -> None:
    """Between two functions that pass headers on, the index is set; the copy for a mirror has none."""
    plain = chain("nsh")
    plain["classes"]["dns"]["chain"] = ["a", "b"]
    del plain["vnfs"]["look"]
    first, second, _ = of(steering.rules(checked(plain, "x")), "dns", "forward")
    assert isinstance(first.flow.actions[0], EncapNsh) and first.flow.actions[0].index == 255
    assert second.flow.actions == [DecNshTtl(), SetNsh(3, 254), "b-in"]
    assert second.flow.match["nsh_si"] == "255"
    back = of(steering.rules(checked(plain, "x")), "dns", "reverse")[0].flow.actions[0]
    assert isinstance(back, EncapNsh) and back.source == first.flow.actions[0].to


def test_each_switch_takes_one_off_the_ttl() -> None:
    """RFC 8300 section 2.2; a copy gets a header of its own, and where a tunnel ends is another switch."""
    bridges: dict[str, Any] = {name: {"kind": "bridge"} for name in "abc"}
    plain = {"steering": "nsh", "vnfs": bridges, "chain": list("abc")}
    assert ttls(plain) == {way: [63, 62, 61, None] for way in ("forward", "reverse")}
    far = {"tunnel": {"kind": "vxlan", "server_side": ["c"]}}
    assert ttls(plain | far) == {"forward": [63, 62, 61, 60, None], "reverse": [63, 62, 61, 60, None]}
    look = {"vnfs": bridges | {"look": {"kind": "dpi"}}, "chain": ["a", "b", "look", "c"]}
    assert ttls(plain | look)["forward"] == [63, 62, 63, None]
    seen = [one for one in mutants(steering.rules(checked(plain, "x"))) if one.name.startswith("TTL")]
    assert len(seen) == 4 and all(len(one.changed) == 1 for one in seen)


def ttls(plain: dict[str, Any]) -> dict[str, list[int | None]]:
    rules = steering.rules(checked(plain, "x"))
    return {way: [one.tag.ttl if one.tag else None for one in of(rules, "default", way)]
            for way in ("forward", "reverse")}  # fmt: skip


def test_a_path_longer_than_the_ttl_is_refused() -> None:
    def plain(count: int, **more: Any) -> dict[str, Any]:
        names = [f"b{at}" for at in range(count)]
        return {"steering": "nsh", "vnfs": {one: {"kind": "bridge"} for one in names}, "chain": names} | more

    assert ttls(plain(63))["forward"][-2] == 1
    far = {"tunnel": {"kind": "vxlan", "server_side": []}}
    for long in (plain(64), plain(63, **far)):
        with pytest.raises(Error) as wrong:
            checked(long, "x")
        assert "TTL of 63" in str(wrong.value) + str(wrong.value.all)
    checked(plain(64, steering="vlan"), "x")
    checked(plain(62, **far), "x")


def test_replicas_that_fail_leave_other_flows_where_they_are() -> None:
    made = checked(chain("in_port", vnfs=PLAIN["vnfs"] | {"fw": PLAIN["vnfs"]["fw"] | {"replicas": 3}}), "x")
    every = of(steering.rules(made), "default", "forward")
    assert every[0].flow.actions == [Select(("fw_1-in", "fw_2-in", "fw_3-in"))]
    fewer = of(steering.rules(made, {"fw_2"}), "default", "forward")
    assert fewer[0].flow.actions == [Select(("fw_1-in", "fw_3-in", "fw_3-in"))]
    assert {one.source.host for one in fewer} == {CLIENT, "fw_1", "fw_3", "b"}


def test_a_failed_function_is_passed_by_or_ends_the_path() -> None:
    made = checked(chain("nsh"), "x")
    around = expected(steering.rules(made, {"b"}), "default", "forward", ["fw_2"])
    assert [str(one.port) for one in around] == ["client", "fw_2.in", "fw_2.out", "server"]
    cut = steering.rules(made, {"fw_1", "fw_2"})
    for direction in ("forward", "reverse"):
        assert of(cut, "default", direction)[-1].flow.actions == []
    assert [str(one.port) for one in expected(cut, "default", "forward")] == ["client"]
    deaf = of(steering.rules(made, {"look"}), "dns", "forward")
    assert not any(one.mirrors for one in deaf)


# -------------------------------------------------------------------------------------- judgement


def test_encapsulations_are_read() -> None:
    inner = bytes(12) + b"\x08\x00" + bytes([0x45, 0, 0, 29, *bytes(5), 17]) + bytes(18) + b"x"
    nsh = bytes(12) + b"\x89\x4f" + bytes([0x0F, 0xC2, 2, 3, 0, 0, 7, 254]) + inner
    tagged = inner[:12] + b"\x81\x00\x00\x65" + inner[12:]
    assert [encapsulation(one) for one in (inner, nsh, tagged)] == [
        "",
        "NSH path 7 index 254 TTL 63",
        "VLAN 101",
    ]
    other = nsh[:14] + bytes([0x0F, 0x86, 1, 3]) + nsh[18:]
    assert encapsulation(other) == "NSH path 7 index 254 TTL 62 version 0 length 6 MD type 1 next protocol 3"
    assert key(inner) == key(nsh) == key(tagged) == ("udp", b"x")
    assert encapsulation(nsh[:20]) == "" and key(nsh[:24]) is None


def test_packets_of_ipv6_are_told_apart() -> None:
    head = bytes(12) + b"\x86\xdd" + bytes(4)
    datagram = head + struct.pack("!HBB", 9, 17, 64) + bytes(32) + struct.pack("!HHHH", 5, 53, 9, 0) + b"x"
    assert (key(datagram), server_port(datagram)) == (("udp6", b"x"), (17, 5, 53))
    tcp = head + struct.pack("!HBB", 20, 6, 64) + bytes(32) + struct.pack("!HHIIBB6x", 5, 23, 7, 8, 0x50, 2)
    assert key(tcp) == ("tcp6", struct.pack("!II", 7, 8), 2, 0)
    question = NeighbourDiscovery().question(b"\x02abcde", "2001:2::1", "2001:2:0:1::fd")
    target = question[-24:-8]
    assert key(question) == ("nd", 135, target) and question[:6] == bytes.fromhex("3333ff0000fd")
    pseudo = question[22:54] + struct.pack("!II", 32, 58) + question[54:]
    assert sum(struct.unpack("!36H", pseudo)) % 0xFFFF == 0, "the checksum of RFC 4443 section 2.3"
    for end in range(len(question)):
        assert key(question[:end]) is None or end >= 78


def test_classes_match_both_versions() -> None:
    made = checked(chain("in_port", ipv6=True), "x")
    rules = steering.rules(made)
    matches = [dict(one.flow.match) for one in of(rules, "dns", "reverse") if str(one.source) == "server"]
    assert matches == [{"udp": "", "tp_src": "53"}, {"udp6": "", "tp_src": "53"}]
    assert [one.version for one in of(rules, "default", "forward")] == [None] * 4
    six = expected(of_version(rules, 6), "dns", "forward")
    assert [str(one.port) for one in six] == [
        str(one.port) for one in expected(of_version(rules, 4), "dns", "forward")
    ]
    assert all(one.rule is None or "IPv6" in str(one.rule) for one in six)


def test_a_wrong_tag_is_a_fault_of_the_rule_that_put_it_on() -> None:
    rules = steering.rules(checked(chain("vlan"), "x"))
    steps = expected(rules, "dns", "forward")
    seen = [Sighting(at, one.port, one.sends, one.tag) for at, one in enumerate(steps)]
    assert judge(steps, seen) is None
    seen[1] = Sighting(1, seen[1].port, False, "VLAN 9")
    fault = judge(steps, seen)
    assert fault and fault.rule == steps[1].rule and "with VLAN 9, and not with VLAN 103" in fault.what


def test_which_replica_a_flow_takes() -> None:
    made = checked(chain("in_port"), "x")
    rules = steering.rules(made)
    ways = {}
    for direction, taken in (("forward", ["fw_1", "fw_2", "fw_1"]), ("reverse", ["fw_1", "fw_2", "fw_2"])):
        ways[direction] = Choices(made, rules, "default", direction)  # type: ignore[arg-type]
        for flow, host in enumerate(taken):
            ways[direction].add(flow, [Sighting(1, Port(host, "in"), False)])
        assert ways[direction].unused(made, "tcp") is None
    assert ways["forward"].flows() == {"fw": {"fw_1": 2, "fw_2": 1}}
    fault = disagreement(rules, "default", ways["forward"].taken, ways["reverse"].taken)
    assert fault and fault.rule and fault.also and "takes fw_1 forward and fw_2 in reverse" in fault.what
    ways["forward"].add(0, [Sighting(1, Port("fw_2", "in"), False)])
    assert ways["forward"].fault and "fw_1 and fw_2" in ways["forward"].fault.what
    alone = Choices(made, rules, "default", "forward")
    alone.add(1, [Sighting(1, Port("fw_1", "in"), False)])
    odd = alone.unused(made, "tcp")
    assert odd and odd.rule and odd.rule.source.host == CLIENT and "takes fw_2" in odd.what


# ------------------------------------------------------------------------------------ real packets


@pytest.fixture(params=["vlan", "nsh"])
def lab(request: pytest.FixtureRequest) -> Iterator[ChainLab]:
    if why := DRIVERS["ovs-netdev"].missing():
        pytest.skip(why)
    plain = chain(request.param, controller="embedded", ipv6=request.param == "vlan")
    with ChainLab(checked(plain, "x")) as made:
        yield made


@root
def test_encapsulated_packets_and_replicas_are_proved(lab: ChainLab) -> None:
    """By our controller; then mutants of the kinds that are new here are named."""
    found = verify(lab)
    assert found.good, [str(one.fault or one.untested) for one in found.directions if not one.good]
    assert {one.protocol for one in found.directions} >= (
        {"tcp6", "udp6", "nd"} if lab.chain.ipv6 else {"tcp"}
    )
    taken = [one.replicas["fw"] for one in found.directions if one.protocol == "tcp" and not one.refused]
    assert len(taken) == 3 and all(set(one) == {"fw_1", "fw_2"} and min(one.values()) > 0 for one in taken)
    kinds: dict[str, list[Mutant]] = {}
    for one in mutants(lab.rules):
        kinds.setdefault(one.name.split()[0], []).append(one)
    new = {"vlan": ("tag",), "nsh": ("turn",)}[lab.chain.steering]
    named(lab, [kinds[word][-1] for word in new])


@root
@pytest.mark.long
def test_every_mutant_of_encapsulations_and_groups_is_named(lab: ChainLab) -> None:
    named(lab, list(mutants(lab.rules)))


def named(lab: ChainLab, broken: list[Mutant]) -> None:
    wrong = []
    for one in broken:
        lab.program(one.rules)
        # a packet that a busy machine loses can hide a fault or look like one: then once more
        tries = []
        for _ in range(3):
            told = verify(lab, 1).named
            tries.append(sorted(told))
            if told and told <= one.changed:
                break
        else:
            wrong.append((one.name, tries))
    assert not wrong
    lab.program(lab.rules)


@root
def test_the_first_of_two_classes_that_match_counts() -> None:
    """Packets of the first are of the second, too, and would take its path."""
    if why := DRIVERS["ovs-netdev"].missing():
        pytest.skip(why)
    classes = {
        "marked": {"match": {"protocol": "udp", "port": 53, "dscp": 46}, "chain": ["a"]},
        "dns": {"match": {"protocol": "udp", "port": 53}, "chain": ["b"]},
    }
    plain = {
        "vnfs": {"a": {"kind": "bridge"}, "b": {"kind": "bridge"}},
        "chain": ["a", "b"],
        "classes": classes,
    }
    with ChainLab(checked(plain, "x")) as lab:
        found = verify(lab)
    assert found.good, found.first_fault
    assert {one.traffic for one in found.directions} == {"marked", "dns", "default", "two VLAN tags"}
