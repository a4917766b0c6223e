"""Functions with one fault each: `verify` calls no chain good that does not carry conversations as they are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from netdyno.switch.chain.lab import ChainLab
from netdyno.switch.chain.spec import checked
from netdyno.switch.chain.verify import verify
from netdyno.switch.driver import DRIVERS

from ..conftest import root

PROGRAM = Path(__file__).parent / "faulty.py"
BLOCKED = {"secret": {"match": {"protocol": "udp", "port": 53}, "chain": ["own", "br"], "blocked_by": "own"}}
BLOCKED_TCP = {
    "secret": {"match": {"protocol": "tcp", "port": 53}, "chain": ["own", "br"], "blocked_by": "own"}
}
pytestmark = [root, pytest.mark.drawn]


@pytest.fixture(autouse=True)
def needs() -> None:
    if why := DRIVERS["ovs-netdev"].missing():
        pytest.skip(why)


def faults(fault: str, rounds: int = 3, **more: Any) -> list[str]:
    """What `verify` says of a chain of such a function and a bridge, by class, direction and protocol."""
    options = {"command": ["python3", str(PROGRAM), fault], "seconds": 1}
    chain = {
        "vnfs": {"own": {"kind": "command", "options": options}, "br": {"kind": "bridge", **more.pop("br", {})}},
        "chain": ["own", "br"], **more,
    }  # fmt: skip
    with ChainLab(checked(chain, "x")) as lab:
        found = verify(lab, rounds)
    return [f"{one.traffic} {one.direction} {one.protocol}: {one.fault or one.untested}"
            for one in found.directions if not one.good]  # fmt: skip


def test_one_without_a_fault_is_good() -> None:
    assert faults(
        "none", classes=BLOCKED | {"more": {"match": {"dscp": 46}, "chain": ["own"]}}, rounds=5
    ) == ["secret forward udp: own: it lets packets pass that it is to block"]
    assert not faults("leak", classes=BLOCKED, br={"replicas": 2})


def test_a_slow_one_is_good() -> None:
    firewall = {"kind": "firewall", "options": {"deny": ["udp/53"]}}
    behind = {"secret": {**BLOCKED["secret"], "blocked_by": "br"}}
    assert not faults("slow", classes=behind, br=firewall)


def test_datagrams_that_a_path_loses_are_in_no_wrong_order() -> None:
    assert not faults("some")


def test_a_long_path_is_good() -> None:
    chain = {"vnfs": {"br": {"kind": "bridge"}}, "chain": ["br"]}
    way = {"delay": {"constant": "400ms"}}
    with ChainLab(checked(chain, "x"), paths={"client": {"a_to_b": way, "b_to_a": way}}) as lab:
        for _ in range(2):
            assert not verify(lab).first_fault
        assert lab.transit
        assert lab.transit >= 0.4


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("reset", "own: it sends a packet of tcp that no end sent"),
        ("checksum", "client: it gets no answer"),
        ("mac", "default reverse tcp: own: own.in sends it with other Ethernet addresses"),
        ("port", "default reverse udp: own: own.in sends it with other ports"),
        ("copy", "own: it sends a packet of udp that no end sent"),
        ("elsewhere", "default forward udp: own: it sends a packet of udp that no end sent"),
        ("answer", "default reverse udp: own: it sends a packet of udp that no end sent"),
        ("payload", "own.out sends it with another payload"),
        ("dscp", "own.out sends it with another DSCP"),
        ("ttl", "default forward udp: own: own.out sends it with another TTL"),
        ("ecn", "default forward tcp: own: own.out sends it with another ECN field"),
        ("identity", "default forward udp: own: own.out sends it with another IP identification"),
        ("options", "default reverse tcp: own: own.in sends it with other options"),
        ("window", "default forward tcp: own: own.out sends it with other options, another window"),
        ("unchecked", "default forward udp: own: own.out sends it with no checksum of UDP"),
        (
            "size-tcp-1000",
            "default reverse tcp: own: hosts send packets of up to 1,500 bytes, and up to 1,000 bytes pass: "
            "of the largest, own.in never sends it",
        ),
        (
            "size-udp-1499",
            "default forward udp: own: hosts send packets of up to 1,500 bytes, and up to 1,499 bytes pass: "
            "of the largest, own.out never sends it",
        ),
        ("swap", "default reverse udp: own: own.in sends datagram 2 of a flow before datagram 1"),
        ("late", "times, and it was sent"),
        ("often", "own.out sends it 2 times, and it was sent once"),
    ],
)
def test_what_it_does_to_conversations_is_told(fault: str, words: str) -> None:
    found = faults(fault)
    assert any(words in one for one in found), found


@pytest.mark.parametrize(
    ("fault", "classes", "words"),
    [
        ("leak-udp", BLOCKED, "secret forward udp: own: it sends a packet of udp that no end sent"),
        ("leak-tcp", BLOCKED_TCP, "secret forward tcp: own: it sends a packet of tcp that no end sent"),
    ],
)
def test_what_passes_changed_is_not_blocked(fault: str, classes: dict[str, Any], words: str) -> None:
    found = faults(fault, classes=classes)
    assert any(words in one for one in found), found


def test_replicas_are_not_good_without_flows_through_all() -> None:
    found = faults("checksum", rounds=1, br={"replicas": 2})
    assert any("client: it gets no connection (flow 1 of 32)" in one for one in found), found
