"""Datagrams of a flow at each point of a path: where they get into another order is told, and losses are not."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from netdyno.switch.chain import steering
from netdyno.switch.chain.reordering import overtaken
from netdyno.switch.chain.sight import Key, Sighting
from netdyno.switch.chain.spec import checked
from netdyno.switch.chain.strays import asks_for

CHAIN = checked({"vnfs": {"a": {"kind": "bridge"}, "b": {"kind": "bridge"}}, "chain": ["a", "b"]}, "x")
PATH = steering.expected(steering.rules(CHAIN), "default", "forward")


def told(orders: dict[str, list[int]]) -> str:
    """What is told of three datagrams that are in these orders from some points on."""
    seen: dict[Key, list[Sighting]] = {("udp", b"x number %d" % one): [] for one in (1, 2, 3)}
    now = [1, 2, 3]
    for place, step in enumerate(PATH):
        now = orders.get(str(step), now)
        for turn, number in enumerate(now):
            at = 100 * (place + 1) + turn
            seen["udp", b"x number %d" % number].append(Sighting(at, step.port, step.sends))
    return str(overtaken(PATH, seen) or "")


def test_order_is_told_where_it_is_lost() -> None:
    assert not told({})
    assert told({"a.out sends": [2, 1, 3]}).startswith(
        "a: a.out sends datagram 2 of a flow before datagram 1"
    )
    assert "rule 2 (default forward): a.out → b.in: b.in receives datagram 3" in told(
        {"b.in receives": [3, 1, 2]}
    )
    assert not told({"client.eth0 sends": [3, 1, 2]}), "the order in which they were sent counts"


def test_a_lost_one_is_in_no_order() -> None:
    assert not told({"a.out sends": [1, 3]})
    assert "datagram 3 of a flow before datagram 1" in told({"a.out sends": [3, 1]})


def test_other_packets_have_no_order() -> None:
    port = PATH[0].port
    assert overtaken(PATH, {("udp", b"x"): [Sighting(1, port, True)], ("arp", b"\0\1", b"", b""): []}) is None


@pytest.mark.parametrize(
    ("spec", "asks"),
    [
        # as a preset has it
        ({"delay": {"constant": "10ms"}, "overtaking": False}, False),
        ({"delay": {"normal": {}}, "overtaking": True}, True),
        ({"a_to_b": {"reorder": {"share": 0.1}}}, True),
        ({"elements": {"x": {"kind": "reorder"}}}, True),
        ({}, False),
    ],
)
def test_another_order_is_asked_for_by_what_has_a_value(spec: dict[str, object], asks: bool) -> None:
    network = SimpleNamespace(described=lambda: [("path", spec)])
    lab = SimpleNamespace(network=network, vnfs={})
    assert asks_for(lab, ("reorder", "overtaking")) is asks  # type: ignore[arg-type]
