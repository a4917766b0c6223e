"""Whose sockets meet a limit: listings of `ss` and spans of a window in, a process and a port out."""

from __future__ import annotations

from netdyno.lab.sockets import Connection
from netdyno.tuning import sufferers
from netdyno.tuning.gauges import Ends, Reading, Span
from netdyno.tuning.socket_drops import dropped
from netdyno.tuning.sufferers import Owner, Sufferer

LISTENERS = """\
LISTEN 3 128 0.0.0.0:80 0.0.0.0:* users:(("nginx",pid=10,fd=6),("nginx",pid=9,fd=6))
LISTEN 65 64 [::]:7100 [::]:* users:(("my app",pid=11,fd=3))
LISTEN 0 5 127.0.0.1:25 0.0.0.0:* users:(("master",pid=12,fd=3))
LISTEN 9 9 0.0.0.0:2049 0.0.0.0:*
"""
BROKEN = "Error: x\nESTAB 1\n"
ALL = (
    LISTENERS
    + """\
SYN-RECV 0 0 10.0.0.1:80 10.0.0.9:40001
SYN-RECV 0 0 10.0.0.1:80 10.0.0.9:40002
SYN-RECV 0 0 [::ffff:10.0.0.1]:7100 [::ffff:10.0.0.9]:40003
ESTAB 0 0 10.0.0.1:80 10.0.0.9:1 users:(("nginx",pid=10,fd=7))
ESTAB 0 0 10.0.0.1:80 10.0.0.9:2 users:(("nginx",pid=10,fd=8))
ESTAB 700 0 10.0.0.1:45000 10.0.0.7:5432 users:(("worker",pid=13,fd=4))
"""
)


def span(busy: float, buffer: float = 0.0, window: float = 0.0, again: float = 0.0, **more: float) -> Span:
    before = {"busy": 50.0, "sndbuf_limited_ms": 7.0, "rwnd_limited_ms": 7.0, "bytes_retrans": 7.0}
    moved = {"busy": busy, "sndbuf_limited_ms": buffer, "rwnd_limited_ms": window, "bytes_retrans": again}
    after = {name: before[name] + by for name, by in moved.items()} | more

    def at(time: float, values: dict[str, float]) -> Reading:
        return Reading(time, Connection("ESTAB", "", "", "cubic", values))

    return Span(at(0.0, before), at(1.0, after), 1.0)


SPANS: dict[Ends, Span] = {
    ("10.0.0.1:80", "10.0.0.9:1"): span(1000, buffer=800, again=100, bytes_acked=1e6),
    ("10.0.0.1:80", "10.0.0.9:2"): span(1000, buffer=100, window=500, bytes_acked=1e6),
    ("10.0.0.1:45000", "10.0.0.7:5432"): span(1000, again=9000, bytes_acked=5e5, recv_q=700),
}


def told(counter: str, listing: str = ALL) -> Sufferer:
    found = sufferers.find(counter, lambda options: listing, SPANS, ("", ""))
    assert found is not None
    return found


def test_the_fullest_queue_is_told_by_its_process() -> None:
    found = told("TcpExtListenOverflows", LISTENERS)
    assert found.owner == Owner("my app", 11, 7100)
    assert str(found.owner) == "my app (process 11), port 7100"
    assert found.what == "65 of 64 connections wait to be accepted"


def test_half_open_connections_are_those_of_the_listener() -> None:
    found = told("listen.refused")
    assert (found.owner.pid, found.what) == (9, "2 connections are half open")


def test_a_queue_that_has_drained_names_nobody() -> None:
    """One connection that waits is no limit; half of the queue is."""
    for waiting, named in ((1, False), (31, False), (32, True)):
        text = f'LISTEN {waiting} 64 0.0.0.0:80 0.0.0.0:* users:(("nginx",pid=9,fd=6))\n'
        assert (sufferers.of_queue(text) is not None) == named


def test_a_queue_that_only_the_kernel_saw_full_has_an_owner() -> None:
    text = 'LISTEN 0 64 0.0.0.0:80 0.0.0.0:* users:(("nginx",pid=9,fd=6)) skmem:(r0,rb1,t0,tb1,f0,w0,o0,bl0,d{})\n'
    ((one, count),) = dropped(text.format(3), text.format(10))
    assert str(sufferers.of_overflow(one, count).owner) == "nginx (process 9), port 80"
    # one that is seen full tells more
    full = sufferers.of_queue(text.format(10).replace("LISTEN 0", "LISTEN 65"))
    assert sufferers.most([sufferers.of_overflow(one, count), full]) is full


def test_of_two_listeners_on_one_port_it_is_that_of_the_address() -> None:
    text = (
        'LISTEN 0 64 10.0.0.1:80 0.0.0.0:* users:(("one",pid=1001,fd=3))\n'
        'LISTEN 0 64 10.0.0.2%eth0:80 0.0.0.0:* users:(("two",pid=1002,fd=3))\n'
        'LISTEN 0 64 *:80 *:* users:(("all",pid=1003,fd=3))\n'
    )

    def half_open(local: str) -> int:
        found = sufferers.of_half_open(f"{text}SYN-RECV 0 0 {local} 10.0.0.9:1\n")
        return found.owner.pid if found else 0

    assert [half_open(f"{host}:80") for host in ("10.0.0.1", "10.0.0.2", "10.0.0.3", "[::1]")] == [
        1001, 1002, 1003, 1003,
    ]  # fmt: skip
    assert half_open("10.0.0.1:81") == 0
    ends = {("10.0.0.1:80", "10.0.0.9:1"): span(1000, bytes_acked=1e6)}
    found = sufferers.of_connections(text, ends, "tcp.sndbuf_limited")
    assert found is None or found.owner.pid == 1001


def drops(*sockets: tuple[str, int, int]) -> str:
    return "".join(
        f'UNCONN 0 0 0.0.0.0:{port} 0.0.0.0:* users:(("{name}",pid=5,fd=3)) '
        f"skmem:(r0,rb212992,t0,tb212992,f0,w0,o0,bl0,d{lost})\n"
        for name, port, lost in sockets
    )


def test_datagrams_are_those_of_the_socket_that_dropped_most_since_the_last_look() -> None:
    before = drops(("dns", 53, 3456), ("log", 514, 12))
    found = sufferers.of_datagrams((before, drops(("dns", 53, 3457), ("log", 514, 30))))
    assert found
    assert (found.owner, found.what) == (Owner("log", 5, 514), "18 more datagrams dropped")
    # one that was opened since
    found = sufferers.of_datagrams((before, drops(("dns", 53, 3457), ("log", 514, 7))))
    assert found
    assert (found.owner.port, found.weight) == (514, 7)
    assert sufferers.of_datagrams((before, before)) is None
    later = sufferers.find("udp.rcvbuf_errors", lambda options: before, {}, ("", before))
    assert later
    assert later.owner.port == 53


def test_what_holds_connections_back_is_told_in_shares_of_the_window() -> None:
    found = told("tcp.sndbuf_limited")
    assert found.owner == Owner("nginx", 10, 80)
    assert found.what == (
        "2 connections, held back by the send buffer in 45%, by the receiver's window in 25% and by the path in 30% "
        "of the time; 100 bytes sent again; 0 bytes not read yet"
    )


def test_connections_that_have_ended_are_those_of_who_listens_on_their_port() -> None:
    found = told("tcp.sndbuf_limited", LISTENERS)
    assert (found.owner, found.what[:14]) == (Owner("nginx", 9, 80), "2 connections,")


def test_losses_are_those_of_who_sent_most_again() -> None:
    found = told("tcp.lossy.cubic")
    assert found.owner == Owner("worker", 13, 5432, serves=False)
    assert str(found.owner) == "worker (process 13), connected to port 5432"
    assert "9,000 bytes sent again; 700 bytes not read yet" in found.what


def test_where_no_socket_tells_nobody_is_named() -> None:
    for counter in ("TcpExtListenOverflows", "listen.refused", "udp.rcvbuf_errors", "tcp.sndbuf_limited"):
        assert sufferers.find(counter, lambda options: "", SPANS, ("", "")) is None
        # and of what broke off, or is no listing
        assert sufferers.find(counter, lambda options: BROKEN, SPANS, (BROKEN, BROKEN)) is None
    # what is no socket's is not asked for

    def never(options: str) -> str:
        raise AssertionError(options)

    assert sufferers.find("conntrack.drop", never, SPANS, ("", "")) is None
    assert sufferers.find("softnet.dropped", never, SPANS, ("", "")) is None
