"""OpenFlow 1.3 as bytes: against what a switch takes and shows, against nonsense, and against itself."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from netdyno.switch.openflow import message as of
from netdyno.switch.openflow.action import PopVlan, PushVlan, Select
from netdyno.switch.openflow.flow import FlowEntry, MatchError, entry, match_bytes, match_fields
from netdyno.switch.openflow.message import FlowStats, Header, Message, OpenFlowError

WEB = entry(7, 200, 3, {"tcp": "", "tp_dst": "80"}, [4, 5])
REST = entry(1, 100, 3, {}, [4])


def listed(*flows: FlowEntry, table: int = 0) -> bytes:
    """A reply with flow entries, as the specification lays it out."""
    body = struct.pack("!HH4x", 1, 0)
    for one in flows:
        rest = match_bytes(one.match) + one.instructions
        body += struct.pack(
            "!HBxIIHHHH4xQQQ", 48 + len(rest), table, 0, 0, one.priority, 0, 0, 0, one.cookie, 9, 0
        )
        body += rest
    return body


def test_a_match_is_as_the_specification_lays_it_out() -> None:
    """In port 3, Ethernet type IPv4, protocol TCP, port 80: each field after its prerequisite, padded to 8 bytes."""
    assert match_bytes(WEB.match).hex() == (
        "0001" "001d" "80000004" "00000003" "80000a02" "0800" "80001401" "06" "80001c02" "0050" "000000"
    )  # fmt: skip


def test_actions_and_vlan_tags() -> None:
    assert WEB.instructions.hex() == (
        "0004" "0028" "00000000" "0000" "0010" "00000004" "0000" "000000000000" "0000" "0010" "00000005" "0000" "000000000000"
    )  # fmt: skip
    pushed = entry(1, 1, 1, {}, [PushVlan(12), 2]).instructions
    assert "0011000881000000" + "001900108000" + "0c02" + "100c" in pushed.hex()
    assert "0012000800000000" in entry(1, 1, 1, {}, [PopVlan(), 2]).instructions.hex()
    assert entry(1, 1, 1, {}, []).instructions == b"", "no port: packets are dropped"


@pytest.mark.parametrize(
    ("match", "words"),
    [
        ({"tp_dst": "80"}, "needs tcp or udp"),
        ({"tcp": "", "tp_dst": "70000"}, "out of range"),
        ({"tcp": "", "tp_dst": "web"}, "no value of tcp_dst"),
        ({"ip": "", "nw_src": "10.0.0"}, "no value of ipv4_src"),
        ({"dl_dst": "00:11:22"}, "no value of eth_dst"),
        ({"colour": "red"}, "not supported"),
    ],
)
def test_a_wrong_match_is_told(match: dict[str, str], words: str) -> None:
    with pytest.raises(MatchError, match=words):
        entry(1, 1, 1, match, [2])


def test_flows_are_read_back_and_compared() -> None:
    body = listed(WEB, REST)
    assert of.flow_entries(body) == [FlowStats(0, WEB, 9), FlowStats(0, REST, 9)]
    assert FlowEntry.of(WEB.document()) == WEB and not of.more(body)
    assert of.flow_mod(of.ADD, WEB).startswith(struct.pack("!QQBB", 7, 0, 0, 0))
    assert of.flow_mod(of.DELETE_STRICT, WEB).endswith(match_bytes(WEB.match))


def test_groups_come_before_flows_that_name_them() -> None:
    """A group's number follows from its buckets: other ports are another group."""
    one, other = Select((2, 3)).group(), Select((3, 2)).group()
    shared = entry(5, 1, 1, {}, [Select((2, 3))])
    assert one.number != other.number and shared.groups == (one,)
    assert FlowEntry.of(shared.document()).groups[0].buckets == one.buckets
    assert shared.instructions.endswith(struct.pack("!HHI", 22, 8, one.number))
    body = struct.pack("!HH4x", 7, 0)
    for each in (one, other):
        body += struct.pack("!HBxI", 8 + len(each.buckets), 1, each.number) + each.buckets
    assert of.group_numbers(body) == {one.number, other.number}
    with pytest.raises(ValueError, match="a group"):
        of.group_numbers(body[:-1])


def test_only_what_differs_is_changed() -> None:
    other = entry(8, 200, 3, {"tcp": "", "tp_dst": "80"}, [6])
    stray = entry(9, 300, 1, {}, [2])
    assert of.changes([WEB, REST], [WEB, REST]) == ([], [])
    assert of.changes([WEB, stray], [other, REST]) == ([other, REST], [stray])


def test_versions_of_a_hello() -> None:
    assert of.speaks_13(Header(4, of.HELLO, 16, 1), of.hello())
    assert of.speaks_13(Header(6, of.HELLO, 8, 1), b""), "its highest version, without a bitmap"
    assert not of.speaks_13(Header(1, of.HELLO, 8, 1), b"")
    assert not of.speaks_13(Header(6, of.HELLO, 16, 1), struct.pack("!HHI", 1, 8, 1 << 6)), "1.5 alone"


def test_what_is_no_openflow() -> None:
    for wrong in (b"HTTP/1.1", b"\x04\x00\x00\x04\x00\x00\x00\x01"):
        with pytest.raises(ValueError, match="no OpenFlow message"):
            Header.of(wrong)
    assert bytes(Message(of.HELLO, 5, b"ab")) == b"\x04\x00\x00\x0a\x00\x00\x00\x05ab"
    assert "stale" in str(OpenFlowError(struct.pack("!HH", *of.STALE))) and str(OpenFlowError(b""))


@given(st.binary(max_size=200))
def test_arbitrary_bytes_are_read_or_refused(data: bytes) -> None:
    for read in (of.flow_entries, of.group_numbers, of.datapath, of.more, match_fields):
        try:
            read(data)  # type: ignore[operator]
        except ValueError:
            continue


@given(st.integers(0, 2), st.integers(0, 120), st.integers(0, 255))
def test_a_damaged_list_is_read_or_refused(count: int, place: int, value: int) -> None:
    body = bytearray(listed(*[WEB, REST][:count]))
    body[place % len(body)] = value
    try:
        of.flow_entries(bytes(body))
    except ValueError:
        return
