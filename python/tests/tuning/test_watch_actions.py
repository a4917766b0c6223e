"""How actions of `tune watch` are told: by names that scripts rely on."""

from __future__ import annotations

import pytest

from netdyno.tuning.fixed_buffers import FixedBuffer
from netdyno.tuning.kernel_events import BriefConnections, DroppedPackets
from netdyno.tuning.short_queues import ShortQueue, UnknownListener
from netdyno.tuning.watch import Freeze, Revert, Say, Set
from netdyno.tuning.watch_run import ACTIONS, AffectedProcess, Logged, document

NAME = "net.core.somaxconn"


GOLDEN: list[tuple[Logged, dict[str, object]]] = [
    (Set("queue", NAME, 8, "full"), {"action": "set", "rule": "queue", "name": NAME, "value": 8, "why": "full", "also": {}}),
    (
        Revert("queue", NAME, 4, "vain"),
        {"action": "revert", "rule": "queue", "name": NAME, "value": 4, "why": "vain", "also": {}},
    ),
    (Freeze(NAME, "theirs"), {"action": "freeze", "name": NAME, "why": "theirs"}),
    (
        Say("so", "queue", {NAME: 8}),
        {"action": "say", "why": "so", "rule": "queue", "setting": {NAME: 8}},
    ),
    (
        AffectedProcess(NAME, "web", 7, 80, True, "full"),
        {
            "action": "suffers", "name": NAME, "process": "web", "pid": 7, "port": 80, "serves": True,
            "why": "full",
        },
    ),
    (
        ShortQueue("web", 7, 80, 6, 5, "short"),
        {
            "action": "shortqueue", "process": "web", "pid": 7, "port": 80, "waiting": 6, "longest": 5,
            "why": "short", "dropped": 0,
        },
    ),
    (
        UnknownListener(("web (process 7), port 80, queue of 5",), "unknown"),
        {"action": "unknownlistener", "listeners": ("web (process 7), port 80, queue of 5",), "why": "unknown"},
    ),
    (
        FixedBuffer("dns", 7, 53, True, "SO_RCVBUF", 8000, "fixed"),
        {
            "action": "fixedbuffer", "process": "dns", "pid": 7, "port": 53, "serves": True, "option": "SO_RCVBUF",
            "size": 8000, "why": "fixed",
        },
    ),
    (
        DroppedPackets("NO_SOCKET", "tcp_v4_rcv", "TCP over IPv4", (80,), 9, ("TcpOutRsts",), "lost"),
        {
            "action": "droppedpackets", "reason": "NO_SOCKET", "place": "tcp_v4_rcv",
            "protocol": "TCP over IPv4", "ports": (80,), "packets": 9, "counters": ("TcpOutRsts",), "why": "lost",
        },
    ),
    (
        BriefConnections(80, True, ("192.0.2.1",), 9, 0.1, 2, 1, 0.5, "brief"),
        {
            "action": "briefconnections", "port": 80, "serves": True, "peers": ("192.0.2.1",), "connections": 9,
            "retransmitted": 0.1, "reset": 2, "failed": 1, "rtt_ms": 0.5, "why": "brief",
        },
    ),
]  # fmt: skip


@pytest.mark.parametrize(("action", "told"), GOLDEN)
def test_actions_are_told_by_names_that_scripts_rely_on(action: Logged, told: dict[str, object]) -> None:
    assert document(action) == told


def test_each_action_has_a_name_of_its_own() -> None:
    assert len(set(ACTIONS.values())) == len(ACTIONS) == len(GOLDEN)
