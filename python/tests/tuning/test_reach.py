"""Sockets of running processes, as `ss` shows them."""

from __future__ import annotations

from netdyno.tuning import live_sockets


def test_sockets_as_ss_shows_them() -> None:
    assert live_sockets.parse_listeners(
        'LISTEN 129 128 0.0.0.0:80 0.0.0.0:* users:(("nginx",pid=7,fd=6),("nginx",pid=8,fd=6))\n'
        'LISTEN 0 511 [::]:80 [::]:* users:(("a b",pid=9,fd=3))\nnonsense\nLISTEN 0 5 *:1 *:*\n'
    ) == [
        live_sockets.LiveSocket("backlog", 7, 6, 128, True),
        live_sockets.LiveSocket("backlog", 9, 3, 511, False),
    ]
    assert live_sockets.parse_datagrams(
        'UNCONN 212992 0 1.2.3.4:9 0.0.0.0:* users:(("x",pid=7,fd=3)) '
        "skmem:(r213248,rb212992,t0,tb212992,f1792,w0,o0,bl0,d12)\nUNCONN 0 0 *:7 *:*\n"
    ) == [live_sockets.LiveSocket("udp", 7, 3, 212992, True)]


def test_receivers_as_ss_shows_them() -> None:
    """When something came just now, `ss` says nothing of it."""
    line = (
        'ESTAB 0 0 1.2.3.4:9 1.2.3.5:7 users:(("x",pid=7,fd=3)) skmem:(r0,rb{},t0,tb87040) cubic '
        "bytes_received:9 {}rcv_rtt:4"
    )
    shown = ((4096, "lastrcv:4 "), (8192, "lastrcv:5000 "), (8192, ""))
    text = "\n".join(line.format(*one) for one in shown)
    assert [one.size for one in live_sockets.parse_receivers(text)] == [4096, 8192]


def test_a_queue_is_as_long_as_it_was_before_its_owner_was_found() -> None:
    owned = (
        'LISTEN 0 64 0.0.0.0:80 0.0.0.0:* users:(("a b",pid=7,fd=6))\n'
        'LISTEN 3 64 0.0.0.0:81 0.0.0.0:* users:(("c",pid=8,fd=6))\nnonsense\n'
    )
    text = live_sockets.with_queues(owned, {"0.0.0.0:80": (65, 64), "0.0.0.0:81": (1, 64)})
    assert [(one.pid, one.full) for one in live_sockets.parse_listeners(text)] == [(7, True), (8, False)]
    assert " 3 64 " in text.splitlines()[1]
