"""Which programs are told that a buffer of their own is too small, and what can be done."""

from __future__ import annotations

from netdyno.lab.sockets import Connection
from netdyno.tuning.fixed_buffers import FixedBuffer, FixedBuffers, held_back
from netdyno.tuning.gauges import Ends, Reading, Span
from netdyno.tuning.live_sockets import RECEIVING, SENDING
from netdyno.tuning.short_queues import EPISODE
from netdyno.tuning.socket_drops import SocketLine, dropped, parse


def reader(lost: int, size: int = 8000, pid: int = 5) -> str:
    return (
        f'UNCONN 0 0 0.0.0.0:53 0.0.0.0:* users:(("dns",pid={pid},fd=3)) '
        f"skmem:(r0,rb{size},t0,tb212992,f0,w0,o0,bl0,d{lost})"
    )


def told(known: FixedBuffers, now: float, lost: list[tuple[SocketLine, int]]) -> list[FixedBuffer]:
    return list(known.datagrams(now, lost, {212992, 425984}, 212992))


def test_a_reader_is_told_once_an_episode() -> None:
    known = FixedBuffers(lambda one: RECEIVING)
    lost = dropped(reader(5), reader(99))
    (one,) = told(known, 0, lost)
    assert (one.process, one.pid, one.port, one.size) == ("dns", 5, 53, 8000)
    assert "94 datagrams dropped" in one.why and "caps at 212,992" in one.why
    assert told(known, 1, lost) == []
    assert len(told(known, 2 + EPISODE, lost)) == 1


def test_what_does_not_drop_or_a_parameter_gives_is_left_out() -> None:
    known = FixedBuffers(lambda one: RECEIVING)
    assert told(known, 0, dropped(reader(5), reader(5))) == []
    for size in (212992, 425984, 0):
        assert told(known, 0, dropped("", reader(5, size))) == []
    assert told(known, 0, dropped("", reader(5, pid=0))) == []


def test_it_is_said_what_the_kernel_tells_of_who_set_the_buffer() -> None:
    lost = dropped("", reader(5))
    (own,) = told(FixedBuffers(lambda one: RECEIVING), 0, lost)
    (default,) = told(FixedBuffers(lambda one: SENDING), 0, lost)
    (unknown,) = told(FixedBuffers(lambda one: None), 0, lost)
    assert "which its program fixed with setsockopt(SO_RCVBUF)." in own.why
    assert "restart the program" in default.why and "SO_RCVBUF" not in default.why
    assert ", or which was the default when the socket was opened" in unknown.why


def span(held: float, busy: float, size: float) -> Span:
    values = {"sndbuf_limited_ms": held, "busy": busy, "tb": size}
    return Span(None, Reading(1.0, Connection("ESTAB", "", "", "cubic", values)), 1.0)


ALL = """\
LISTEN 0 64 *:80 *:* users:(("web",pid=10,fd=3))
ESTAB 0 0 10.0.0.1:80 10.0.0.9:1 users:(("web",pid=10,fd=7))
ESTAB 0 0 10.0.0.1:80 10.0.0.9:2 users:(("web",pid=10,fd=8))
ESTAB 0 0 10.0.0.1:45000 10.0.0.7:5432 users:(("worker",pid=13,fd=4))
"""
SPANS: dict[Ends, Span] = {
    ("10.0.0.1:80", "10.0.0.9:1"): span(900, 1000, 32768),
    ("10.0.0.1:80", "10.0.0.9:2"): span(300, 1000, 65536),
    ("10.0.0.1:45000", "10.0.0.7:5432"): span(400, 500, 32768),
    ("10.0.0.1:45001", "10.0.0.7:5432"): span(50, 500, 32768),
    ("10.0.0.1:45002", "10.0.0.7:5432"): span(500, 500, 1 << 22),
}


def test_connections_that_their_buffer_holds_back_are_those_below_the_bound() -> None:
    assert list(held_back(SPANS, 1 << 22)) == list(SPANS)[:3]


def test_a_sender_is_told_with_the_port_that_it_serves_or_is_connected_to() -> None:
    known = FixedBuffers(lambda one: SENDING)
    held = held_back(SPANS, 1 << 22)
    found = list(known.connections(0, parse(ALL), held, 212992))
    assert [(one.process, one.port, one.serves, one.size) for one in found] == [
        ("web", 80, True, 32768), ("worker", 5432, False, 32768),
    ]  # fmt: skip
    assert "web (process 10), port 80: 2 connections held back by the send buffer in 60%" in found[0].why
    assert list(known.connections(1, parse(ALL), held, 212992)) == []


def test_a_buffer_that_the_kernel_sizes_is_not_said_to_be_fixed() -> None:
    for locks in (RECEIVING, 0, None):
        known = FixedBuffers(lambda one, locks=locks: locks)
        assert list(known.connections(0, parse(ALL), held_back(SPANS, 1 << 22), None)) == []
